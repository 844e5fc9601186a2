package installer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

// full reports whether the long tests run all of their cases.
var full = os.Getenv("WORKFLOW_E2E_FULL") != ""

// dash returns the shell for tests that run in only one shell.
func dash(t *testing.T) shell {
	t.Helper()
	for _, name := range []string{"dash", "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			return shell{path}
		}
	}
	t.Skip("no shell")
	return nil
}

// agent returns the real agent, to which the archives' programs delegate "install". The agent is
// built once, unless WORKFLOW_BIN names a directory with the product's programs.
func agent(t *testing.T) string {
	t.Helper()
	path := must.Get(buildAgent())(t)
	return path
}

var buildAgent = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("WORKFLOW_BIN"); bin != "" {
		return filepath.Join(bin, release.Program), nil
	}
	path := filepath.Join(built, release.Program)
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "workflowagent/cmd/"+release.Program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the agent: %w\n%s", err, out)
	}
	return path, nil
})

var built string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "installer-test-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(built) }()
		return m.Run()
	}())
}

// noSleep returns a new directory with a sleep program that exits at once.
func noSleep(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "sleep"), []byte("#!/bin/sh\n"), 0o755)
	return dir
}

func link(t *testing.T, program, at string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(err)
	}
	must.OK(t, os.Symlink(path, at))
}

func runScript(t *testing.T, sh shell, script string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sh[0], append(sh[1:len(sh):len(sh)], "-c", script)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// ignoreExit returns nil for a process's exit error, and any other error unchanged.
func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}
