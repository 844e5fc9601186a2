package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/dirtree"
	"workflowagent/internal/sys/durable"
)

// asidePrefix begins the names of entries that are to be deleted.
const asidePrefix = ".old-"

// setAside makes an entry disappear at once. It renames a directory, which can have any size.
func (w *Workspace) setAside(name string) error {
	err := w.root.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = w.root.Rename(name, fmt.Sprintf("%s%d-%s", asidePrefix, time.Now().UnixNano(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// startAfresh sets the content aside and starts to delete it, next to the job. [Workspace.Keep] deletes
// what remains then. If the disk has little space, the job needs that of the content, so startAfresh deletes
// it first.
func (w *Workspace) startAfresh(ctx context.Context, free int64) error {
	if free < roomy {
		return w.wipe(ctx)
	}
	for _, name := range append([]string{protocol.FileWorkspaceState}, dirs...) {
		if err := w.setAside(name); err != nil {
			return err
		}
	}
	ctx, w.stopDeleting = context.WithCancel(context.WithoutCancel(ctx))
	w.deleting.Go(func() { _ = w.removeUnknown(ctx) }) // Keep reports the error
	return durable.SyncDir(w.dir)
}

// endDeleting stops what startAfresh has started.
func (w *Workspace) endDeleting() {
	if w.stopDeleting != nil {
		w.stopDeleting()
	}
	w.deleting.Wait()
}

// wipe deletes everything but the lock.
func (w *Workspace) wipe(ctx context.Context) error {
	return dirtree.RemoveEntries(ctx, w.root, ".", func(name string) bool { return name == protocol.FileWorkspaceLock })
}

// removeUnknown deletes what is next to the runner's own entries.
func (w *Workspace) removeUnknown(ctx context.Context) error {
	return dirtree.RemoveEntries(ctx, w.root, ".", func(name string) bool {
		return name == protocol.FileWorkspaceLock || slices.Contains(dirs, name)
	})
}

// removeStrays deletes what a job has left next to the runner's own files, and what is not a tool's
// directory below caches.
func (w *Workspace) removeStrays(ctx context.Context) error {
	return errors.Join(w.removeUnknown(ctx), dirtree.RemoveEntries(ctx, w.root, DirCaches, func(name string) bool {
		info, err := w.root.Lstat(filepath.Join(DirCaches, name))
		return err == nil && info.IsDir()
	}))
}

// isNew reports whether the workspace contains only its lock, and what is being deleted.
func (w *Workspace) isNew(ctx context.Context) bool {
	names, err := dirtree.Names(ctx, w.root, ".")
	return err == nil && !slices.ContainsFunc(names, func(name string) bool {
		return name != protocol.FileWorkspaceLock && !strings.HasPrefix(name, asidePrefix)
	})
}
