package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
)

// TestClientsKilledFreeTheirStack kills a pulumi process during an update. Once the update's lease
// has expired, the next update must be able to start.
func TestClientsKilledFreeTheirStack(t *testing.T) {
	bin, tools := harness.Programs(t)
	w, err := harness.NewSite(t.Context(), bin, tools, t.TempDir(), "", "--update-lease", "5s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	dir := t.TempDir()
	program := "name: killed\nruntime: yaml\nresources:\n  wait:\n    type: lab:Sleep\n    properties:\n" +
		"      seconds: 120\n      started: " + filepath.Join(dir, "started") + "\n      until: " + filepath.Join(dir, "end") + "\n"
	harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(program), 0o600)
	pulumi := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), tools.Pulumi(), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), tools.Env(w.Home, w.Server.URL, w.Server.Token)...)
		return cmd
	}
	if out, err := pulumi("stack", "init", "dev").CombinedOutput(); err != nil {
		t.Fatalf("stack init: %v\n%s", err, out)
	}
	up := []string{"up", "--yes", "--skip-preview", "--non-interactive"}
	victim := pulumi(up...)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := harness.Until(ctx, func() (bool, error) {
		_, err := os.Stat(filepath.Join(dir, "started"))
		return err == nil, nil
	}); err != nil {
		t.Fatalf("waiting for the update to begin: %v", err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	harness.Write(t, filepath.Join(dir, "end"), nil, 0o600)
	conflicts := 0
	var out []byte
	if err := harness.Until(ctx, func() (bool, error) {
		var err error
		if out, err = pulumi(up...).CombinedOutput(); err != nil && strings.Contains(string(out), "Another update is currently in progress") {
			conflicts++
			return false, nil
		}
		return true, err
	}); err != nil {
		t.Fatalf("the next update: %v\n%s", err, out)
	}
	if conflicts == 0 {
		t.Error("the lease of the killed client never held the stack")
	}
	history, err := pulumi("stack", "history").CombinedOutput()
	if err != nil || !strings.Contains(string(history), "Status: failed") || !strings.Contains(string(history), "Status: succeeded") {
		t.Errorf("history: %v\n%s", err, history)
	}
}
