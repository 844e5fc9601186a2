package workspacedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/sys/filelock"
)

// lock serializes the making and the renaming of workspaces across processes.
func (d *Dir) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	path := filepath.Join(d.path, fileLock)
	lock, err := filelock.Wait(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("locking the directory of the workspaces: %w", err)
	}
	if info, err := os.Lstat(d.path); err == nil && os.Geteuid() == 0 {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok { // the agent must be able to open a lock that root has made
			_ = os.Lchown(path, int(stat.Uid), int(stat.Gid))
		}
	}
	return lock.Release, nil
}

// takeLock locks a workspace like a runner, and returns a function that releases the lock. Without a lock
// file, it locks nothing: the workspace is new, or what is in its place has no lock. The error is
// [executor.ErrInUse] while a runner holds the lock.
func takeLock(root *os.Root, scope string) (release func(), err error) {
	none := func() {}
	info, err := root.Lstat(scope)
	if err != nil || !info.IsDir() {
		return none, nil
	}
	dir, err := root.OpenRoot(scope)
	if err != nil {
		return none, nil
	}
	defer dir.Close()
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(info, opened) {
		return none, errors.Join(errors.New("the workspace was replaced while it was opened"), err)
	}
	// Some network file systems lock only files that are open for writing.
	file, _, err := boundedfile.OpenIn(dir, protocol.FileWorkspaceLock, os.O_RDWR|unix.O_NOFOLLOW)
	if err != nil {
		return none, nil
	}
	for {
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() {
				_ = unix.Flock(int(file.Fd()), unix.LOCK_UN) // a new child process shares the file until its exec
				_ = file.Close()
			}, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return none, errors.Join(executor.ErrInUse, file.Close())
		default:
			return none, errors.Join(fmt.Errorf("locking the workspace: %w", err), file.Close())
		}
	}
}
