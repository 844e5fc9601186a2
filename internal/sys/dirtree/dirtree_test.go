package dirtree_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/sys/dirtree"
)

// plant creates a directory named tree with what hostile programs leave, next to a file that none of
// its links may reach. It returns the parent of both.
func plant(t *testing.T) (dir string, root *os.Root) {
	t.Helper()
	dir = t.TempDir()
	top := filepath.Join(dir, "tree")
	outside := filepath.Join(dir, "outside")
	must.OK(t, os.MkdirAll(filepath.Join(top, "a", "read-only"), 0o700))
	must.OK(t, os.Mkdir(outside, 0o700))
	must.OK(t, os.WriteFile(filepath.Join(outside, "file"), []byte("kept"), 0o600))
	must.OK(t, os.Symlink(outside, filepath.Join(top, "link")))
	must.OK(t, os.Symlink("..", filepath.Join(top, "a", "loop")))
	must.OK(t, unix.Mkfifo(filepath.Join(top, "pipe"), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(top, "not \xff utf-8"), nil, 0o600))
	must.OK(t, os.WriteFile(filepath.Join(top, "a", "read-only", "file"), nil, 0o400))
	must.OK(t, os.Chmod(filepath.Join(top, "a", "read-only"), 0o500))
	for i := range 1500 {
		must.OK(t, os.WriteFile(filepath.Join(top, "a", strconv.Itoa(i)), nil, 0o600))
	}
	return dir, must.Get(os.OpenRoot(dir))(t)
}

func TestRemove(t *testing.T) {
	dir, root := plant(t)
	defer root.Close()
	must.OK(t, dirtree.Remove(t.Context(), root, "tree"))
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree remains: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "outside", "file")); string(data) != "kept" {
		t.Errorf("a link led out of the tree: %q, %v", data, err)
	}
	must.OK(t, dirtree.Remove(t.Context(), root, "tree")) // a missing one
	must.OK(t, os.Symlink("outside", filepath.Join(dir, "tree")))
	must.OK(t, dirtree.Remove(t.Context(), root, "tree"))
	if _, err := os.Stat(filepath.Join(dir, "outside", "file")); err != nil {
		t.Errorf("the removal of a link followed it: %v", err)
	}
}

// TestRemoveStops removes a tree in two calls, of which the first has no time.
func TestRemoveStops(t *testing.T) {
	_, root := plant(t)
	defer root.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := dirtree.Remove(over, root, "tree"); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
	must.OK(t, dirtree.Remove(t.Context(), root, "tree"))
	if _, err := root.Lstat("tree"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree remains: %v", err)
	}
}

// TestDeepTree removes a directory that is nested so deeply that no path of the system can name its end.
func TestDeepTree(t *testing.T) {
	root := must.Get(os.OpenRoot(t.TempDir()))(t)
	defer root.Close()
	at := root
	for range 1000 {
		must.OK(t, at.Mkdir("a-name-of-some-length", 0o700))
		next := must.Get(at.OpenRoot("a-name-of-some-length"))(t)
		if at != root {
			must.OK(t, at.Close())
		}
		at = next
	}
	must.OK(t, at.Close())
	must.OK(t, dirtree.Remove(t.Context(), root, "a-name-of-some-length"))
	if _, err := root.Lstat("a-name-of-some-length"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree remains: %v", err)
	}
}

// swapping is a context that calls swap at its nth use, between two system calls.
type swapping struct {
	context.Context

	left *int
	swap func()
}

func (s swapping) Err() error {
	if *s.left--; *s.left == 0 {
		s.swap()
	}
	return s.Context.Err()
}

// TestReplacedWhileRemoved replaces a directory by a link to another one, at each point of the removal and
// of the measurement.
func TestReplacedWhileRemoved(t *testing.T) {
	for n := range 24 {
		dir := t.TempDir()
		root := must.Get(os.OpenRoot(dir))(t)
		must.OK(t, os.MkdirAll(filepath.Join(dir, "tree", "at", "sub"), 0o700))
		must.OK(t, os.WriteFile(filepath.Join(dir, "tree", "at", "sub", "file"), nil, 0o600))
		must.OK(t, os.MkdirAll(filepath.Join(dir, "other", "sub"), 0o700))
		must.OK(t, os.WriteFile(filepath.Join(dir, "other", "sub", "file"), make([]byte, 1<<20), 0o600))
		left := n/2 + 1
		ctx := swapping{t.Context(), &left, func() {
			at := filepath.Join(dir, "tree", "at")
			if os.Rename(at, filepath.Join(dir, "away")) == nil { // else it is removed already
				must.OK(t, os.Symlink("../other", at))
			}
		}}
		if n%2 == 0 {
			_ = dirtree.Remove(ctx, root, "tree") // may fail, because the tree changes
		} else if bytes, _ := dirtree.Size(ctx, root, "tree", 100); bytes >= 1<<20 {
			t.Errorf("the measurement followed a link at point %d", n)
		}
		if _, err := os.Stat(filepath.Join(dir, "other", "sub", "file")); err != nil {
			t.Errorf("the removal followed a link at point %d: %v", n, err)
		}
		must.OK(t, dirtree.Remove(t.Context(), root, "tree"))
		must.OK(t, root.Close())
	}
}

func TestSize(t *testing.T) {
	dir := t.TempDir()
	root := must.Get(os.OpenRoot(dir))(t)
	defer root.Close()
	top := filepath.Join(dir, "tree")
	must.OK(t, os.MkdirAll(filepath.Join(top, "sub"), 0o700))
	must.OK(t, os.WriteFile(filepath.Join(dir, "outside"), make([]byte, 8<<20), 0o600))
	must.OK(t, os.Symlink(filepath.Join(dir, "outside"), filepath.Join(top, "link")))
	must.OK(t, unix.Mkfifo(filepath.Join(top, "pipe"), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(top, "file"), make([]byte, 1<<20), 0o600))
	for _, name := range []string{"second", "sub/third"} {
		must.OK(t, os.Link(filepath.Join(top, "file"), filepath.Join(top, name)))
	}
	sparse := must.Get(os.Create(filepath.Join(top, "sparse")))(t)
	must.OK(t, sparse.Truncate(1<<40))
	must.OK(t, sparse.Close())
	bytes, err := dirtree.Size(t.Context(), root, "tree", 7)
	if err != nil || bytes < 1<<20 || bytes >= 2<<20 {
		t.Errorf("the size is %d, %v, want that of one file of 1 MiB", bytes, err)
	}
	if _, err := dirtree.Size(t.Context(), root, "tree", 6); err == nil {
		t.Error("the size is known despite too many entries")
	}
	must.OK(t, os.Chmod(filepath.Join(top, "sub"), 0))
	if _, err := dirtree.Size(t.Context(), root, "tree", 100); err != nil {
		t.Errorf("a directory without permissions: %v", err)
	}
	if info := must.Get(os.Lstat(filepath.Join(top, "sub")))(t); info.Mode().Perm() != 0o700 {
		t.Errorf("a directory without permissions was not opened to its owner: %v", info.Mode())
	}
	must.OK(t, os.Symlink("tree", filepath.Join(dir, "alias")))
	if bytes, err := dirtree.Size(t.Context(), root, "alias", 100); bytes != 0 || err == nil {
		t.Errorf("the size of a link is %d, %v", bytes, err)
	}
	if bytes, err := dirtree.Size(t.Context(), root, "missing", 100); bytes != 0 || err != nil {
		t.Errorf("the size of a missing tree is %d, %v", bytes, err)
	}
}
