package installer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"workflowagent/internal/host/release"
)

// full runs every case of the long tests.
var full = os.Getenv("WORKFLOW_E2E_FULL") != ""

// dash returns the shell for tests that run in one shell only.
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

// agent builds the real agent once: the archives' programs delegate "install" to it.
func agent(t *testing.T) string {
	t.Helper()
	path, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var buildAgent = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, release.Program)
	out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "workflowagent/cmd/"+release.Program).CombinedOutput()
	if err != nil {
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

// noSleep makes a directory with a sleep that returns at once.
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
	if err := os.Symlink(path, at); err != nil {
		t.Fatal(err)
	}
}

func runScript(t *testing.T, sh shell, script string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sh[0], append(sh[1:len(sh):len(sh)], "-c", script)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// ignoreExit ignores the exit error of a killed process.
func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}
