package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestClientsOlderCLI updates a stack with an older CLI, in turn with the newest one. Only `make e2e` builds
// the older one; state_older.txtar has the calls that it makes.
func TestClientsOlderCLI(t *testing.T) {
	if !harness.FullScale {
		t.Skip("building an older CLI takes minutes: make e2e does it")
	}
	old := must.Get(lab.OldPulumi(t.Context(), os.Stderr))(t)
	w := harness.StartSite(t, "")
	dir := t.TempDir()
	run := func(pulumi, want string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), pulumi, append(args, "--non-interactive")...)
		cmd.Dir, cmd.Env = dir, w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%s %s: %v, want %q\n%s", pulumi, strings.Join(args, " "), err, want, out)
		}
	}
	program := func(content string) {
		t.Helper()
		text := "name: older\nruntime: yaml\nresources:\n  file: {type: lab:File, properties: {path: ./file, content: " + content + "}}\n"
		harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(text), 0o600)
	}
	program("one")
	run(old, lab.OldPulumiVersion, "version")
	run(old, "", "stack", "init", "dev")
	run(old, "to create", "preview")
	run(old, "2 created", "up", "--yes", "--skip-preview")
	program("two")
	run(w.Tools.Pulumi(), "1 updated", "up", "--yes", "--skip-preview")
	program("three")
	run(old, "1 updated", "up", "--yes", "--skip-preview")
	run(old, "2 unchanged", "refresh", "--yes", "--skip-preview")
	run(w.Tools.Pulumi(), "2 unchanged", "preview")
	run(old, "2 deleted", "destroy", "--yes", "--skip-preview")
}
