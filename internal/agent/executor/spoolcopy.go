package executor

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"workflowagent/internal/delivery"
)

const (
	// spaceReserve is how much of the agent's disk the copy of a spool leaves free.
	spaceReserve = 32 << 20
	// smallestFile is what a file of a copy is taken to need, so that there cannot be
	// many that are empty.
	smallestFile = 4 << 10
)

// ErrNoSpace is the error of copying a log spool to a disk that has no space for it.
var ErrNoSpace = errors.New("the disk has no space for it")

// SpoolCopy is a copy of a job's log spool that is being made. The job can put into its
// spool what it likes: files that are large and take no space there, names that lead
// elsewhere, any number of files. So only files that a spool has are copied, and no more
// bytes than a spool has.
type SpoolCopy struct {
	dst  *os.Root
	left int64                  // bytes that may still come
	free func() (uint64, error) // bytes on the disk of dst
}

// NewSpoolCopy begins a copy in the directory dst, which is made if it is missing.
func NewSpoolCopy(dst string) (*SpoolCopy, error) {
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return nil, err
	}
	free := func() (uint64, error) {
		var stat unix.Statfs_t
		err := unix.Statfs(dst, &stat)
		return uint64(stat.Bavail) * uint64(stat.Bsize), err //nolint:unconvert // of other types on other systems
	}
	return &SpoolCopy{dst: root, left: delivery.MaxCopy, free: free}, nil
}

// Add copies a file of the spool, of which name is the path within the spool. A file
// that no spool has is not read, but counts: somebody had to transport it.
func (c *SpoolCopy) Add(name string, size int64, content io.Reader) error {
	if c.left -= max(size, smallestFile); c.left < 0 || size < 0 {
		return fmt.Errorf("it is larger than any log spool, of which the limit is %d bytes", delivery.MaxCopy)
	}
	if !delivery.IsFileName(name) {
		return nil
	}
	free, err := c.free()
	if err != nil {
		return err
	}
	if free < uint64(size)+spaceReserve {
		return ErrNoSpace
	}
	file, err := c.dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, io.LimitReader(content, size))
	return errors.Join(err, file.Close())
}

// Close ends the copy.
func (c *SpoolCopy) Close() error { return c.dst.Close() }
