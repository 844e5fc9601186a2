// Package workspacedir keeps workspaces as directories: one directory per scope, in one parent. Its
// callers are the agent and the commands of its operator, possibly in several processes at once.
//
// A workspace's content is untrusted. The package only makes, measures and removes it: it follows no
// link in it, and opens nothing in it but directories and the runner's lock.
package workspacedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/sys/dirtree"
	"workflowagent/internal/workflow"
)

const (
	// fileLock serializes the making and the renaming of workspaces.
	fileLock      = ".lock"
	removedPrefix = ".removed-"
	// settleTime is the age from which an unlocked workspace counts as idle, if the jobs are unknown: a
	// runner locks its workspace soon after the workspace was made or changed.
	settleTime = time.Minute
	// lockTime is how long a call waits for fileLock, which is held only for a few system calls.
	lockTime = 5 * time.Second
	// measureTime and maxEntries bound the measurement of one workspace, so that it cannot prevent that of
	// the others and the removals.
	measureTime = 2 * time.Minute
	maxEntries  = 5_000_000
)

// Dir is a directory of workspaces.
type Dir struct {
	path string
	// used returns the scopes of the jobs that exist, running or not.
	used func() (map[string]bool, error)

	mu       sync.Mutex
	measured map[string]measurement // by scope
}

type measurement struct {
	changed time.Time // the inode of the workspace's directory, when the runner took or returned it
	bytes   int64
	partial bool // there is more
}

// New returns the directory at path, which [Dir.Make] creates. used returns the scopes that must not be
// removed; nil means that the jobs are unknown and only their runners' locks protect workspaces.
func New(path string, used func() (map[string]bool, error)) *Dir {
	return &Dir{path: path, used: used, measured: map[string]measurement{}}
}

// Make makes a workspace, if it is missing, and returns its path. An error says why the workspace
// cannot be used: it is not a directory of the agent's user.
func (d *Dir) Make(ctx context.Context, scope string) (string, error) {
	if !workflow.IsScope(scope) {
		return "", fmt.Errorf("%q is not the scope of a workspace", scope)
	}
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making the directory of the workspaces: %w", err)
	}
	root, err := d.open(os.Geteuid())
	if err != nil {
		return "", err
	}
	defer root.Close()
	unlock, err := d.lock(ctx, root)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := root.Mkdir(scope, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making the workspace: %w", err)
	}
	info, err := root.Lstat(scope)
	if err != nil {
		return "", fmt.Errorf("examining the workspace: %w", err)
	}
	if err := ownedBy(os.Geteuid(), filepath.Join(d.path, scope), info); err != nil {
		return "", err
	}
	// A job can have changed the mode. Other users could not use that, because the parent excludes them.
	if err := root.Chmod(scope, 0o700); err != nil {
		return "", fmt.Errorf("making the workspace: %w", err)
	}
	return filepath.Join(d.path, scope), nil
}

const anyUser = -1

// operator returns the user for calls that hand no workspace to a job. Root may list and remove those of
// any user's agent, and the volumes of a cluster have various owners and modes.
func (d *Dir) operator() int {
	if os.Geteuid() == 0 || d.used == nil {
		return anyUser
	}
	return os.Geteuid()
}

// open opens the parent of the workspaces for a user. It rejects a directory of another user, and a link,
// because their owners could exchange the workspaces of different scopes.
func (d *Dir) open(user int) (*os.Root, error) {
	before, err := os.Lstat(d.path)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of the workspaces: %w", err)
	}
	if err := private(d.path, before, user); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of the workspaces: %w", err)
	}
	if after, err := root.Stat("."); err != nil || !os.SameFile(before, after) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened", d.path), err, root.Close())
	}
	return root, nil
}

// private returns an error unless a file is a directory that only the user can change.
func private(path string, info fs.FileInfo, user int) error {
	err := ownedBy(user, path, info)
	if err == nil && user != anyUser && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("%s can be written by other users (mode %04o): remove it, or run chmod 700 on it", path, info.Mode().Perm())
	}
	return err
}

// ownedBy returns an error unless a file is a directory of the user.
func ownedBy(user int, path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: remove it", path)
	case ok && int(stat.Uid) != user && user != anyUser:
		return fmt.Errorf("%s belongs to user %d, not to the agent's user %d: remove it, or correct its owner", path, stat.Uid, user)
	}
	return nil
}

