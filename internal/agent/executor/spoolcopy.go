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
	spaceReserve = 32 << 20
	// smallestFile is the minimum size, in bytes, that each file counts towards the size limit. It
	// limits the number of empty files.
	smallestFile = 4 << 10
)

// ErrNoSpace reports that the disk has no space for a log spool.
var ErrNoSpace = errors.New("the disk has no space for the log spool")

// SpoolCopy copies a job's log spool. The job controls its spool and may create sparse files, paths
// that lead out of the spool, or countless files. SpoolCopy therefore copies only files that belong
// to a spool, up to the size limit.
type SpoolCopy struct {
	dst  *os.Root
	left int64 // number of bytes that may still be copied
	free space
}

// space returns the number of free bytes on a disk.
type space func() (uint64, error)

// room returns [ErrNoSpace] unless the disk can hold n more bytes and the reserve.
func (s space) room(n int64) error {
	free, err := s()
	if err == nil && free < uint64(n)+spaceReserve {
		err = ErrNoSpace
	}
	return err
}

func freeBytes(stat unix.Statfs_t) uint64 {
	return uint64(stat.Bavail) * uint64(stat.Bsize) //nolint:unconvert // the field types differ between systems
}

// NewSpoolCopy returns a SpoolCopy that writes to the directory dst. It creates dst if it is
// missing.
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
		return freeBytes(stat), err
	}
	return &SpoolCopy{dst: root, left: delivery.MaxCopy, free: free}, nil
}

// Skip counts a directory, link or other entry that is not copied.
func (c *SpoolCopy) Skip() error { return c.count(0) }

func (c *SpoolCopy) count(size int64) error {
	if c.left -= max(size, smallestFile); c.left < 0 || size < 0 {
		return fmt.Errorf("the spool is larger than the limit of %d bytes", delivery.MaxCopy)
	}
	return nil
}

// Add copies the named file from content. The name is a path within the spool. Add does not read a
// file that cannot belong to a spool. It counts the size of such a file towards the limit, because
// transferring the file has a cost.
func (c *SpoolCopy) Add(name string, size int64, content io.Reader) error {
	if err := c.count(size); err != nil {
		return err
	}
	if !delivery.IsFileName(name) {
		return nil
	}
	if err := c.free.room(size); err != nil {
		return err
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

// SpoolWriter writes a log spool to a file. It fails with [ErrNoSpace] before the file's disk is full.
type SpoolWriter struct {
	file *os.File
	free space
}

// NewSpoolWriter returns a SpoolWriter that writes to file.
func NewSpoolWriter(file *os.File) *SpoolWriter {
	return &SpoolWriter{file: file, free: func() (uint64, error) {
		var stat unix.Statfs_t
		err := unix.Fstatfs(int(file.Fd()), &stat)
		return freeBytes(stat), err
	}}
}

// Write implements [io.Writer].
func (w *SpoolWriter) Write(p []byte) (int, error) {
	if err := w.free.room(int64(len(p))); err != nil {
		return 0, err
	}
	return w.file.Write(p)
}
