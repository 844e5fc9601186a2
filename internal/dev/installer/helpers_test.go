package installer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// full asks for every case of the long tests.
var full = os.Getenv("WORKFLOW_E2E_FULL") != ""

// dash returns the shell for tests that need not run in every one.
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

// noSleep makes a directory with a sleep that is over at once.
func noSleep(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "sleep"), []byte("#!/bin/sh\n"), 0o755)
	return dir
}

// link makes a link to a program of this machine.
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

// runScript runs a piece of install.sh.
func runScript(t *testing.T, sh shell, script string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sh[0], append(sh[1:len(sh):len(sh)], "-c", script)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// ignoreExit takes the end of a process that was killed for none.
func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}
