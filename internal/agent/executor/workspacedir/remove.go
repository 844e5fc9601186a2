package workspacedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/dirtree"
	"workflowagent/internal/workflow"
)

// RemoveWorkspace removes a workspace, or what is in its place. It returns [executor.ErrInUse] if a job
// exists that uses the workspace. If ctx ends first, [Dir.CleanWorkspaces] removes the remainder.
func (d *Dir) RemoveWorkspace(ctx context.Context, _, scope string) error {
	if !workflow.IsScope(scope) {
		return fmt.Errorf("%q is not the scope of a workspace", scope)
	}
	root, err := d.open(d.operator())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if err := d.retire(ctx, root, scope); err != nil {
		return err
	}
	return clean(ctx, root)
}

// retire renames a workspace that is not in use. Under the lock, no job can start to use it.
func (d *Dir) retire(ctx context.Context, root *os.Root, scope string) error {
	unlock, err := d.lock(ctx, root)
	if err != nil {
		return err
	}
	defer unlock()
	used, err := d.usedScopes()
	if err != nil {
		return err
	}
	info, err := root.Lstat(scope)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("examining the workspace: %w", err)
	}
	if used[scope] || d.unsettled(usedAt(info)) {
		return executor.ErrInUse
	}
	release, err := takeLock(root, scope, 0)
	if err != nil {
		return err
	}
	defer release()
	err = root.Rename(scope, fmt.Sprintf("%s%s-%d", removedPrefix, scope, time.Now().UnixNano()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the workspace: %w", err)
	}
	return nil
}

// CleanWorkspaces removes what interrupted removals left.
func (d *Dir) CleanWorkspaces(ctx context.Context) error {
	root, err := d.open(d.operator())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return clean(ctx, root)
}

// clean removes the renamed workspaces, except those that runners hold.
func clean(ctx context.Context, root *os.Root) error {
	doomed, err := names(root, func(name string) bool { return strings.HasPrefix(name, removedPrefix) })
	errs := []error{err}
	for _, name := range doomed {
		if err := remove(ctx, root, name); err != nil && !errors.Is(err, executor.ErrInUse) {
			errs = append(errs, fmt.Errorf("removing a workspace: %w", err))
		}
	}
	return errors.Join(errs...)
}

// remove removes a renamed workspace. A pod that had mounted the workspace before it was renamed still has it, and
// its runner can lock it at any time. So the lock is held during the removal, and removed last; the record that
// the content is whole is removed first, in case the removal is interrupted.
func remove(ctx context.Context, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return dirtree.Remove(ctx, root, name)
	}
	_ = root.Chmod(name, 0o700) // the removal of the content reports the error
	release, err := takeLock(root, name, os.O_CREATE)
	if err != nil {
		return err
	}
	defer release()
	lock := filepath.Join(name, protocol.FileWorkspaceLock)
	err = dirtree.Remove(ctx, root, filepath.Join(name, protocol.FileWorkspaceState))
	if err == nil {
		err = dirtree.RemoveEntries(ctx, root, name, func(entry string) bool { return entry == protocol.FileWorkspaceLock })
	}
	if err == nil {
		err = dirtree.Remove(ctx, root, lock)
	}
	if err != nil {
		return err
	}
	release() // NFS removes an open file only when it is closed
	// Not dirtree.Remove: a runner can have made and locked another file meanwhile.
	err = root.Remove(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTEMPTY):
		return executor.ErrInUse
	}
	return err
}
