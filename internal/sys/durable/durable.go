// Package durable writes files atomically and durably: content and name survive a power loss.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile atomically replaces the file at path. When it returns nil, content and name are on
// disk.
func WriteFile(path string, data []byte, mode fs.FileMode, more ...renameio.Option) error {
	dir := filepath.Dir(path)
	// Without an explicit directory, renameio creates two additional files to choose a directory.
	if err := renameio.WriteFile(path, data, mode, append(more, renameio.WithTempDir(dir))...); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir syncs a directory to disk, so that created, renamed or removed entries are durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("syncing the directory %s: %w", dir, err)
	}
	return nil
}
