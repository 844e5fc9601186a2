package workspace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sync writes the content to disk, so that what [Workspace.Keep] records is still whole after a power
// loss.
func (w *Workspace) Sync() error {
	dir, err := os.Open(w.dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}
