package workspacedir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/workspace"
)

// mounted returns a path that leads to a directory even when it is renamed, as in a pod that has mounted it.
func mounted(t *testing.T, path string) string {
	t.Helper()
	dir := must.Get(os.Open(path))(t)
	t.Cleanup(func() { must.OK(t, dir.Close()) })
	return fmt.Sprintf("/proc/self/fd/%d/.", dir.Fd())
}

// agedWorkspace makes a workspace that a job has kept, an hour ago.
func agedWorkspace(t *testing.T, base string) (path string) {
	t.Helper()
	path = must.Get(workspacedir.New(base, noJobs).Make(t.Context(), scope("a")))(t)
	w := must.Get(workspace.Open(t.Context(), path, "key"))(t)
	for i := range files {
		must.OK(t, os.Mkdir(filepath.Join(path, workspace.DirCaches, strconv.Itoa(i)), 0o700))
		must.OK(t, os.WriteFile(filepath.Join(path, workspace.DirPlugins, strconv.Itoa(i)), nil, 0o600))
	}
	must.OK(t, w.Keep(t.Context(), workspace.State{FetchTime: time.Second}))
	w.Close()
	old := time.Now().Add(-time.Hour)
	must.OK(t, os.Chtimes(path, old, old))
	return path
}

// TestLateRunner has a pod mount a workspace before it is removed, and its runner lock the workspace during the
// removal. The runner gets all of the workspace until it ends, an empty one, or none.
func TestLateRunner(t *testing.T) {
	got := map[string]int{}
	for range 20 {
		base := filepath.Join(t.TempDir(), "workspaces")
		name := agedWorkspace(t, base)
		path := mounted(t, name)
		d := workspacedir.New(base, nil)
		var w *workspace.Workspace
		var openErr error
		var both sync.WaitGroup
		both.Go(func() {
			if err := d.RemoveWorkspace(t.Context(), "", scope("a")); err != nil {
				t.Error("removing it:", err)
			}
		})
		both.Go(func() {
			for {
				if _, err := os.Lstat(name); err != nil || t.Context().Err() != nil {
					break // it is renamed
				}
			}
			w, openErr = workspace.Open(t.Context(), path, "key")
		})
		both.Wait()
		if openErr != nil {
			got["none"]++
			continue
		}
		must.OK(t, d.CleanWorkspaces(t.Context())) // that of the next hour, while the job runs
		kind, want := "whole", files
		if w.Found().FetchTime == 0 {
			kind, want = "empty", 0
		}
		got[kind]++
		for _, dir := range []string{workspace.DirCaches, workspace.DirPlugins} {
			if entries, err := os.ReadDir(filepath.Join(path, dir)); err != nil || len(entries) != want {
				t.Errorf("the runner has a workspace that is %s, with %d of %d %s, %v", kind, len(entries), files, dir, err)
			}
		}
		must.OK(t, w.Keep(t.Context(), workspace.State{}))
		w.Close()
		must.OK(t, d.CleanWorkspaces(t.Context()))
		if _, err := os.Stat(filepath.Join(path, protocol.FileWorkspaceState)); !errors.Is(err, os.ErrNotExist) {
			t.Error("the renamed workspace remains after the job:", err)
		}
	}
	t.Log("the runner got", got)
}

// TestHeldAfterRename removes a renamed workspace only after the runner that has locked it meanwhile.
func TestHeldAfterRename(t *testing.T) {
	base := filepath.Join(t.TempDir(), "workspaces")
	path := filepath.Join(base, ".removed-"+scope("a")+"-1")
	must.OK(t, os.Rename(agedWorkspace(t, base), path))
	w := must.Get(workspace.Open(t.Context(), path, "key"))(t)
	d := workspacedir.New(base, nil)
	must.OK(t, d.CleanWorkspaces(t.Context()))
	must.OK(t, w.Keep(t.Context(), workspace.State{}))
	w.Close()
	must.OK(t, unix.Chmod(path, 0)) // as a job can leave it
	must.OK(t, d.CleanWorkspaces(t.Context()))
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("it remains:", err)
	}
}

// TestPlantedWorkspaceLock has a job replace the lock of its workspace. A runner that comes at any point of the
// removal gets no workspace, or keeps it.
func TestPlantedWorkspaceLock(t *testing.T) {
	for name, plant := range map[string]func(lock string) error{
		"pipe":          func(lock string) error { return unix.Mkfifo(lock, 0o600) },
		"symbolic link": func(lock string) error { return os.Symlink("state.json", lock) },
		"directory":     func(lock string) error { return os.MkdirAll(filepath.Join(lock, "sub"), 0o700) },
		"no lock":       func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			for point, more := 1, true; more; point++ {
				base := filepath.Join(t.TempDir(), "workspaces")
				path := filepath.Join(base, ".removed-"+scope("a")+"-1")
				for _, dir := range []string{workspace.DirSource, workspace.DirCaches} {
					must.OK(t, os.MkdirAll(filepath.Join(path, dir), 0o700))
				}
				lock := filepath.Join(path, protocol.FileWorkspaceLock)
				must.OK(t, plant(lock))
				inside := mounted(t, path)
				left := point
				var w *workspace.Workspace
				during := arriving{t.Context(), &left, func() {
					soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					w, _ = workspace.Open(soon, inside, "key") // an error means that it has none
				}}
				must.OK(t, workspacedir.New(base, nil).CleanWorkspaces(during))
				if more = left <= 0; w == nil {
					continue
				}
				if err := w.Check(); err != nil {
					t.Errorf("the workspace of a runner that came at point %d was removed: %v", point, err)
				}
				w.Close()
			}
		})
	}
}

// arriving is a context that calls arrive at its nth use, between two system calls.
type arriving struct {
	context.Context

	left   *int
	arrive func()
}

func (a arriving) Err() error {
	if *a.left--; *a.left == 0 {
		a.arrive()
	}
	return a.Context.Err()
}

// TestRecordGoesFirst interrupts the removal of a workspace that a pod has mounted. Its runner uses nothing of
// what is left.
func TestRecordGoesFirst(t *testing.T) {
	base := filepath.Join(t.TempDir(), "workspaces")
	path := filepath.Join(base, ".removed-"+scope("a")+"-1")
	must.OK(t, os.Rename(agedWorkspace(t, base), path))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := workspacedir.New(base, nil).CleanWorkspaces(over); !errors.Is(err, context.Canceled) {
		t.Error("the interrupted removal:", err)
	}
	w := must.Get(workspace.Open(t.Context(), path, "key"))(t)
	defer w.Close()
	if w.Fresh == "" {
		t.Error("the runner uses the workspace")
	}
}

// TestTimeOfUse sets the time of a workspace into the future, as a job can do to keep it for ever.
func TestTimeOfUse(t *testing.T) {
	base := filepath.Join(t.TempDir(), "workspaces")
	path := agedWorkspace(t, base)
	future := time.Now().Add(100 * 365 * 24 * time.Hour)
	must.OK(t, os.Chtimes(path, future, future))
	if w := find(t, workspacedir.New(base, noJobs), scope("a")); w == nil || w.Used.After(time.Now()) {
		t.Errorf("a job has made a workspace younger than it is: %+v", w)
	}
}
