//go:build !linux

package workspace

import "golang.org/x/sys/unix"

// Sync writes the content to disk, so that what [Workspace.Keep] records is still whole after a power
// loss.
func (w *Workspace) Sync() error {
	unix.Sync()
	return nil
}
