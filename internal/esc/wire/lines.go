package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrTooLong is returned for a line that is longer than its limit.
var ErrTooLong = errors.New("the message is too long")

var errForm = errors.New("the message does not have the expected form")

// Reader reads messages.
type Reader struct {
	reader *bufio.Reader
	line   []byte
}

// NewReader returns a reader of the messages in r.
func NewReader(r io.Reader) *Reader {
	return &Reader{reader: bufio.NewReaderSize(r, 64<<10)}
}

// Read reads the next message, of at most limit bytes, into message. At the end of the input, which is not in
// the middle of a line, it returns [io.EOF]. After an error, the reader must not be used again.
//
// Errors contain no part of the message.
func (r *Reader) Read(message any, limit int) error {
	r.line = r.line[:0]
	for {
		part, err := r.reader.ReadSlice('\n')
		if len(r.line)+len(part) > limit+1 {
			return fmt.Errorf("%w: over %d bytes", ErrTooLong, limit)
		}
		r.line = append(r.line, part...)
		switch {
		case err == nil:
			return r.decode(message)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.line) > 0:
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
}

// Size returns the length of the last message in bytes.
func (r *Reader) Size() int { return len(r.line) }

func (r *Reader) decode(message any) error {
	err := json.Unmarshal(r.line, message)
	for _, known := range []error{errNesting, errCount, errShape, errList, errText} {
		if errors.Is(err, known) {
			return known
		}
	}
	if err != nil {
		return errForm // the original error may repeat a part of the message
	}
	return nil
}

// Append appends the line of a message to out. A line over limit bytes is [ErrTooLong].
func Append(out []byte, message any, limit int) ([]byte, error) {
	buffer := bytes.NewBuffer(out)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(message); err != nil {
		return nil, fmt.Errorf("writing a message between server and evaluator of environments: %w", err)
	}
	if buffer.Len()-len(out) > limit+1 {
		return nil, fmt.Errorf("%w: over %d bytes", ErrTooLong, limit)
	}
	return buffer.Bytes(), nil
}
