// Package removal removes directories that contain what untrusted programs wrote.
package removal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// All removes a file, or a directory with its content. It follows no link, and also removes
// directories without permissions, such as those of Go's module cache.
func All(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	permitErr := permit(root, name)
	if err = root.RemoveAll(name); err != nil {
		return errors.Join(err, permitErr)
	}
	return nil
}

// Entries removes the entries of a directory for which keep returns false.
func Entries(root *os.Root, dir string, keep func(name string) bool) error {
	names, err := Names(root, dir)
	for _, name := range names {
		if !keep(name) {
			err = errors.Join(err, All(root, filepath.Join(dir, name)))
		}
	}
	return err
}

// Names returns the names of the entries of a directory.
func Names(root *os.Root, dir string) ([]string, error) {
	opened, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := opened.Readdirnames(-1)
	return names, errors.Join(err, opened.Close())
}

// permit grants all permissions for a directory and those below it. [fs.WalkDir] rejects names that are
// not UTF-8.
func permit(root *os.Root, dir string) error {
	info, err := root.Lstat(dir)
	if err != nil || !info.IsDir() {
		return err
	}
	if err := root.Chmod(dir, 0o700); err != nil {
		return err
	}
	opened, err := root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := opened.ReadDir(-1)
	err = errors.Join(err, opened.Close())
	for _, entry := range entries {
		if entry.IsDir() {
			err = errors.Join(err, permit(root, filepath.Join(dir, entry.Name())))
		}
	}
	return err
}
