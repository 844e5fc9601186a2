// Package workspace opens the directory in which a job of a scope finds what an earlier job of the same
// scope has kept, and in which it keeps the same for the next one.
//
// The content is only used if the earlier job's runner has recorded that it is whole. The record is
// removed before anything else happens, so a job that does not end in order leaves no record, and the next
// job deletes the content. Steps of the earlier job could write anything here. So nothing here is read
// before the record has been checked, no link is followed, and every error means: do without.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/dirtree"
	"workflowagent/internal/sys/diskspace"
	"workflowagent/internal/sys/durable"
	"workflowagent/internal/sys/filelock"
	"workflowagent/internal/words"
)

// Entries of a workspace.
const (
	// DirSource contains the checkout.
	DirSource = "source"
	// DirGit contains git's files of the checkout between jobs, and copies of some during a job.
	DirGit = "git"
	// DirCaches contains a directory for each tool.
	DirCaches = "caches"
	// DirPlugins contains pulumi's plugins.
	DirPlugins = "plugins"
)

var dirs = []string{DirSource, DirGit, DirCaches, DirPlugins}

const (
	lockTime = time.Second // another job can hold the workspace only while it ends
	// minFree is the free space below which a job does without a workspace, in bytes.
	minFree = 64 << 20
	// roomy is the free space from which the content of an earlier job is deleted next to the job.
	roomy = 1 << 30
)

// Workspace is a workspace that this process has locked.
type Workspace struct {
	dir   string
	root  *os.Root
	lock  *filelock.Lock
	held  fs.FileInfo            // the file that is locked
	made  map[string]fs.FileInfo // the directories, as they were when the job began
	key   string
	found State
	// Fresh is the reason why the content of an earlier job is deleted, or "".
	Fresh string

	deleting     sync.WaitGroup // the content of an earlier job
	stopDeleting context.CancelFunc
}

// Open locks the workspace in dir and takes its content if it is whole and has this key. Otherwise the
// workspace starts empty, and its content is deleted until [Workspace.Close]. An error means that the job
// must do without a workspace.
func Open(ctx context.Context, dir, key string) (opened *Workspace, err error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	w := &Workspace{dir: dir, root: root, key: key, made: map[string]fs.FileInfo{}}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if err = w.acquire(ctx); err != nil {
		return nil, err
	}
	free, err := freeSpace(dir)
	if err != nil {
		return nil, err
	}
	w.found, err = w.take(ctx)
	if err != nil {
		w.found, w.Fresh = State{}, err.Error()
		if err := w.startAfresh(ctx, free); err != nil {
			return nil, fmt.Errorf("deleting what an earlier job left: %w", err)
		}
	}
	for _, name := range dirs {
		if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return nil, err
		}
		w.made[name] = info
	}
	return w, nil
}

