package workspace

import (
	"errors"
	"path/filepath"
	"slices"

	"workflowagent/internal/sys/removal"
)

// wipe deletes everything but the lock.
func (w *Workspace) wipe() error {
	return removal.Entries(w.root, ".", func(name string) bool { return name == fileLock })
}

// removeStrays deletes what a job has left next to the runner's own files, and what is not a tool's
// directory below caches.
func (w *Workspace) removeStrays() error {
	err := removal.Entries(w.root, ".", func(name string) bool { return name == fileLock || slices.Contains(dirs, name) })
	return errors.Join(err, removal.Entries(w.root, DirCaches, func(name string) bool {
		info, err := w.root.Lstat(filepath.Join(DirCaches, name))
		return err == nil && info.IsDir()
	}))
}
