package runner_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// opensForSettings returns a job whose settings name environments. The server answers the n-th request to open them with
// the n-th answer, or with 503 if that is nil.
func opensForSettings(t *testing.T, answers []*protocol.JobEnvironments, commands ...string) *harness {
	t.Helper()
	definition := deployment(shellSteps(commands...), workflow.OperationUpdate)
	definition.Steps = slices.Insert(definition.Steps, 1, workflow.Step{Name: workflow.EnvironmentsStepName, Run: workflow.RunEnvironments})
	h := newHarness(t, definition)
	d := h.launch.Definition.Deployment
	d.Environments, d.OpensEnvironments = []string{"app/base", "app/prod@stable"}, true
	asked := 0
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/opened-secrets"):
			_ = json.NewEncoder(w).Encode(protocol.OpenedSecrets{Count: 1, Secrets: []string{"used-by-the-evaluator"}})
		case strings.HasSuffix(r.URL.Path, "/environments") && r.Method == http.MethodPost:
			answer := answers[min(asked, len(answers)-1)]
			if asked++; answer == nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			} else {
				_ = json.NewEncoder(w).Encode(answer)
			}
		default:
			return false
		}
		return true
	})
	return h
}

// TestEnvironmentsOfSettings gives the variables and files of environments to the commands, masked, after a failed request.
func TestEnvironmentsOfSettings(t *testing.T) {
	const secret, file = "planted-in-an-environment", "line one of a key\nline two of a key\n"
	h := opensForSettings(t, []*protocol.JobEnvironments{nil, {
		Opened: []string{"app/base, revision 2", "app/prod, revision 7"},
		Variables: []protocol.JobEnvironment{
			{Name: "REGION", Value: "eu-west"},
			{Name: "PASSWORD", Value: secret, Secret: true},
			{Name: "MINE", Value: "theirs"},
			{Name: "PULUMI_CI_STACK", Value: "other"},
			{Name: "LD_PRELOAD", Value: "x.so"},
			{Name: "A=B", Value: "x"},
			{Name: "PIN", Value: "123", Secret: true},
		},
		Files: []protocol.JobEnvironment{{Name: "KEY_FILE", Value: file, Secret: true}},
	}}, `echo "$REGION $PASSWORD $MINE $PULUMI_CI_STACK [$LD_PRELOAD]"; cat "$KEY_FILE"; stat -c %a "$KEY_FILE"; echo "$KEY_FILE" > "$NOTED"`, "echo again $PASSWORD; exit 3")
	h.launch.Definition.Env["MINE"] = "own"
	noted := filepath.Join(t.TempDir(), "noted")
	h.environ = append(h.environ, "NOTED="+noted)
	if code, _ := h.run(); code != 3 {
		t.Fatalf("exit code %d: %s", code, h.text(1))
	}
	log := h.text(1)
	for _, want := range []string{
		"Opening app/base, app/prod@stable", "warning: trying again for up to 5m0s", "Opened app/prod, revision 7", "The following steps get REGION, PASSWORD, ",
		"KEY_FILE (a file)", "warning: cannot mask the value of PIN", "warning: ignoring the variable \"A=B\" of the environments",
		"warning: ignoring the variable LD_PRELOAD of the environments, which is reserved", "replace these variables of the environments: MINE, PULUMI_CI_STACK",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the step's log lacks %q:\n%s", want, log)
		}
	}
	h.wantLog(2, "eu-west [secret] own dev []", "[secret]", "[secret]", "600")
	h.wantLog(3, "again [secret]")
	if all := log + h.text(2) + h.text(3) + h.log.String(); strings.Contains(all, secret) || strings.Contains(all, "of a key") {
		t.Errorf("a secret is in\n%s", all)
	}
	path, err := os.ReadFile(noted)
	if err != nil || !strings.HasPrefix(string(path), "/") {
		t.Fatalf("the path of the file is %q, %v", path, err)
	}
	if _, err := os.Stat(strings.TrimSpace(string(path))); !os.IsNotExist(err) {
		t.Errorf("the file remains after the job: %v", err)
	}
}

// TestEnvironmentsOfSettingsRefused ends the job before its commands, with the server's reason.
func TestEnvironmentsOfSettingsRefused(t *testing.T) {
	h := opensForSettings(t, []*protocol.JobEnvironments{{Problem: "environment 'acme/app/prod' does not exist, it is used-by-the-evaluator"}}, "echo not reached")
	h.launch.Definition.Deployment.PostRunCommands = []workflow.PostRunCommand{{Command: "echo nor this"}}
	if code, _ := h.run(); code != 1 {
		t.Fatalf("exit code %d", code)
	}
	if got := h.text(1); !strings.Contains(got, "error: opening the environments of the deployment settings: environment 'acme/app/prod' does not exist, it is [secret]") {
		t.Errorf("the log is %q", got)
	}
	if got := h.text(2) + h.text(3); got != "" {
		t.Errorf("a command has run: %q", got)
	}
	result := h.oneResult()
	if result.Status != workflow.StatusFailed || result.Reason != workflow.ReasonExitCode || strings.Contains(result.Message, "used-by-the-evaluator") {
		t.Errorf("the result is %+v", result)
	}
}
