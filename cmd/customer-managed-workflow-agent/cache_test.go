package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
)

// TestCache lists and removes three workspaces: of a job that exists, of a runner without a job, and an
// idle one.
func TestCache(t *testing.T) {
	state := t.TempDir()
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	t.Setenv("PULUMI_AGENT_STATE_DIRECTORY", state)
	t.Setenv("PULUMI_AGENT_DEPLOY_TARGET", "process")
	run := func(want int, args ...string) string {
		t.Helper()
		out, code, err := execute(t, append([]string{"cache"}, args...)...)
		if code != want {
			t.Fatalf("%q exited with %d: %v\n%s", args, code, err, out)
		}
		return out
	}
	if out := run(program.ExitOK, "ls"); out != "No workspaces.\n" {
		t.Errorf("without workspaces: %s", out)
	}
	if out := run(program.ExitOK, "prune", "--all"); !strings.HasPrefix(out, "Removed 0 workspaces") {
		t.Errorf("without workspaces: %s", out)
	}
	if entries := must.Get(os.ReadDir(state))(t); len(entries) > 0 {
		t.Errorf("the commands created %v", entries)
	}

	base := filepath.Join(state, "workspaces")
	scope := func(digit string) string { return strings.Repeat(digit, 64) }
	hourAgo := time.Now().Add(-time.Hour)
	for _, digit := range []string{"a", "b", "c"} {
		dir := filepath.Join(base, scope(digit))
		must.OK(t, os.MkdirAll(dir, 0o700))
		must.OK(t, os.WriteFile(filepath.Join(dir, protocol.FileWorkspaceLock), make([]byte, 1<<20), 0o600))
		must.OK(t, os.Chtimes(dir, hourAgo, hourAgo))
	}
	record := filepath.Join(base, scope("c")+".json")
	must.OK(t, os.WriteFile(record, []byte(`{"stack":"acme/shop/prod\u001b[31m"}`), 0o600))
	must.OK(t, os.Chtimes(record, hourAgo, hourAgo))
	job := filepath.Join(state, "processes", executor.ObjectName("owner", "job", 1))
	must.OK(t, os.MkdirAll(job, 0o700))
	must.OK(t, os.WriteFile(filepath.Join(job, "meta.json"), []byte(`{"jobID":"job","epoch":1,"workspace":"`+scope("a")+`"}`), 0o600))
	held := must.Get(os.OpenFile(filepath.Join(base, scope("b"), protocol.FileWorkspaceLock), os.O_RDWR, 0))(t)
	defer held.Close()
	must.OK(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))

	text := run(program.ExitOK, "ls")
	for _, want := range []string{"aaaaaaaaaaaa", "bbbbbbbbbbbb", "in use", "acme/shop/prod", "1.0 MiB", "1h00m ago", "idle"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("the list contains control characters")
	}
	if t.Failed() {
		t.Log(text)
	}
	var list []shownWorkspace
	must.OK(t, json.Unmarshal([]byte(run(program.ExitOK, "ls", "--json")), &list))
	for _, w := range list {
		if len(list) != 3 || w.InUse != (w.Workspace != scope("c")) || *w.Bytes < 1<<20 {
			t.Errorf("in JSON: %+v", w)
		}
	}
	if out := run(program.ExitOK, "prune"); !strings.HasPrefix(out, "Removed 0 workspaces (0 B). Kept 3 workspaces") {
		t.Errorf("within the limits: %s", out)
	}
	if out := run(program.ExitOK, "prune", "--all"); !strings.HasPrefix(out, "Removed 1 workspace (1.0 MiB). Kept 2 workspaces") || !strings.Contains(out, "2 in use") {
		t.Errorf("all: %s", out)
	}
	if out := run(program.ExitOK, "ls"); strings.Contains(out, "cccc") || !strings.Contains(out, "aaaa") || !strings.Contains(out, "bbbb") {
		t.Errorf("after the removal: %s", out)
	}

	// Agents that have run own the volumes of an engine.
	t.Setenv("PULUMI_AGENT_DEPLOY_TARGET", "docker")
	t.Setenv("DOCKER_HOST", "unix:///nowhere.sock")
	if out := run(program.ExitOK, "ls", "--json"); out != "[]\n" {
		t.Errorf("without agents: %s", out)
	}
	instance := filepath.Join(state, "instances", "1")
	must.OK(t, os.MkdirAll(instance, 0o700))
	must.OK(t, os.WriteFile(filepath.Join(instance, "id"), []byte("0f4bb1b1-7d9c-4b7e-8d4c-2f6a0b1c9e55\n"), 0o600))
	run(program.ExitFailed, "ls")

	// In a cluster, jobs are unknown.
	t.Setenv("PULUMI_AGENT_DEPLOY_TARGET", "kubernetes")
	run(program.ExitUsage, "ls")
	if out := run(program.ExitOK, "prune", "--all", "--json", "--directory", base); !strings.Contains(out, scope("a")) || strings.Contains(out, scope("b")) {
		t.Errorf("with a directory: %s", out)
	}
}
