package faults

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// command runs a command of the server's program on its data directory.
func (a *arena) command(args ...string) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), filepath.Join(a.Bin, "workflow-server"), append(args, "--data-dir", a.Server.DataDir)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		a.t.Fatalf("workflow-server %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (a *arena) backups() string { return filepath.Join(a.Dir, "backups") }

func (a *arena) backUp() { a.t.Helper(); a.command("backup", a.backups()) }

// loseServer kills the server, removes its data except for the master key and the token, which operators keep elsewhere,
// and starts a server with the restored backup.
func (a *arena) loseServer() {
	a.t.Helper()
	a.killServer()
	kept := map[string][]byte{}
	for _, name := range []string{"master-key", "admin-token"} {
		kept[name] = must.Get(os.ReadFile(filepath.Join(a.Server.DataDir, name)))(a.t)
	}
	keep := func(name string) {
		a.t.Helper()
		must.OK(a.t, os.WriteFile(filepath.Join(a.Server.DataDir, name), kept[name], 0o600))
	}
	must.OK(a.t, os.RemoveAll(a.Server.DataDir))
	must.OK(a.t, os.Mkdir(a.Server.DataDir, 0o700))
	keep("master-key")
	a.command("restore", a.backups())
	keep("admin-token")
	must.OK(a.t, a.RestartServer(a.t.Context()))
}

// inPulumi lets the job continue until its pulumi runs, which ends when the returned function is called.
func (a *arena) inPulumi() (end func()) {
	a.t.Helper()
	a.resume()
	a.marked(patience, "pulumi")
	return func() {
		a.t.Helper()
		must.OK(a.t, os.Remove(a.busy()))
	}
}

// newBusyArena returns an arena whose pulumi runs until the test lets it end.
func newBusyArena(t *testing.T, want outcome) *arena {
	t.Helper()
	a := newArena(t, faultRow{phase: inRunning, fault: "the server is restored from a backup", want: want}, processes)
	must.OK(t, os.WriteFile(a.busy(), nil, 0o600))
	return a
}

// TestRestoredWhileJobsRun loses the server while a job's pulumi runs, and restores it from an earlier backup. No job is
// stopped or run again. A job that the backup knows ends truthfully, with its whole log.
func TestRestoredWhileJobsRun(t *testing.T) {
	t.Run("running in the backup", func(t *testing.T) {
		t.Parallel()
		a := newBusyArena(t, kept)
		a.running()
		a.backUp()
		end := a.inPulumi()
		a.loseServer()
		a.status(patience, "running")
		end()
		a.check()
	})
	t.Run("claimed in the backup", func(t *testing.T) {
		t.Parallel()
		a := newBusyArena(t, kept)
		held := pins[inClaimed](a.proxy)
		a.enqueue()
		held.await(t)
		a.backUp()
		held.lift()
		end := a.inPulumi()
		a.loseServer()
		a.status(patience, "running")
		end()
		a.check()
	})
	t.Run("queued in the backup", func(t *testing.T) {
		t.Parallel()
		a := newBusyArena(t, outcome{})
		queue := func(action string) {
			t.Helper()
			must.OK(t, a.Server.Call(t.Context(), http.MethodPost, a.stack.Path(action), nil, nil))
		}
		queue("pause")
		a.enqueue()
		a.backUp()
		queue("resume")
		end := a.inPulumi()
		runner := a.runner()
		defer a.killRunner(runner) // it reports its result for a day
		a.loseServer()
		if d := a.status(patience, "skipped"); d.Reason != "cancelled" || !strings.Contains(d.Message, "may have run since") {
			t.Errorf("the deployment is %+v", d)
		}
		a.command("restore", "release", "--all")
		queue("resume")
		end()
		a.eventually(patience, "the agent keeps the log", func() (bool, error) { return a.keepsLog() })
		if marks := a.place.marks(a); marks["job"] != 1 || marks["pulumi"] != 1 {
			t.Errorf("the job left the marks %v", marks)
		}
		if d := a.status(patience, "skipped"); d.Reason != "cancelled" {
			t.Errorf("the deployment is %+v", d)
		}
	})
}

// keepsLog reports whether a file of the agent has all lines of the job, and the last line of its runner.
func (a *arena) keepsLog() (bool, error) {
	found := false
	err := filepath.WalkDir(a.Last.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		all := true
		for n := 1; n <= a.row.job.lines && all; n++ {
			all = strings.Contains(string(data), fmt.Sprintf("line-%d\n", n))
		}
		found = found || all
		return nil
	})
	return found, err
}
