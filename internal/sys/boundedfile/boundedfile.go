// Package boundedfile opens and reads files that others name or write.
package boundedfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Read returns the content of a regular file of at most limit bytes. It never waits for a named
// pipe or reads a device.
func Read(path string, limit int64) ([]byte, error) {
	file, _, err := regular(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	if err != nil {
		return nil, err
	}
	defer file.Close() // opened for reading only
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, nil
}

// OpenIn opens a regular file in a directory that others can write to. It never waits for a named
// pipe. A file that it creates has mode 0600.
func OpenIn(dir *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	return regular(dir.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600))
}

// regular closes a file, and returns an error, unless it is a regular file.
func regular(file *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", file.Name())
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}
