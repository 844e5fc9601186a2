// Package diskspace measures file systems.
package diskspace

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Of returns the size and the free space of the file system at a path, in bytes. Space that is reserved for
// root is not free.
func Of(path string) (size, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := int64(st.Bsize) //nolint:unconvert // the field's type depends on the operating system
	return int64(st.Blocks) * block, int64(st.Bavail) * block, nil
}
