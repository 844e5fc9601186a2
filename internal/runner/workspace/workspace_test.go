package workspace_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/runner/workspace"
	"workflowagent/internal/sys/filelock"
)

const key = "0123456789abcdef"

// whole returns a workspace that a job has given back, with a file in its caches, and a directory outside
// that no job of the workspace may change.
func whole(t *testing.T) (dir, outside string) {
	t.Helper()
	dir, outside = filepath.Join(t.TempDir(), "ws"), t.TempDir()
	must.OK(t, os.Mkdir(dir, 0o700))
	must.OK(t, os.WriteFile(filepath.Join(outside, "file"), []byte("kept"), 0o600))
	w := must.Get(workspace.Open(t.Context(), dir, key))(t)
	defer w.Close()
	if w.Fresh != "" {
		t.Errorf("a new workspace starts afresh: %s", w.Fresh)
	}
	must.OK(t, os.Mkdir(filepath.Join(dir, "caches", "tool"), 0o700))
	must.OK(t, os.WriteFile(filepath.Join(dir, "caches", "tool", "file"), nil, 0o600))
	must.OK(t, w.Keep(t.Context(), workspace.State{FetchTime: 7}))
	return dir, outside
}

func kept(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "caches", "tool", "file"))
	return err == nil
}

func TestReuse(t *testing.T) {
	dir, _ := whole(t)
	w := must.Get(workspace.Open(t.Context(), dir, key))(t)
	if w.Fresh != "" || w.Found().FetchTime != 7 || !kept(dir) {
		t.Errorf("fresh because of %q, found %+v", w.Fresh, w.Found())
	}
	if _, err := os.Lstat(filepath.Join(dir, "state.json")); !os.IsNotExist(err) {
		t.Errorf("the record remains while a job uses the workspace: %v", err)
	}
	w.Close() // as if the runner had been killed
	w = must.Get(workspace.Open(t.Context(), dir, key))(t)
	defer w.Close()
	if !strings.Contains(w.Fresh, "did not end in order") || kept(dir) {
		t.Errorf("after a killed job: fresh because of %q", w.Fresh)
	}
}

// TestDamaged opens workspaces that a job, a disk or another user has damaged. Each is deleted, or not used,
// and nothing outside changes.
func TestDamaged(t *testing.T) {
	state := func(dir string) string { return filepath.Join(dir, "state.json") }
	replace := func(path string, make func(path string) error) error {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return make(path)
	}
	fifo := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	for name, damage := range map[string]func(dir, outside string) error{
		"no record":        func(dir, _ string) error { return os.Remove(state(dir)) },
		"empty record":     func(dir, _ string) error { return os.Truncate(state(dir), 0) },
		"truncated record": func(dir, _ string) error { return os.Truncate(state(dir), 20) },
		"garbage":          func(dir, _ string) error { return os.WriteFile(state(dir), []byte("\x00\xff{"), 0o600) },
		"sparse record":    func(dir, _ string) error { return os.Truncate(state(dir), 1<<40) },
		"record is a link": func(dir, outside string) error {
			moved := filepath.Join(outside, "state")
			if err := os.Rename(state(dir), moved); err != nil {
				return err
			}
			return os.Symlink(moved, state(dir))
		},
		"record is a pipe":      func(dir, _ string) error { return replace(state(dir), fifo) },
		"record is a directory": func(dir, _ string) error { return replace(state(dir), func(p string) error { return os.Mkdir(p, 0) }) },
		"lock is a pipe":        func(dir, _ string) error { return replace(filepath.Join(dir, "lock"), fifo) },
		"lock is a link": func(dir, outside string) error {
			return replace(filepath.Join(dir, "lock"), func(p string) error { return os.Symlink(filepath.Join(outside, "file"), p) })
		},
		"caches are a link": func(dir, outside string) error {
			return replace(filepath.Join(dir, "caches"), func(p string) error { return os.Symlink(outside, p) })
		},
		"source is a file": func(dir, _ string) error {
			return replace(filepath.Join(dir, "source"), func(p string) error { return os.WriteFile(p, nil, 0o600) })
		},
		"record of another user": func(dir, _ string) error {
			if os.Geteuid() != 0 {
				return os.Remove(state(dir)) // only root can give a file away
			}
			return os.Chown(state(dir), 1, 1)
		},
		"plugins are gone": func(dir, _ string) error { return os.Remove(filepath.Join(dir, "plugins")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, outside := whole(t)
			must.OK(t, os.Symlink(outside, filepath.Join(dir, "source", "link")))
			must.OK(t, os.Mkdir(filepath.Join(dir, "source", "closed"), 0))
			must.OK(t, syscall.Mkfifo(filepath.Join(dir, "source", "pipe"), 0o600))
			must.OK(t, damage(dir, outside))
			w := must.Get(workspace.Open(t.Context(), dir, key))(t)
			defer w.Close()
			if !strings.HasPrefix(name, "lock") && (w.Fresh == "" || kept(dir)) {
				t.Errorf("the content was used; fresh because of %q", w.Fresh)
			}
			must.OK(t, w.Keep(t.Context(), workspace.State{}))
			if text, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(text) != "kept" {
				t.Errorf("the file outside: %q, %v", text, err)
			}
		})
	}
}

