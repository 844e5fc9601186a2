package workspacedir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
)

func scope(digit string) string { return strings.Repeat(digit, 64) }

func noJobs() (map[string]bool, error) { return nil, nil }

func find(t *testing.T, d *workspacedir.Dir, scope string) *executor.Workspace {
	t.Helper()
	for _, w := range must.Get(d.Workspaces(t.Context(), ""))(t) {
		if w.Scope == scope {
			return &w
		}
	}
	return nil
}

// listed returns a workspace, unless the parent is unusable.
func listed(t *testing.T, d *workspacedir.Dir, scope string) (w executor.Workspace, ok bool) {
	all, err := d.Workspaces(t.Context(), "")
	if err != nil {
		return w, false
	}
	for _, w := range all {
		if w.Scope == scope {
			return w, true
		}
	}
	return w, false
}

func TestRefusesWhatIsNotItsOwn(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "other")
	must.OK(t, os.Mkdir(secret, 0o700))
	must.OK(t, os.WriteFile(filepath.Join(secret, "kept"), nil, 0o600))
	for name, test := range map[string]struct {
		plant func(t *testing.T, base, path string)
		want  string
	}{
		"link in place of the workspace": {func(t *testing.T, base, path string) {
			must.OK(t, os.Mkdir(base, 0o700))
			must.OK(t, os.Symlink(secret, path))
		}, "is not a directory"},
		"link to another workspace": {func(t *testing.T, base, path string) {
			must.OK(t, os.MkdirAll(filepath.Join(base, scope("b")), 0o700))
			must.OK(t, os.Symlink(scope("b"), path))
		}, "is not a directory"},
		"file in place of the workspace": {func(t *testing.T, base, path string) {
			must.OK(t, os.Mkdir(base, 0o700))
			must.OK(t, os.WriteFile(path, nil, 0o600))
		}, "is not a directory"},
		"pipe in place of the workspace": {func(t *testing.T, base, path string) {
			must.OK(t, os.Mkdir(base, 0o700))
			must.OK(t, unix.Mkfifo(path, 0o600))
		}, "is not a directory"},
		"link in place of the parent": {func(t *testing.T, base, _ string) {
			must.OK(t, os.Symlink(secret, base))
		}, "is not a directory"},
		"parent that others can write to": {func(t *testing.T, base, _ string) {
			must.OK(t, os.Mkdir(base, 0o700))
			must.OK(t, os.Chmod(base, 0o777))
		}, "can be written by other users"},
		"workspace of another user": {func(t *testing.T, _, path string) {
			if os.Getuid() != 0 {
				t.Skip("needs root")
			}
			must.OK(t, os.MkdirAll(path, 0o700))
			must.OK(t, os.Chown(path, 4711, 4711))
		}, "belongs to user 4711"},
	} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), "workspaces")
			test.plant(t, base, filepath.Join(base, scope("a")))
			d := workspacedir.New(base, noJobs)
			if path, err := d.Make(t.Context(), scope("a")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Make: %q, %v, want an error with %q", path, err, test.want)
			}
			if w, ok := listed(t, d, scope("a")); ok && test.want == "is not a directory" && (!w.Used.IsZero() || w.InUse) {
				t.Errorf("what is in its place is %+v, so it remains", w)
			}
			// The operator's prune removes what is in the way, but nothing that it leads to.
			if err := d.RemoveWorkspace(t.Context(), "", scope("a")); err == nil && find(t, d, scope("a")) != nil {
				t.Error("Remove left it in place")
			}
			if _, err := os.Stat(filepath.Join(secret, "kept")); err != nil {
				t.Errorf("Remove followed a link: %v", err)
			}
		})
	}
	d := workspacedir.New(t.TempDir(), noJobs)
	for _, name := range []string{"", ".", "..", "../" + scope("a"), strings.ToUpper(scope("a")), scope("a") + "a", scope("a")[1:]} {
		if path, err := d.Make(t.Context(), name); err == nil {
			t.Errorf("Make accepted the scope %q: %s", name, path)
		}
		if err := d.RemoveWorkspace(t.Context(), "", name); err == nil {
			t.Errorf("Remove accepted the scope %q", name)
		}
	}
}

