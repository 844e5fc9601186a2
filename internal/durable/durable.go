// Package durable writes files that outlive a loss of power: whole or not at all, and
// with their names.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile puts data in place of the file's content by one rename. When it returns nil,
// both the content and the name are on disk.
func WriteFile(path string, data []byte, mode fs.FileMode, more ...renameio.Option) error {
	dir := filepath.Dir(path)
	// In a named directory, because looking for the best one costs two more files.
	if err := renameio.WriteFile(path, data, mode, append(more, renameio.WithTempDir(dir))...); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir stores the names in a directory: of files that were made, renamed or removed.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("storing the names in %s: %w", dir, err)
	}
	return nil
}
