package harness

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// randomPack is a policy pack that advises against random strings. Its policy is one of whole stacks, which see outputs.
const randomPack = `{"name": "lab", "version": "1.0.0", "displayName": "Lab", "policies": [{
  "name": "no-random", "level": "advisory", "description": "Strings must not be random.", "message": "choose a string",
  "stack": true, "type": "lab:index:Random", "property": "hex"
}]}`

// PublishPack publishes the tests' policy pack with a definition, with the stock CLI.
func (w *Site) PublishPack(ctx context.Context, t *testing.T, definition string) {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, lab.WritePolicyPack(dir, must.Get(lab.PolicyPack(ctx, os.Stderr))(t), definition))
	must.OK(t, lab.InstallLanguageHost(w.Home, filepath.Join(w.Bin, "workflow-runner")))
	cli := exec.CommandContext(ctx, w.Tools.Pulumi(), "policy", "publish", w.Server.Organization)
	cli.Dir, cli.Env = dir, w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)
	if out, err := cli.CombinedOutput(); err != nil {
		t.Fatalf("pulumi policy publish: %v\n%s", err, out)
	}
}

// ChangeGroup makes one change of a policy group.
func (w *Site) ChangeGroup(ctx context.Context, t *testing.T, group, change string, what map[string]any) {
	t.Helper()
	must.OK(t, w.Server.Call(ctx, http.MethodPatch, "/api/orgs/"+w.Server.Organization+"/policygroups/"+group, map[string]any{change: what}, nil))
}

// OpenEnvironment is a command that prints a value of the environment of [Stack.Audit].
const OpenEnvironment = "echo the environment has $(pulumi env open organization/infra/lab word --format string)"

// Audit publishes a policy pack, requires it in the updates of all stacks, and has a new group evaluate the stack with it and
// an environment. The stack of [YamlProgram] violates it.
func (s *Stack) Audit(ctx context.Context, t *testing.T) {
	t.Helper()
	s.W.PublishPack(ctx, t, randomPack)
	pack, name := map[string]any{"name": "lab", "versionTag": "1.0.0"}, strings.Split(s.Name, "/")
	s.W.ChangeGroup(ctx, t, "default-policy-group", "addPolicyPack", pack)
	must.OK(t, s.W.Server.Call(ctx, http.MethodPost, "/api/orgs/"+s.W.Server.Organization+"/policygroups", map[string]any{"name": "audits", "entityType": "stacks", "mode": "audit"}, nil))
	environments := "/api/esc/environments/" + s.W.Server.Organization
	must.OK(t, s.W.Server.Call(ctx, http.MethodPost, environments, map[string]any{"project": "infra", "name": "lab"}, nil))
	definition := map[string]any{"values": map[string]any{"word": "opened-in-the-job", "environmentVariables": map[string]any{"LAB_KEY": map[string]string{"fn::secret": "hidden-in-the-pack"}}}}
	must.OK(t, s.W.Server.Call(ctx, http.MethodPatch, environments+"/infra/lab", definition, nil))
	pack["environments"] = []string{"infra/lab"}
	s.W.ChangeGroup(ctx, t, "audits", "addPolicyPack", pack)
	s.W.ChangeGroup(ctx, t, "audits", "addStack", map[string]any{"name": name[2], "routingProject": name[1]})
}

// Evaluation is the API's description of a policy evaluation.
type Evaluation struct {
	ID, Cause, Status, Message string
	Violations                 *int64
}

// Evaluated waits for the end of the stack's newest policy evaluation, and checks that its pack has found one violation.
// It prints the log of another one.
func (s *Stack) Evaluated(ctx context.Context, t *testing.T) {
	t.Helper()
	path := "/api/stacks/" + s.Name + "/policyevaluations"
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var list struct{ Evaluations []Evaluation }
	err := Until(ctx, func() (bool, error) {
		err := s.W.Server.Call(ctx, http.MethodGet, path, nil, &list)
		return len(list.Evaluations) > 0 && list.Evaluations[0].Status != "not-started" &&
			list.Evaluations[0].Status != "accepted" && list.Evaluations[0].Status != "running", err
	})
	if e := list.Evaluations; err != nil || e[0].Status != "succeeded" || e[0].Violations == nil || *e[0].Violations != 1 {
		var log struct {
			Lines []struct{ Header, Line string }
		}
		if len(e) > 0 {
			_ = s.W.Server.Call(context.WithoutCancel(ctx), http.MethodGet, path+"/"+e[0].ID+"/logs", nil, &log) // the test has failed already
		}
		t.Fatalf("the evaluations are %+v, %v; the log of the newest: %v", e, err, log.Lines)
	}
}
