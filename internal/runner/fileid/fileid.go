// Package fileid recognizes a file that a program has written earlier, without reading it.
package fileid

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ID identifies a regular file and its content. Each change of the content changes the file's times, of
// which no program can set Changed without setting the machine's clock.
type ID struct {
	Name     string `json:"name"` // in its directory
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // in nanoseconds
	Changed  int64  `json:"changed"`  // the inode, in nanoseconds
}

// ErrOther is wrapped by errors about files that are not those that a program has written.
var ErrOther = errors.New("not the file that was written")

// Of returns the ID of a file in dir. It follows no link.
func Of(dir *os.Root, name string) (ID, error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return ID{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return ID{}, fmt.Errorf("%s: %w", name, ErrOther)
	}
	return ID{
		Name: name, Inode: stat.Ino, Size: info.Size(),
		Modified: info.ModTime().UnixNano(), Changed: changed(stat),
	}, nil
}

// Check returns an error unless dir contains the files, unchanged.
func Check(dir *os.Root, files []ID) error {
	for _, want := range files {
		got, err := Of(dir, want.Name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && got != want {
			err = fmt.Errorf("%s: %w", want.Name, ErrOther)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
