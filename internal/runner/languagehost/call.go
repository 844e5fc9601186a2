package languagehost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// maxMessage bounds a request. The largest part of one is the environment of the CLI, which the
// operating system limits.
const maxMessage = 16 << 20

// Codes of gRPC.
const (
	codeOK            = 0
	codeUnknown       = 2
	codeInvalid       = 3
	codeUnimplemented = 12
)

// headerSize is the size of a message's header: whether it is compressed, and its length.
const headerSize = 5

// failure is the end of a call that failed.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// call is a gRPC call.
type call struct {
	w http.ResponseWriter
	r *http.Request
}

// request reads the only message of the client.
func (c *call) request() ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(c.r.Body, header[:]); err != nil {
		return nil, &failure{codeInvalid, fmt.Sprintf("reading the request: %v", err)}
	}
	size := binary.BigEndian.Uint32(header[1:])
	if header[0] != 0 || size > maxMessage {
		return nil, &failure{codeInvalid, fmt.Sprintf("the request of %d bytes is compressed or too large", size)}
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(c.r.Body, message); err != nil {
		return nil, &failure{codeInvalid, fmt.Sprintf("reading the request: %v", err)}
	}
	return message, nil
}

// send sends a message to the client at once.
func (c *call) send(message []byte) error {
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	if _, err := c.w.Write(append(framed, message...)); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

// end ends the call.
func (c *call) end(err error) {
	code, text := codeOK, ""
	if f, ok := errors.AsType[*failure](err); ok {
		code, text = f.code, f.text
	} else if err != nil {
		code, text = codeUnknown, err.Error()
	}
	c.w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(code))
	if text != "" {
		c.w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(text))
	}
}
