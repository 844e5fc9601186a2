package workspace

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/dirtree"
)

// wipe deletes everything but the lock.
func (w *Workspace) wipe(ctx context.Context) error {
	return dirtree.RemoveEntries(ctx, w.root, ".", func(name string) bool { return name == protocol.FileWorkspaceLock })
}

// removeStrays deletes what a job has left next to the runner's own files, and what is not a tool's
// directory below caches.
func (w *Workspace) removeStrays(ctx context.Context) error {
	err := dirtree.RemoveEntries(ctx, w.root, ".", func(name string) bool { return name == protocol.FileWorkspaceLock || slices.Contains(dirs, name) })
	return errors.Join(err, dirtree.RemoveEntries(ctx, w.root, DirCaches, func(name string) bool {
		info, err := w.root.Lstat(filepath.Join(DirCaches, name))
		return err == nil && info.IsDir()
	}))
}
