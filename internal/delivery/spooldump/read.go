package spooldump

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/delivery"
)

// ErrIncomplete reports that lines of a dump are missing or damaged.
var ErrIncomplete = errors.New("the copy of the log spool is incomplete")

// Read reads a dump and calls add with the name, the size and the content of each file. It ignores
// lines that are not part of the dump. If lines are missing, Read continues with the next file and
// finally returns [ErrIncomplete]; the content of the damaged file then ends with that error.
func Read(r io.Reader, add func(name string, size int64, content io.Reader) error) error {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*chunkSize))
	if err != nil {
		return fmt.Errorf("reading the log spool: %w", err)
	}
	defer decoder.Close()
	d := &dump{lines: bufio.NewReaderSize(r, maxLine), decoder: decoder}
	complete := true
	for {
		first, err := d.next()
		switch {
		case err != nil:
			return fmt.Errorf("reading the log spool: %w", err)
		case first == nil:
			if !d.ended || !complete || d.count != d.want {
				return ErrIncomplete
			}
			return nil
		case first.offset != 0:
			complete = false
			continue
		}
		content := &content{dump: d, name: first.name, size: first.size, data: first.data, end: int64(len(first.data))}
		if err := add(first.name, first.size, content); err != nil && !errors.Is(err, ErrIncomplete) {
			return fmt.Errorf("reading the log spool: %w", err)
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			if !errors.Is(err, ErrIncomplete) {
				return fmt.Errorf("reading the log spool: %w", err)
			}
			complete = false
		}
	}
}

// line is a decoded line.
type line struct {
	name         string
	size, offset int64
	data         []byte
}

type dump struct {
	lines   *bufio.Reader
	decoder *zstd.Decoder
	pushed  *line // read but not consumed
	count   int   // valid lines
	want    int   // number of lines that the last line states
	ended   bool
}

// next returns the next line of the dump, or nil at its end.
func (d *dump) next() (*line, error) {
	if l := d.pushed; l != nil {
		d.pushed = nil
		return l, nil
	}
	for !d.ended {
		text, err := d.lines.ReadSlice('\n')
		for long := errors.Is(err, bufio.ErrBufferFull); long; long = errors.Is(err, bufio.ErrBufferFull) {
			text = nil
			_, err = d.lines.ReadSlice('\n')
		}
		if l, ok := d.parse(text); ok && l != nil {
			d.count++
			return l, nil
		}
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// parse decodes a line. It returns false for other text, and no line for the end of the dump.
func (d *dump) parse(text []byte) (*line, bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimRight(text, "\r\n"), []byte(prefix))
	if !ok {
		return nil, false
	}
	fields := bytes.Fields(rest)
	if len(fields) == 2 && string(fields[0]) == "end" {
		_, err := fmt.Sscanf(string(fields[1]), "%d", &d.want)
		d.ended = err == nil
		return nil, d.ended
	}
	if len(fields) != 5 {
		return nil, false
	}
	l := &line{name: string(fields[0])}
	var sum uint32
	if _, err := fmt.Sscanf(string(bytes.Join(fields[1:4], []byte(" "))), "%d %d %08x", &l.size, &l.offset, &sum); err != nil {
		return nil, false
	}
	if string(fields[4]) != "-" {
		packed, err := base64.StdEncoding.AppendDecode(nil, fields[4])
		if err != nil {
			return nil, false
		}
		if l.data, err = d.decoder.DecodeAll(packed, nil); err != nil {
			return nil, false
		}
	}
	head := fmt.Sprintf("%s %d %d", l.name, l.size, l.offset)
	if sum != checksum(head, l.data) || !delivery.IsFileName(l.name) || l.offset < 0 || l.offset+int64(len(l.data)) > l.size {
		return nil, false
	}
	return l, true
}

// content is the content of one file.
type content struct {
	dump *dump
	name string
	size int64
	data []byte // not read yet
	end  int64  // offset of the end of data
	err  error
}

func (c *content) Read(b []byte) (int, error) {
	for len(c.data) == 0 {
		if c.err == nil {
			c.err = c.fill()
		}
		if c.err != nil {
			return 0, c.err
		}
	}
	n := copy(b, c.data)
	c.data = c.data[n:]
	return n, nil
}

func (c *content) fill() error {
	if c.end == c.size {
		return io.EOF
	}
	l, err := c.dump.next()
	switch {
	case err != nil:
		return err
	case l == nil:
		return ErrIncomplete
	case l.name != c.name || l.offset != c.end || l.size != c.size || len(l.data) == 0:
		c.dump.pushed = l
		return ErrIncomplete
	}
	c.data, c.end = l.data, l.offset+int64(len(l.data))
	return nil
}
