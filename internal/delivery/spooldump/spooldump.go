// Package spooldump copies a job's log spool through a stream of text lines, such as a container's
// output. The stream can lose its beginning or end, and other programs can write lines between: each
// line has a checksum, and the last line states how many there are.
//
//	workflow-spool/1 NAME SIZE OFFSET CHECKSUM DATA
//	workflow-spool/1 end LINES
//
// SIZE is the file's size in bytes. DATA are the bytes of the file at OFFSET, compressed with zstd,
// in base64, or - for an empty file. CHECKSUM is the CRC-32C of the fields before it and of the
// uncompressed bytes.
package spooldump

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/delivery"
	"workflowagent/internal/sys/boundedfile"
)

const (
	prefix = "workflow-spool/1 "
	// chunkSize is the number of a file's bytes in one line.
	chunkSize = 64 << 10
	// maxLine bounds the length of a line. Text that cannot be compressed grows by a third.
	maxLine = 2 * chunkSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(head string, data []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(head), castagnoli), castagnoli, data)
}

// Write writes the files of the spool in dir to w. A missing spool has no files. The job controls
// the directory, so Write follows no links and returns an error for a spool that is too large.
func Write(w io.Writer, dir string) error {
	out := bufio.NewWriter(w)
	lines, err := writeFiles(out, dir)
	if err == nil {
		err = writeEnd(out, lines)
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return fmt.Errorf("writing the log spool: %w", err)
	}
	return nil
}

// WriteNone writes a dump without files.
func WriteNone(w io.Writer) error { return writeEnd(w, 0) }

func writeEnd(out io.Writer, lines int) error {
	_, err := fmt.Fprintf(out, "%send %d\n", prefix, lines)
	return err
}

func writeFiles(out io.Writer, dir string) (lines int, err error) {
	// A job can replace the directory by a pipe, whose opening would never end.
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		return 0, errors.New("the job's spool is not a directory")
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return 0, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return 0, err
	}
	defer func() { _ = encoder.Close() }()
	left := int64(delivery.MaxCopy)
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !delivery.IsFileName(entry.Name()) {
			continue
		}
		n, err := writeFile(out, root, entry.Name(), &left, encoder)
		lines += n
		if err != nil {
			return lines, err
		}
	}
	return lines, nil
}

func writeFile(out io.Writer, root *os.Root, name string, left *int64, encoder *zstd.Encoder) (lines int, err error) {
	f, info, err := boundedfile.OpenIn(root, name, os.O_RDONLY|syscall.O_NOFOLLOW)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size := info.Size()
	if *left -= max(size, 4<<10); *left < 0 {
		return 0, fmt.Errorf("the spool is larger than the limit of %d bytes", delivery.MaxCopy)
	}
	buf := make([]byte, min(chunkSize, size))
	for offset := int64(0); offset < size || lines == 0; offset += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-offset)]
		if _, err := f.ReadAt(buf, offset); err != nil && len(buf) > 0 {
			return lines, err
		}
		head, data := fmt.Sprintf("%s %d %d", name, size, offset), "-"
		if len(buf) > 0 {
			data = base64.StdEncoding.EncodeToString(encoder.EncodeAll(buf, nil))
		}
		if _, err := fmt.Fprintf(out, "%s%s %08x %s\n", prefix, head, checksum(head, buf), data); err != nil {
			return lines, err
		}
		lines++
	}
	return lines, nil
}
