package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/budget"
)

// gzipFrom is the size from which responses are compressed.
const gzipFrom = 4 << 10

// GzipMemory is what a compressor of responses takes, in bytes.
const GzipMemory = 1 << 20

// compressors are used again, because making one costs more than its work on
// most responses.
var compressors = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		return nil // the level is a constant
	}
	return z
}}

// WriteJSON answers with a status and a JSON body, compressed when it is large
// and the client takes it. Its memory is charged to the request.
func WriteJSON(w http.ResponseWriter, r *http.Request, status int, v any) error {
	body, err := encodeJSON(v)
	if err != nil {
		return err
	}
	if err := budget.Of(r.Context()).Take(r.Context(), 2*int64(len(body))); err != nil {
		return err
	}
	return WriteRaw(w, r, status, body)
}

func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding the response: %w", err)
	}
	return buf.Bytes(), nil
}

func jsonHeader(w http.ResponseWriter) http.Header {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept-Encoding")
	return h
}

// WriteRaw is writeJSON for JSON that is encoded already. A client that does
// not read its response is no error of the server.
func WriteRaw(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	h := jsonHeader(w)
	if len(body) >= gzipFrom && acceptsGzip(r) {
		packed, err := compress(body)
		if err != nil {
			return err
		}
		// A slow client holds only the compressed form.
		body = packed
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client may be gone
	return nil
}

func compress(body []byte) ([]byte, error) {
	z, ok := compressors.Get().(*gzip.Writer)
	if !ok {
		return nil, errors.New("compressing the response: there is no compressor")
	}
	defer compressors.Put(z)
	var out bytes.Buffer
	z.Reset(&out)
	if _, err := z.Write(body); err != nil {
		return nil, fmt.Errorf("compressing the response: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compressing the response: %w", err)
	}
	return out.Bytes(), nil
}

// Streaming is a JSON response that is written while it is made, so that only a
// piece of it is in memory. Until gzipFrom bytes were written an error can still
// be answered as one; later the connection is aborted, so that no client takes
// what has come for the whole.
type Streaming struct {
	w    http.ResponseWriter
	r    *http.Request
	head []byte // nil when the response has begun
	z    *gzip.Writer
}

// Stream answers 200 with what write writes. All the memory that write takes is
// charged before, because a response that has begun cannot be put off.
func Stream(w http.ResponseWriter, r *http.Request, memory int64, write func(s *Streaming) error) error {
	if err := budget.Of(r.Context()).Take(r.Context(), GzipMemory+memory); err != nil {
		return err
	}
	s := &Streaming{w: w, r: r, head: make([]byte, 0, gzipFrom)}
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

// errNotTaken says that the client does not take its response.
var errNotTaken = errors.New("the client does not take the response")

func notTaken(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errNotTaken, err)
}

// Write adds to the response. It fails when the client is gone.
func (s *Streaming) Write(p []byte) (int, error) {
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

func (s *Streaming) begin() error {
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

func (s *Streaming) send(p []byte) (int, error) {
	w := io.Writer(s.w)
	if s.z != nil {
		w = s.z
	}
	n, err := w.Write(p)
	return n, notTaken(err)
}

// value adds a JSON value.
func (s *Streaming) value(v any) error {
	body, err := encodeJSON(v)
	if err != nil {
		return err
	}
	_, err = s.Write(bytes.TrimSuffix(body, []byte("\n")))
	return err
}

// streamedList is a list in a streamed response.
type streamedList struct {
	s    *Streaming
	n    int
	head string // what comes before the first element
}

// List begins a list; head is the JSON up to its first element.
func (s *Streaming) List(head string) *streamedList { return &streamedList{s: s, head: head} }

// Add adds an element.
func (l *streamedList) Add(v any) error {
	if err := l.separate(); err != nil {
		return err
	}
	l.n++
	return l.s.value(v)
}

func (l *streamedList) separate() error {
	if l.n > 0 {
		return l.s.text(",")
	}
	return l.s.text(l.head)
}

// End writes the JSON behind the list, unless err says that it is not whole.
func (l *streamedList) End(err error, tail string) error {
	if err == nil && l.n == 0 {
		err = l.s.text(l.head)
	}
	if err != nil {
		return err
	}
	return l.s.text(tail)
}

// text adds JSON that is encoded already.
func (s *Streaming) text(text string) error {
	_, err := s.Write([]byte(text))
	return err
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.ReplaceAll(q, " ", "") != "q=0"
		}
	}
	return false
}

// NoContent answers 204.
func NoContent(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// byteCount writes a number of bytes for people.
func byteCount(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
