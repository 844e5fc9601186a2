package runner_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/workflow"
)

// opensEnvironment returns a job whose commands open an environment when they create the file $OPENED. The first refusals
// questions of the runner fail.
func opensEnvironment(t *testing.T, secret string, refusals int64, commands ...string) (h *harness, asked *atomic.Int64) {
	t.Helper()
	h, asked = newHarness(t, deployment(shellSteps(commands...), workflow.OperationUpdate)), new(atomic.Int64)
	h.launch.Definition.Deployment.OpensEnvironments = true
	opened := filepath.Join(t.TempDir(), "opened")
	h.environ = append(h.environ, "OPENED="+opened)
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/opened-secrets") {
			return false
		}
		if asked.Add(1) <= refusals {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		var answer protocol.OpenedSecrets
		if _, err := os.Stat(opened); err == nil {
			answer.Count = 1
			if r.URL.Query().Get("known") == "0" {
				answer.Secrets = []string{secret}
			}
		}
		_ = json.NewEncoder(w).Encode(answer)
		return true
	})
	return h, asked
}

// TestOpenedSecretsAreMasked has commands print a secret right after they have opened it, also when the server does not
// answer the runner at first.
func TestOpenedSecretsAreMasked(t *testing.T) {
	const secret = "opened-by-the-job-71c0"
	for name, refusals := range map[string]int64{"at once": 0, "after failures": 3} {
		t.Run(name, func(t *testing.T) {
			h, asked := opensEnvironment(t, secret, refusals, "echo begin", "echo open; touch $OPENED; echo it is "+secret, "echo again "+secret+"; exit 3")
			if code, _ := h.run(); code != 3 {
				t.Fatalf("exit code %d", code)
			}
			h.wantLog(1, "begin")
			h.wantLog(2, "open", "it is [secret]")
			h.wantLog(3, "again [secret]")
			if all := h.text(1) + h.text(2) + h.text(3) + h.log.String() + h.oneResult().Message; strings.Contains(all, secret) {
				t.Errorf("the secret is in\n%s", all)
			}
			if asked.Load() <= refusals {
				t.Errorf("the runner asked %d times", asked.Load())
			}
		})
	}
}

// TestOpenedSecretsTooLarge withholds the output if what the job has opened cannot be masked.
func TestOpenedSecretsTooLarge(t *testing.T) {
	secret := strings.Repeat("0123456789abcdef", 2*redact.MaxJobBytes/16+1)
	h, _ := opensEnvironment(t, secret, 0, "touch $OPENED; echo it begins with 0123456789; exit 1")
	if code, _ := h.run(); code != 1 {
		t.Fatalf("exit code %d", code)
	}
	if got := h.text(1); strings.Contains(got, "it begins") || !strings.Contains(got, "error: the output that follows is withheld") {
		t.Errorf("the log is %q", got)
	}
}
