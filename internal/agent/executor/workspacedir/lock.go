package workspacedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/sys/filelock"
)

// lockPause is the pause between two attempts to lock.
const lockPause = 5 * time.Millisecond

// lock serializes the making and the renaming of workspaces across processes.
func (d *Dir) lock(ctx context.Context, root *os.Root) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		lock, err := tryLock(root)
		if err == nil {
			return lock.Release, nil
		}
		if _, held := errors.AsType[*filelock.HeldError](err); held && retry.Sleep(ctx, lockPause) == nil {
			continue
		}
		return nil, fmt.Errorf("locking the directory of the workspaces: %w", errors.Join(err, ctx.Err()))
	}
}

// tryLock locks the file in root. It changes no other file, whatever a job has put in its place.
func tryLock(root *os.Root) (*filelock.Lock, error) {
	file, info, err := boundedfile.OpenIn(root, fileLock, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink != 1 {
		return nil, errors.Join(fmt.Errorf("%s has several links: remove it", file.Name()), file.Close())
	}
	if parent, err := root.Stat("."); err == nil && os.Geteuid() == 0 {
		if stat, ok := parent.Sys().(*syscall.Stat_t); ok { // the agent must be able to open a lock that root has made
			_ = file.Chown(int(stat.Uid), int(stat.Gid))
		}
	}
	return filelock.Try(file)
}

// takeLock locks a workspace like a runner, and returns a function that releases the lock. Without a lock
// file, and unless flag is O_CREATE, it locks nothing: the workspace is new, or what is in its place has no
// lock. With O_CREATE, it replaces what a job has put in place of the lock, as the next runner would. The error is
// [executor.ErrInUse] while a runner holds the lock.
func takeLock(root *os.Root, name string, flag int) (release func(), err error) {
	none := func() {}
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return none, nil
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return none, nil
	}
	defer dir.Close()
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(info, opened) {
		return none, errors.Join(errors.New("the workspace was replaced while it was opened"), err)
	}
	info, err = dir.Lstat(protocol.FileWorkspaceLock)
	if err == nil && !info.Mode().IsRegular() { // opening a device can have an effect
		if flag&os.O_CREATE == 0 {
			return none, nil
		}
		// Renaming takes no time, whatever it is. It is removed with the content.
		err := dir.Rename(protocol.FileWorkspaceLock, fmt.Sprintf("%s-%d", protocol.FileWorkspaceLock, time.Now().UnixNano()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return none, fmt.Errorf("replacing the workspace's lock: %w", err)
		}
	}
	// Some network file systems lock only files that are open for writing.
	file, _, err := boundedfile.OpenIn(dir, protocol.FileWorkspaceLock, flag|os.O_RDWR|unix.O_NOFOLLOW)
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
