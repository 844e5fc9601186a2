package checkup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"workflowagent/internal/words"
)

// spaceWarn is the free disk space, in bytes, below which a program is likely to fail soon.
const spaceWarn = 2 << 30

// Disks examines file systems.
type Disks struct {
	// Of returns the size and the free bytes of the file system at a path.
	Of func(path string) (size, free int64, err error)
	// Least is the free space, in bytes, below which the program does not work.
	Least int64
}

// Space returns the result of measuring the free space for what, such as "the logs of jobs", in a
// directory.
func (d Disks) Space(dir, what, advice string) Result {
	size, free, err := d.Of(dir)
	switch {
	case err != nil:
		return Skip(fmt.Sprintf("the disk of %s cannot be examined: %v", dir, Reason(err)))
	case size == 0:
		return Skip("the disk of " + dir + " reports no size")
	}
	found := fmt.Sprintf("%s of %s free for %s in %s", words.Bytes(free), words.Bytes(size), what, dir)
	switch {
	case free < d.Least:
		return Fail(found, advice)
	case free < spaceWarn:
		return Warn(found, advice)
	}
	return OK(found)
}

// Writable returns an error if the caller cannot write a file in a directory. It leaves none behind.
func Writable(dir string) (err error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Sync(), f.Close())
}

// Existing returns the deepest parent directory of path that exists.
func Existing(path string) string {
	for {
		parent := filepath.Dir(path)
		if _, err := os.Stat(parent); err == nil || parent == path {
			return parent
		}
		path = parent
	}
}

// Reason returns the cause of a file system error without the operation and the path.
func Reason(err error) error {
	if p, isPath := errors.AsType[*fs.PathError](err); isPath {
		return p.Err
	}
	return err
}

// Lines returns the lines of an error's text.
func Lines(err error) []string { return strings.Split(strings.TrimSpace(err.Error()), "\n") }
