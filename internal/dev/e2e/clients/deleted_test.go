package clients

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestClientsRestoreDeletedStack deletes a stack with the stock CLI, although it has resources, and restores it.
func TestClientsRestoreDeletedStack(t *testing.T) {
	w := harness.StartSite(t, "")
	dir := t.TempDir()
	harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(secretProgram(3)), 0o600)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), w.Tools.Pulumi(), append(args, "--non-interactive")...)
		cmd.Dir = dir
		cmd.Env = w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	pulumi := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatalf("pulumi %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	pulumi("stack", "init", "dev")
	pulumi("config", "set", "--secret", "word", "open sesame")
	pulumi("stack", "tag", "set", "color", "red")
	pulumi("up", "--yes", "--skip-preview")
	config := harness.Read(t, filepath.Join(dir, "Pulumi.dev.yaml"))

	pulumi("stack", "rm", "dev", "--force", "--yes")
	if out, err := run("stack", "select", "dev"); err == nil || !strings.Contains(out, "no stack named 'dev' found") {
		t.Errorf("the deleted stack is found: %v\n%s", err, out)
	}
	deleted := "/api/orgs/" + w.Server.Organization + "/restore-stack"
	var list struct {
		DeletedStacks []struct{ ProgramID, StackName string }
	}
	must.OK(t, w.Server.Call(t.Context(), http.MethodGet, deleted, nil, &list))
	if len(list.DeletedStacks) != 1 {
		t.Fatalf("the deleted stacks are %+v", list)
	}
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, deleted+"/"+list.DeletedStacks[0].ProgramID, map[string]string{"stackName": "dev"}, nil))

	harness.Write(t, filepath.Join(dir, "Pulumi.dev.yaml"), config, 0o600) // the CLI has removed it
	pulumi("stack", "select", "dev")
	if out := pulumi("stack", "history"); strings.Count(out, "Status: succeeded") != 1 {
		t.Errorf("the history is\n%s", out)
	}
	if out := pulumi("config", "get", "word"); strings.TrimSpace(out) != "open sesame" {
		t.Errorf("the secret is %q", out)
	}
	if out := pulumi("stack", "tag", "get", "color"); strings.TrimSpace(out) != "red" {
		t.Errorf("the tag is %q", out)
	}
	secretsOf(t, []byte(pulumi("stack", "export", "--show-secrets")), 3)
	if out := pulumi("up", "--yes", "--skip-preview", "--expect-no-changes"); !strings.Contains(out, "unchanged") {
		t.Errorf("the next update:\n%s", out)
	}
	pulumi("destroy", "--yes", "--skip-preview")
	pulumi("stack", "rm", "dev", "--yes")
}
