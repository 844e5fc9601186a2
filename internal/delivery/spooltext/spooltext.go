// Package spooltext writes a log spool as lines of text, for a program whose only connection to the
// outside is its standard output, and reads it back. A container engine stores such output line by
// line and can lose some of the lines. Every line has a checksum, the files have sizes and the data
// has offsets, so that the reader detects each loss and continues with the next file.
//
// The output has this form. Each line ends with a space and the CRC-32 of the text before that space,
// as 8 hexadecimal digits:
//
//	spool 1
//	file NAME SIZE
//	data OFFSET BASE64
//	…
//	done FILES
package spooltext

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"workflowagent/internal/delivery"
)

const (
	header = "spool 1"
	// lineBytes is the number of bytes per line of data. With base64, a line remains below the 16 KiB
	// at which container engines split lines.
	lineBytes = 9 << 10
	maxLine   = 64 << 10
)

// ErrIncomplete reports that a part of the spool is missing or damaged.
var ErrIncomplete = errors.New("the printed log spool is incomplete")

// Write writes the spool's files in dir to w. A missing directory is an empty spool.
func Write(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	writeLine(out, header)
	files := 0
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !delivery.IsFileName(entry.Name()) {
			continue
		}
		written, err := writeFile(out, root, entry.Name())
		if err != nil {
			return err
		}
		if written {
			files++
		}
	}
	writeLine(out, fmt.Sprint("done ", files))
	return out.Flush()
}

// writeLine writes a line with its checksum. A buffered writer reports errors when it is flushed.
func writeLine(w *bufio.Writer, text string) {
	fmt.Fprintf(w, "%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

func writeFile(w *bufio.Writer, root *os.Root, name string) (written bool, err error) {
	// The directory belongs to the job, which can replace a file by a pipe.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	writeLine(w, fmt.Sprint("file ", name, " ", info.Size()))
	content := io.LimitReader(file, info.Size())
	buf := make([]byte, lineBytes)
	for offset := 0; ; {
		n, err := io.ReadFull(content, buf)
		if n > 0 {
			writeLine(w, fmt.Sprint("data ", offset, " ", base64.StdEncoding.EncodeToString(buf[:n])))
			offset += n
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// Read calls add for each file in r. The content of a damaged file ends where the damage begins.
// Read returns an error of add at once. After damage, it continues with the next file and returns
// [ErrIncomplete] at the end. Empty input is an empty spool.
func Read(r io.Reader, add func(name string, size int64, content io.Reader) error) error {
	in := &reader{lines: bufio.NewReaderSize(r, maxLine), intact: true}
	in.advance()
	if errors.Is(in.err, io.EOF) {
		return nil
	}
	in.intact = strings.Join(in.words, " ") == header
	in.advance()
	done := false
	for files := 0; in.err == nil; {
		size, ok := in.file()
		if ok {
			name := in.words[1]
			in.advance()
			c := &content{in: in, left: size}
			if err := add(name, size, c); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, c); err != nil {
				return err
			}
			in.intact = in.intact && c.left == 0
			files++
			continue
		}
		if len(in.words) == 2 && in.words[0] == "done" {
			done = in.words[1] == strconv.Itoa(files)
		} else {
			in.intact = false
		}
		in.advance()
	}
	if !errors.Is(in.err, io.EOF) {
		return in.err
	}
	if !in.intact || !done {
		return ErrIncomplete
	}
	return nil
}

// reader reads lines. words is the current line, and err the reason why there is none.
type reader struct {
	lines  *bufio.Reader
	words  []string
	err    error
	intact bool
}

func (r *reader) advance() {
	line, err := r.lines.ReadSlice('\n')
	r.words = nil
	text := strings.TrimSuffix(string(line), "\n")
	if space := strings.LastIndexByte(text, ' '); space >= 0 && text[space+1:] == fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text[:space]))) {
		r.words = strings.Split(text[:space], " ")
	}
	for errors.Is(err, bufio.ErrBufferFull) { // not a line of ours
		r.words = nil
		_, err = r.lines.ReadSlice('\n')
	}
	if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
		r.err = err
	}
}

// file returns the size in the current line if it begins a file.
func (r *reader) file() (size int64, ok bool) {
	if len(r.words) != 3 || r.words[0] != "file" {
		return 0, false
	}
	size, err := strconv.ParseInt(r.words[2], 10, 64)
	return size, err == nil && size >= 0
}

// content reads the data of a file.
type content struct {
	in   *reader
	data []byte
	at   int64 // offset of the next byte
	left int64 // number of bytes that are still missing
}

func (c *content) Read(p []byte) (int, error) {
	for len(c.data) == 0 {
		if c.left == 0 || !c.decode() {
			return 0, io.EOF
		}
	}
	n := copy(p, c.data)
	c.data = c.data[n:]
	c.at += int64(n)
	c.left -= int64(n)
	return n, nil
}

func (c *content) decode() bool {
	if c.in.err != nil || len(c.in.words) != 3 || c.in.words[0] != "data" || c.in.words[1] != strconv.FormatInt(c.at, 10) {
		return false
	}
	data, err := base64.StdEncoding.DecodeString(c.in.words[2])
	if err != nil || int64(len(data)) > c.left || len(data) == 0 {
		return false
	}
	c.data = data
	c.in.advance()
	return true
}
