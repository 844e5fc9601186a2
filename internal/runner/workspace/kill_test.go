package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/runner/workspace"
)

// Variables of the child process that [TestKilled] kills.
const (
	envDir  = "WORKSPACE_TEST_DIR"
	envStep = "WORKSPACE_TEST_STEP"
	envKey  = "WORKSPACE_TEST_KEY"
)

const cached = 1 // directories

func TestMain(m *testing.M) {
	dir := os.Getenv(envDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	left, err := strconv.Atoi(os.Getenv(envStep))
	if err == nil {
		err = useOnce(dying{context.Background(), &left}, dir, os.Getenv(envKey))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dying is a context that kills this process at its nth use, between two system calls.
type dying struct {
	context.Context

	left *int
}

func (d dying) Err() error {
	if *d.left--; *d.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return d.Context.Err()
}

// useOnce takes a workspace, fills it, leaves something that does not stay, and gives the workspace back.
func useOnce(ctx context.Context, dir, key string) error {
	w, err := workspace.Open(ctx, dir, key)
	if err != nil {
		return err
	}
	defer w.Close()
	for i := range cached {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, workspace.DirCaches, "tool", strconv.Itoa(i)), 0o700))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600))
	return errors.Join(err, w.Keep(ctx, workspace.State{FetchTime: time.Second}))
}

// TestKilled kills a runner at each point at which it takes, cleans and gives back a workspace. The next runner finds
// all of the content, or none.
func TestKilled(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"new":       func(string) error { return nil },
		"whole":     func(dir string) error { return useOnce(context.Background(), dir, key) },
		"other key": func(dir string) error { return useOnce(context.Background(), dir, "other") },
		"after a killed job": func(dir string) error {
			return errors.Join(useOnce(context.Background(), dir, key), os.Remove(filepath.Join(dir, "state.json")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for step, killed := 1, true; killed; step++ {
				dir := t.TempDir()
				must.OK(t, prepare(dir))
				child := exec.CommandContext(t.Context(), os.Args[0])
				child.Env = append(os.Environ(), envDir+"="+dir, envStep+"="+strconv.Itoa(step), envKey+"="+key)
				child.Stderr = t.Output()
				err := child.Run()
				if killed = err != nil; killed && err.Error() != "signal: killed" {
					t.Fatal(err)
				}
				w := must.Get(workspace.Open(t.Context(), dir, key))(t)
				whole := w.Found().FetchTime != 0
				if whole == killed || whole && w.Fresh != "" {
					t.Errorf("killed at point %d, %t: the next runner finds %+v, fresh because of %q", step, killed, w.Found(), w.Fresh)
				}
				want := 0
				if whole {
					want = cached
				}
				entries, err := os.ReadDir(filepath.Join(dir, workspace.DirCaches, "tool"))
				if len(entries) != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("killed at point %d: %d of %d directories, %v", step, len(entries), cached, err)
				}
				must.OK(t, w.Keep(t.Context(), workspace.State{}))
				w.Close()
			}
		})
	}
}