// TestModeChangedByAJob makes a workspace again whose mode a job has changed.
func TestModeChangedByAJob(t *testing.T) {
	d := workspacedir.New(filepath.Join(t.TempDir(), "workspaces"), noJobs)
	for _, mode := range []os.FileMode{0o777, 0} {
		path := must.Get(d.Make(t.Context(), scope("a")))(t)
		must.OK(t, os.Chmod(path, mode))
		must.Get(d.Make(t.Context(), scope("a")))(t)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("after mode %04o, it is %v, %v", mode, info, err)
		}
	}
}

func TestLocks(t *testing.T) {
	base := filepath.Join(t.TempDir(), "workspaces")
	used := map[string]bool{}
	d := workspacedir.New(base, func() (map[string]bool, error) { return used, nil })
	if all, err := d.Workspaces(t.Context(), ""); len(all) > 0 || err != nil {
		t.Errorf("the workspaces of a missing directory: %v, %v", all, err)
	}
	must.OK(t, d.RemoveWorkspace(t.Context(), "", scope("a")))
	path := must.Get(d.Make(t.Context(), scope("a")))(t)
	must.OK(t, os.WriteFile(filepath.Join(path, "file"), make([]byte, 1<<20), 0o600))
	if w := find(t, d, scope("a")); w == nil || w.InUse || w.Bytes < 1<<20 {
		t.Errorf("an idle workspace: %+v", w)
	}
	held := must.Get(os.Create(filepath.Join(path, protocol.FileWorkspaceLock)))(t)
	defer held.Close()
	must.OK(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	if w := find(t, d, scope("a")); w == nil || !w.InUse {
		t.Errorf("a workspace that a runner holds: %+v", w)
	}
	if err := d.RemoveWorkspace(t.Context(), "", scope("a")); !errors.Is(err, executor.ErrInUse) {
		t.Errorf("removing a workspace that a runner holds: %v", err)
	}
	must.OK(t, unix.Flock(int(held.Fd()), unix.LOCK_UN))
	used[scope("a")] = true
	if err := d.RemoveWorkspace(t.Context(), "", scope("a")); !errors.Is(err, executor.ErrInUse) {
		t.Errorf("removing the workspace of a job that has not locked it yet: %v", err)
	}
	used[scope("a")] = false
	// A job can replace the lock. Opening a pipe waits for a writer.
	must.OK(t, os.Remove(held.Name()))
	must.OK(t, unix.Mkfifo(held.Name(), 0o600))
	must.OK(t, d.RemoveWorkspace(t.Context(), "", scope("a")))
	if w := find(t, d, scope("a")); w != nil {
		t.Errorf("a removed workspace: %+v", w)
	}
	failing := workspacedir.New(base, func() (map[string]bool, error) { return nil, errors.New("unreadable") })
	must.Get(failing.Make(t.Context(), scope("a")))(t)
	if err := failing.RemoveWorkspace(t.Context(), "", scope("a")); err == nil {
		t.Error("a workspace was removed although the jobs that use it are unknown")
	}
}

// TestDeepWorkspace measures a workspace that is nested too deeply.
func TestDeepWorkspace(t *testing.T) {
	d := workspacedir.New(filepath.Join(t.TempDir(), "workspaces"), noJobs)
	path := must.Get(d.Make(t.Context(), scope("a")))(t)
	must.OK(t, os.MkdirAll(filepath.Join(path, strings.Repeat("d/", 150)), 0o700))
	must.Get(d.Make(t.Context(), scope("b")))(t)
	for range 2 { // the second time, the sizes are known
		if a, b := find(t, d, scope("a")), find(t, d, scope("b")); !a.Excessive || b.Excessive {
			t.Errorf("the workspaces are %+v and %+v", a, b)
		}
	}
}

// TestPlantedLock replaces the lock of the directory by a link to another file, which must not change.
func TestPlantedLock(t *testing.T) {
	for name, link := range map[string]func(from, to string) error{"symbolic": os.Symlink, "hard": os.Link} {
		base := filepath.Join(t.TempDir(), "workspaces")
		d := workspacedir.New(base, noJobs)
		must.OK(t, os.Mkdir(base, 0o700))
		other := filepath.Join(filepath.Dir(base), "other")
		must.OK(t, os.WriteFile(other, []byte("kept"), 0o600))
		must.OK(t, link(other, filepath.Join(base, ".lock")))
		if _, err := d.Make(t.Context(), scope("a")); err == nil {
			t.Errorf("%s link: it was used", name)
		}
		if text := must.Get(os.ReadFile(other))(t); string(text) != "kept" {
			t.Errorf("%s link: the other file is now %q", name, text)
		}
	}
}

// TestInterruptedRemoval ends a removal after the workspace was renamed, as when the agent is killed.
func TestInterruptedRemoval(t *testing.T) {
	base := filepath.Join(t.TempDir(), "workspaces")
	d := workspacedir.New(base, noJobs)
	path := must.Get(d.Make(t.Context(), scope("a")))(t)
	must.OK(t, os.WriteFile(filepath.Join(path, "state.json"), []byte("{}"), 0o600))
	over, cancel := context.WithCancel(t.Context())
	left := len(must.Get(os.ReadDir(base))(t))
	interrupted := workspacedir.New(base, func() (map[string]bool, error) {
		cancel() // after the removal has begun
		return nil, nil
	})
	if err := interrupted.RemoveWorkspace(over, "", scope("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted removal: %v", err)
	}
	path = must.Get(d.Make(t.Context(), scope("a")))(t)
	if _, err := os.Stat(filepath.Join(path, "state.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next job finds a part of the removed workspace: %v", err)
	}
	must.OK(t, d.CleanWorkspaces(t.Context()))
	if entries := must.Get(os.ReadDir(base))(t); len(entries) != left {
		t.Errorf("%v remain", entries)
	}
}

// TestConcurrentAgents makes and removes one workspace from several agents of a state directory.
func TestConcurrentAgents(t *testing.T) {
	base := filepath.Join(t.TempDir(), "workspaces")
	var agents sync.WaitGroup
	for range 4 {
		agents.Go(func() {
			d := workspacedir.New(base, noJobs)
			for range 20 {
				_, err := d.Make(t.Context(), scope("a"))
				if err == nil {
					err = d.RemoveWorkspace(t.Context(), "", scope("a"))
				}
				if err != nil && !errors.Is(err, executor.ErrInUse) {
					t.Error(err)
				}
			}
		})
	}
	agents.Wait()
	if all, err := workspacedir.New(base, noJobs).Workspaces(t.Context(), ""); len(all) > 0 || err != nil {
		t.Errorf("%v remain, %v", all, err)
	}
}

// TestUnknownJobs removes a workspace of which only the runner's lock is known.
func TestUnknownJobs(t *testing.T) {
	d := workspacedir.New(filepath.Join(t.TempDir(), "workspaces"), nil)
	path := must.Get(d.Make(t.Context(), scope("a")))(t)
	if w := find(t, d, scope("a")); w == nil || !w.InUse {
		t.Errorf("a workspace that a runner may be about to lock: %+v", w)
	}
	if err := d.RemoveWorkspace(t.Context(), "", scope("a")); !errors.Is(err, executor.ErrInUse) {
		t.Errorf("removing it: %v", err)
	}
	old := time.Now().Add(-time.Hour)
	must.OK(t, os.Chtimes(path, old, old))
	if w := find(t, d, scope("a")); w == nil || w.InUse {
		t.Errorf("an idle workspace: %+v", w)
	}
	must.OK(t, d.RemoveWorkspace(t.Context(), "", scope("a")))
}
