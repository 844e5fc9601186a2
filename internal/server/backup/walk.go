package backup

import (
	"errors"
	"io/fs"
	"iter"
)

// walkBlobs returns a function that returns the next file of a blob in the order of the list, or "" after the last one.
// The caller must call stop.
func (b *stored) walkBlobs() (next func() (string, error), stop func()) {
	pull, stop := iter.Pull2(func(yield func(string, error) bool) {
		err := fs.WalkDir(b.root.FS(), blobsDir, func(name string, entry fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = b.root.Lstat(name)
			}
			if err == nil {
				err = b.check(name, info, entry.IsDir())
			}
			if err != nil {
				return damaged(name, err)
			}
			if !entry.IsDir() && !yield(name, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.SkipAll) {
			yield("", err)
		}
	})
	return func() (string, error) {
		name, err, _ := pull()
		return name, err
	}, stop
}