// openRoot opens a directory that is not a link. A job can have removed the permissions.
func openRoot(dir string) (*os.Root, error) {
	at, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !at.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	if ownedBySelf(at) && at.Mode().Perm() != 0o700 {
		parent, err := os.OpenRoot(filepath.Dir(dir))
		if err != nil {
			return nil, err
		}
		err = parent.Chmod(filepath.Base(dir), 0o700)
		if err := errors.Join(err, parent.Close()); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(at, opened) {
		err = fmt.Errorf("%s was replaced", dir)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// acquire locks the workspace. A job could have replaced the file by a link, or by something that blocks.
func (w *Workspace) acquire(ctx context.Context) error {
	if info, err := w.root.Lstat(protocol.FileWorkspaceLock); err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o600 != 0o600) {
		if err := w.setAside(protocol.FileWorkspaceLock); err != nil {
			return fmt.Errorf("replacing its lock: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	lock, err := filelock.Wait(ctx, filepath.Join(w.dir, protocol.FileWorkspaceLock))
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return errors.New("another job of this stack is using it")
	}
	if err != nil {
		return fmt.Errorf("locking it: %w", err)
	}
	w.lock = lock
	if w.held, err = lock.Stat(); err != nil {
		return fmt.Errorf("locking it: %w", err)
	}
	if at, err := w.root.Lstat(protocol.FileWorkspaceLock); err != nil || !os.SameFile(at, w.held) {
		return errors.New("it was removed meanwhile")
	}
	return nil
}

func freeSpace(dir string) (free int64, err error) {
	if _, free, err = diskspace.Of(dir); err != nil {
		return 0, fmt.Errorf("measuring the free space: %w", err)
	}
	if free < minFree {
		return 0, fmt.Errorf("its disk has only %s of free space", words.Bytes(free))
	}
	return free, nil
}

// take reads the record and removes it, durably. An error is the reason why the content must be deleted.
func (w *Workspace) take(ctx context.Context) (State, error) {
	state, err := w.readState()
	if errors.Is(err, fs.ErrNotExist) {
		if w.isNew(ctx) {
			return State{}, nil
		}
		return State{}, errors.New("the last job that used it did not end in order")
	}
	// Even a record that is not usable now could be usable for a later job.
	if removeErr := w.setAside(protocol.FileWorkspaceState); removeErr != nil {
		return State{}, fmt.Errorf("removing its record: %w", removeErr)
	}
	if removeErr := durable.SyncDir(w.dir); removeErr != nil {
		return State{}, removeErr
	}
	if err != nil {
		return State{}, err
	}
	for _, name := range dirs {
		info, err := w.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return State{}, fmt.Errorf("its directory %s is missing", name)
		}
		if err != nil {
			return State{}, err
		}
		if !info.IsDir() || !ownedBySelf(info) {
			return State{}, fmt.Errorf("its entry %s is not a directory of this user", name)
		}
	}
	return state, nil
}

func ownedBySelf(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// Found returns what an earlier job has kept. It is empty in a new workspace.
func (w *Workspace) Found() State { return w.found }

// Path returns the absolute path of one of the workspace's directories.
func (w *Workspace) Path(name string) string { return filepath.Join(w.dir, name) }

// Check returns an error if a job has replaced one of the runner's files or directories.
func (w *Workspace) Check() error {
	at, err := os.Lstat(w.dir)
	if err != nil {
		return err
	}
	same, err := w.root.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(at, same) {
		return errors.New("the job has replaced the workspace")
	}
	if lock, err := w.root.Lstat(protocol.FileWorkspaceLock); err != nil || !os.SameFile(lock, w.held) {
		return errors.New("the job has replaced the workspace's lock")
	}
	for _, name := range dirs {
		info, err := w.root.Lstat(name)
		if err != nil || !info.IsDir() || !os.SameFile(info, w.made[name]) {
			return fmt.Errorf("the job has replaced the workspace's directory %s", name)
		}
	}
	return nil
}

// Keep records that the content is whole, after [Workspace.Check]. Nothing of the job may be running.
func (w *Workspace) Keep(ctx context.Context, state State) error {
	w.endDeleting()
	if err := errors.Join(w.Check(), w.removeStrays(ctx)); err != nil {
		return err
	}
	return w.writeState(state)
}

// Empty empties directories of the workspace.
func (w *Workspace) Empty(ctx context.Context, dirs ...string) error {
	for _, dir := range dirs {
		if err := w.EmptyExcept(ctx, dir, func(string) bool { return false }); err != nil {
			return err
		}
	}
	return nil
}

// EmptyExcept removes the entries of one of the workspace's directories for which keep returns false.
func (w *Workspace) EmptyExcept(ctx context.Context, dir string, keep func(name string) bool) error {
	return dirtree.RemoveEntries(ctx, w.root, dir, keep)
}

// Discard deletes the content.
func (w *Workspace) Discard(ctx context.Context) error {
	w.endDeleting()
	return w.wipe(ctx)
}

// Close releases the workspace.
func (w *Workspace) Close() {
	w.endDeleting()
	if w.lock != nil {
		w.lock.Release()
	}
	_ = w.root.Close() // opened for reading only
}