// TestDeletedBeside opens a workspace that is not whole. The job waits for no deletion, but keeps the workspace
// only after it.
func TestDeletedBeside(t *testing.T) {
	dir, _ := whole(t)
	for _, name := range []string{"lock", "state.json"} { // a job can replace these by directories of any size
		must.OK(t, os.RemoveAll(filepath.Join(dir, name)))
		must.OK(t, os.MkdirAll(filepath.Join(dir, name, "large"), 0o700))
	}
	noTime, cancel := context.WithCancel(t.Context())
	cancel()
	w, err := workspace.Open(noTime, dir, key)
	if err != nil {
		t.Fatalf("the workspace was not opened without a deletion: %v", err)
	}
	defer w.Close()
	if w.Fresh == "" || kept(dir) {
		t.Errorf("the content was used; fresh because of %q", w.Fresh)
	}
	must.OK(t, w.Keep(t.Context(), workspace.State{}))
	for _, entry := range must.Get(os.ReadDir(dir))(t) {
		if !slices.Contains([]string{"lock", "state.json", "source", "git", "caches", "plugins"}, entry.Name()) {
			t.Errorf("%s stays", entry.Name())
		}
	}
}

func TestOtherKey(t *testing.T) {
	dir, _ := whole(t)
	w := must.Get(workspace.Open(t.Context(), dir, "other"))(t)
	if !strings.Contains(w.Fresh, "changed since") || kept(dir) {
		t.Errorf("fresh because of %q", w.Fresh)
	}
	w.Close()
	w = must.Get(workspace.Open(t.Context(), dir, key))(t) // even the right key finds nothing now
	defer w.Close()
	if kept(dir) || w.Found().FetchTime != 0 {
		t.Errorf("found %+v", w.Found())
	}
}

// TestNotUsed checks what makes a job do without a workspace.
func TestNotUsed(t *testing.T) {
	dir, outside := whole(t)
	link := filepath.Join(outside, "link")
	must.OK(t, os.Symlink(dir, link))
	if _, err := workspace.Open(t.Context(), link, key); err == nil || !kept(dir) {
		t.Errorf("a link was followed: %v", err)
	}
	if _, err := workspace.Open(t.Context(), filepath.Join(outside, "file"), key); err == nil {
		t.Error("a file was opened")
	}
	lock := must.Get(filelock.Wait(t.Context(), filepath.Join(dir, "lock")))(t)
	defer lock.Release()
	if _, err := workspace.Open(t.Context(), dir, key); err == nil || !strings.Contains(err.Error(), "another job") || !kept(dir) {
		t.Errorf("a workspace in use: %v", err)
	}
}

// TestReplaced has a job replace the runner's files while it runs. Its workspace is not recorded as whole.
func TestReplaced(t *testing.T) {
	for _, name := range []string{"lock", "source", "caches", "git", "plugins", "."} {
		t.Run(name, func(t *testing.T) {
			dir, outside := whole(t)
			w := must.Get(workspace.Open(t.Context(), dir, key))(t)
			defer w.Close()
			path := filepath.Join(dir, name)
			must.OK(t, os.Rename(path, filepath.Join(outside, "moved")))
			if name == "lock" {
				must.OK(t, os.WriteFile(path, nil, 0o600))
			} else {
				must.OK(t, os.Mkdir(path, 0o700))
			}
			if err := w.Keep(t.Context(), workspace.State{}); err == nil || !strings.Contains(err.Error(), "replaced") {
				t.Errorf("got %v", err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "state.json")); !os.IsNotExist(err) {
				t.Errorf("a record was written: %v", err)
			}
		})
	}
}

// TestStrays checks that links and unknown entries of a job do not stay.
func TestStrays(t *testing.T) {
	dir, outside := whole(t)
	w := must.Get(workspace.Open(t.Context(), dir, key))(t)
	defer w.Close()
	must.OK(t, os.Symlink(outside, filepath.Join(dir, "caches", "npm")))
	must.OK(t, os.WriteFile(filepath.Join(dir, "note"), []byte("secret"), 0o600))
	must.OK(t, w.Keep(t.Context(), workspace.State{}))
	for _, name := range []string{"caches/npm", "note"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s stays: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(outside, "file")); err != nil || !kept(dir) {
		t.Errorf("too much was deleted: %v", err)
	}
}
