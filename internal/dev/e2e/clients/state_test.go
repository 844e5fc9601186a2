package clients

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// TestClientsKilledFreeTheirStack kills a pulumi process during an update. The update's lease, which
// the CLI renews only after minutes, still holds the stack. Once it has expired, the next update must
// be able to start.
func TestClientsKilledFreeTheirStack(t *testing.T) {
	t.Parallel()
	bin, tools := harness.Programs(t)
	w := must.Get(harness.NewSite(t.Context(), bin, tools, t.TempDir(), "", "--update-lease", "40s"))(t)
	t.Cleanup(w.Close)
	dir := t.TempDir()
	program := func(resources string) {
		t.Helper()
		harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte("name: killed\nruntime: yaml\nresources:\n"+resources), 0o600)
	}
	pulumi := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), tools.Pulumi(), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), tools.Env(w.Home, w.Server.URL, w.Server.Token)...)
		return cmd
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience)
	defer cancel()
	held := func() (bool, error) {
		var stack struct {
			CurrentOperation *struct{} `json:"currentOperation"`
		}
		err := w.Server.Call(ctx, http.MethodGet, "/api/stacks/"+w.Server.Organization+"/killed/dev", nil, &stack)
		return stack.CurrentOperation != nil, err
	}
	program("  wait: {type: lab:Sleep, properties: {seconds: 120}}\n")
	if out, err := pulumi("stack", "init", "dev").CombinedOutput(); err != nil {
		t.Fatalf("stack init: %v\n%s", err, out)
	}
	up := []string{"up", "--yes", "--skip-preview", "--non-interactive"}
	victim := pulumi(up...)
	must.OK(t, victim.Start())
	err := harness.Until(ctx, held)
	_ = victim.Process.Kill()
	_ = victim.Wait() // it was killed
	if err != nil {
		t.Fatalf("waiting for the update to begin: %v", err)
	}
	if still, err := held(); err != nil || !still {
		t.Errorf("the lease of the killed client does not hold the stack: %v", err)
	}
	program("  {}\n") // its update is shorter than the lease, also on a slow machine
	var out []byte
	if err := child.Poll(ctx, 5*time.Second, func() (bool, error) {
		var err error
		if out, err = pulumi(up...).CombinedOutput(); err != nil && strings.Contains(string(out), "Another update is currently in progress") {
			return false, nil
		}
		return true, err
	}); err != nil {
		t.Fatalf("the next update: %v\n%s", err, out)
	}
	history, err := pulumi("stack", "history").CombinedOutput()
	if err != nil || !strings.Contains(string(history), "Status: failed") || !strings.Contains(string(history), "Status: succeeded") {
		t.Errorf("history: %v\n%s", err, history)
	}
}
