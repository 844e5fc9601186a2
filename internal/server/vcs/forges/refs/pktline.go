package refs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"workflowagent/internal/server/fault"
)

// maxLine is the maximum length of a packet, including its four digits of length.
const maxLine = 65520

// packet is the kind of a packet.
type packet int

const (
	data packet = iota
	flush
	delimiter
	end
)

// reader reads packets.
type reader struct {
	from io.Reader
	left int // bytes that may still be read
}

func newReader(from io.Reader) *reader { return &reader{from: from, left: maxBytes} }

var errTruncated = errors.New("the server's response ended early")

// next returns the next packet. Its text is a server's error message in place of an answer if err is
// not nil.
func (r *reader) next() (text string, kind packet, err error) {
	var length [4]byte
	if err := r.read(length[:]); err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(string(length[:]), 16, 16)
	switch {
	case err != nil || n == 3 || n > maxLine:
		return "", 0, errors.New("the server does not speak the git protocol")
	case n <= 2:
		return "", flush + packet(n), nil
	}
	body := make([]byte, n-4)
	if err := r.read(body); err != nil {
		return "", 0, err
	}
	if message, ok := strings.CutPrefix(string(body), "ERR "); ok {
		return "", 0, &serverError{strings.TrimSpace(message)}
	}
	return string(body), data, nil
}

func (r *reader) read(into []byte) error {
	if r.left -= len(into); r.left < 0 {
		return fault.New(fault.KindTooLarge, "the server's response has more than %d bytes", maxBytes)
	}
	if _, err := io.ReadFull(r.from, into); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	} else if err != nil {
		return err
	}
	return nil
}

// maxMessage limits what is repeated of a server's error message.
const maxMessage = 200

// serverError is an error that the server reports.
type serverError struct{ message string }

func (e *serverError) Error() string {
	return fmt.Sprintf("the server reports an error: %.*q", maxMessage, e.message)
}

// writer composes packets.
type writer struct{ bytes.Buffer }

func (w *writer) line(text string) { fmt.Fprintf(w, "%04x%s\n", len(text)+5, text) }
func (w *writer) delimiter()       { w.WriteString("0001") }
func (w *writer) flush()           { w.WriteString("0000") }
