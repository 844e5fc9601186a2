package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/budget"
)

// streaming is a JSON response that is never held in memory as a whole. An error in the first
// gzipFrom bytes becomes an error response. A later error aborts the connection, so that no client
// mistakes an incomplete response for a complete one.
type streaming struct {
	w    http.ResponseWriter
	r    *http.Request
	head []byte // nil when the response has begun
	z    *gzip.Writer
}

// Stream responds with status 200 and the output of write. It first charges all the memory that
// write needs, because the server can no longer reject a request whose response has begun.
func Stream(w http.ResponseWriter, r *http.Request, memory int64, write func(w io.Writer) error) error {
	if err := budget.Of(r.Context()).Take(r.Context(), GzipMemory+memory); err != nil {
		return err
	}
	s := &streaming{w: w, r: r, head: make([]byte, 0, gzipFrom)}
	defer func() {
		if s.z != nil {
			compressors.Put(s.z)
		}
	}()
	err := write(s)
	if s.head != nil {
		if err != nil {
			return err
		}
		return WriteRaw(w, r, http.StatusOK, s.head)
	}
	if err == nil && s.z != nil {
		err = notTaken(s.z.Close())
	}
	if err != nil {
		Abort(r, err)
	}
	return nil
}

var errNotTaken = errors.New("sending the response to the client failed")

func notTaken(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errNotTaken, err)
}

// Write appends p to the response. It fails if the client has disconnected.
func (s *streaming) Write(p []byte) (int, error) {
	if s.head != nil {
		if len(s.head)+len(p) < gzipFrom {
			s.head = append(s.head, p...)
			return len(p), nil
		}
		if err := s.begin(); err != nil {
			return 0, err
		}
	}
	return s.send(p)
}

func (s *streaming) begin() error {
	head := s.head
	s.head = nil
	h := jsonHeader(s.w)
	if acceptsGzip(s.r) {
		z, ok := compressors.Get().(*gzip.Writer)
		if ok {
			h.Set("Content-Encoding", "gzip")
			z.Reset(s.w)
			s.z = z
		}
	}
	s.w.WriteHeader(http.StatusOK)
	_, err := s.send(head)
	return err
}

func (s *streaming) send(p []byte) (int, error) {
	w := io.Writer(s.w)
	if s.z != nil {
		w = s.z
	}
	n, err := w.Write(p)
	return n, notTaken(err)
}

// Add adds an element to a JSON list, unless making it has failed with err, which it returns.
type Add func(v any, err error) error

// StreamList streams a JSON list. fill calls add for each element. head is the JSON before the
// elements, and tail returns the JSON after n elements.
func StreamList(w http.ResponseWriter, r *http.Request, memory int64, head string, fill func(add Add) error, tail func(n int) string) error {
	return Stream(w, r, memory, func(out io.Writer) error {
		n := 0
		before := head
		err := fill(func(v any, err error) error {
			if err != nil {
				return err
			}
			body, err := encodeJSON(v)
			if err != nil {
				return err
			}
			_, err = io.WriteString(out, before+strings.TrimSuffix(string(body), "\n"))
			n++
			before = ","
			return err
		})
		if err != nil {
			return err
		}
		if n > 0 {
			head = ""
		}
		_, err = io.WriteString(out, head+tail(n)+"\n")
		return err
	})
}
