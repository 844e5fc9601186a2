package workspacedir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/dev/must"
)

// TestFullDisk makes workspaces on a disk that has no space for another one.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=1m,nr_inodes=4,mode=700"); err != nil {
		t.Skip("mounting a small disk: ", err)
	}
	defer func() { must.OK(t, unix.Unmount(dir, unix.MNT_DETACH)) }()
	d := workspacedir.New(filepath.Join(dir, "workspaces"), noJobs)
	must.Get(d.Make(t.Context(), scope("a")))(t) // the fourth inode, after the root, the parent and the lock
	if path, err := d.Make(t.Context(), scope("b")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("without space: %q, %v", path, err)
	}
	if w := find(t, d, scope("a")); w == nil || w.InUse {
		t.Errorf("the workspace on the full disk: %+v", w)
	}
	must.OK(t, d.RemoveWorkspace(t.Context(), "", scope("a")))
	must.Get(d.Make(t.Context(), scope("b")))(t)
}