// Workspaces returns all workspaces, of any owner. It measures those that have changed since the last
// call.
func (d *Dir) Workspaces(ctx context.Context, _ string) ([]executor.Workspace, error) {
	root, err := d.open(d.operator())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	used, err := d.usedScopes()
	if err != nil {
		return nil, err
	}
	names, err := names(root, workflow.IsScope)
	if err != nil {
		return nil, err
	}
	var all []executor.Workspace
	for _, scope := range names {
		info, err := root.Lstat(scope)
		if err != nil {
			continue // it was removed meanwhile
		}
		w := executor.Workspace{Scope: scope, Used: usedAt(info), InUse: used[scope] || d.unsettled(usedAt(info))}
		if !w.InUse {
			release, err := takeLock(root, scope, 0)
			release()
			w.InUse = errors.Is(err, executor.ErrInUse)
		}
		if !info.IsDir() { // no job can use what is in its place
			w.Used, w.InUse = time.Time{}, false
		}
		w.Bytes, w.Excessive = d.size(ctx, root, w, changedAt(info))
		all = append(all, w)
	}
	d.forget(all)
	return all, nil
}

// usedScopes returns the scopes of the known jobs.
func (d *Dir) usedScopes() (map[string]bool, error) {
	if d.used == nil {
		return nil, nil
	}
	return d.used()
}

// usedAt returns the time of the last use of a workspace, whose directory the runner changes when it takes and
// returns it. A job can set the time of modification to a later one, but not that of [changedAt].
func usedAt(info fs.FileInfo) time.Time {
	if at := changedAt(info); at.Before(info.ModTime()) {
		return at
	}
	return info.ModTime()
}

// changedAt returns when an inode changed, which no program can set without setting the clock.
func changedAt(info fs.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return changed(stat)
	}
	return info.ModTime()
}

// unsettled reports whether the runner of an unknown job may be about to lock a workspace.
func (d *Dir) unsettled(changed time.Time) bool {
	return d.used == nil && time.Since(changed).Abs() < settleTime
}

// names returns the matching names, including those of files and links in place of a workspace.
func names(root *os.Root, match func(name string) bool) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces: %w", err)
	}
	defer dir.Close() // opened for reading only
	all, err := dir.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("listing the workspaces: %w", err)
	}
	var matching []string
	for _, name := range all {
		if match(name) {
			matching = append(matching, name)
		}
	}
	return matching, nil
}

// size returns the size of a workspace, and whether that is only a part. If ctx ends first, it returns the
// last known size, or -1.
func (d *Dir) size(ctx context.Context, root *os.Root, w executor.Workspace, changed time.Time) (bytes int64, partial bool) {
	d.mu.Lock()
	last, known := d.measured[w.Scope]
	d.mu.Unlock()
	if known && last.changed.Equal(changed) && !w.InUse {
		return last.bytes, last.partial
	}
	limited, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	bytes, err := dirtree.Size(limited, root, w.Scope, maxEntries)
	if ctx.Err() != nil {
		if known {
			return last.bytes, last.partial
		}
		return -1, false
	}
	partial = err != nil && !w.InUse // a job changes what is being measured
	d.mu.Lock()
	defer d.mu.Unlock()
	d.measured[w.Scope] = measurement{changed: changed, bytes: bytes, partial: partial}
	if w.InUse {
		d.measured[w.Scope] = measurement{bytes: bytes} // to be measured again when the job has ended
	}
	return bytes, partial
}

func (d *Dir) forget(but []executor.Workspace) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := map[string]measurement{}
	for _, w := range but {
		if m, ok := d.measured[w.Scope]; ok {
			kept[w.Scope] = m
		}
	}
	d.measured = kept
}

// WorkspaceSpace returns the number of free bytes on the disk of the workspaces.
func (d *Dir) WorkspaceSpace(context.Context) int64 {
	for _, dir := range []string{d.path, filepath.Dir(d.path)} {
		if free, err := executor.FreeSpace(dir); err == nil {
			return free
		}
	}
	return -1
}

var _ executor.WorkspaceKeeper = (*Dir)(nil)
