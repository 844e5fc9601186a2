package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/server/fault"
)

// Limits bounds requests: their bodies in bytes, and their patience.
type Limits struct {
	Body        int64 // as sent; default 8 MiB
	Inflated    int64 // after decompression; default 32 MiB
	BigBody     int64 // state uploads, as sent; default 64 MiB
	BigInflated int64 // state uploads after decompression; default 512 MiB
	// Together bounds what all requests hold of large bodies at one time, after
	// decompression; default 1 GiB.
	Together int64
	// Stall is how long a client may neither send nor take anything while it is
	// its turn; default 1 min.
	Stall time.Duration

	held *atomic.Int64 // of Together
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		v   *int64
		def int64
	}{{&l.Body, 8 << 20}, {&l.Inflated, 32 << 20}, {&l.BigBody, 64 << 20}, {&l.BigInflated, 512 << 20}, {&l.Together, 1 << 30}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	if l.Stall <= 0 {
		l.Stall = defaultStall
	}
	if l.held == nil {
		l.held = new(atomic.Int64)
	}
	return l
}

type limitsKey struct{}

// requestLimits are the limits of one request, and what it holds of Together.
type requestLimits struct {
	Limits
	mine int64
}

// withLimits gives the request its limits. release must be called when it is done.
func withLimits(r *http.Request, l Limits) (limited *http.Request, release func()) {
	own := &requestLimits{Limits: l}
	return r.WithContext(context.WithValue(r.Context(), limitsKey{}, own)), func() { l.held.Add(-own.mine) }
}

// errBusy is the answer to a large body for which there is no room now.
var errBusy = &Error{Status: http.StatusServiceUnavailable, RetryAfter: 5 * time.Second, Message: "Service Unavailable: too many large uploads at a time; try again"}

// hold counts n more bytes of the request's body, which stay in memory until it
// is done. Small bodies are not counted.
func (l *requestLimits) hold(n, total int64) error {
	if total <= l.Inflated {
		return nil
	}
	if l.mine == 0 {
		n = total
	}
	l.mine += n
	if l.held.Add(n) > l.Together && l.mine < l.held.Load() { // one alone always may
		return errBusy
	}
	return nil
}

func limitsOf(r *http.Request) *requestLimits {
	if l, ok := r.Context().Value(limitsKey{}).(*requestLimits); ok {
		return l
	}
	return &requestLimits{Limits: Limits{}.withDefaults()}
}

// decode reads a JSON body whose members become columns of text into v. Members
// match case-insensitively and unknown ones are ignored, as clients of the public
// API expect; the content type is not looked at.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	l := limitsOf(r)
	return decodeWithin(w, r, v, l.Body, l.Inflated, true)
}

// decodeDocument is decode for a body that is kept as JSON, which may hold an
// escaped NUL.
func decodeDocument(w http.ResponseWriter, r *http.Request, v any) error {
	l := limitsOf(r)
	return decodeWithin(w, r, v, l.Body, l.Inflated, false)
}

// decodeBig is decodeDocument for the few calls that carry whole states.
func decodeBig(w http.ResponseWriter, r *http.Request, v any) error {
	l := limitsOf(r)
	return decodeWithin(w, r, v, l.BigBody, l.BigInflated, false)
}

// decodeOptional is decode for calls whose body may be left out.
func decodeOptional(w http.ResponseWriter, r *http.Request, v any) error {
	err := decode(w, r, v)
	if errors.Is(err, errEmptyBody) {
		return nil
	}
	return err
}

var errEmptyBody = fault.Invalid("Bad Request: the body is empty, JSON is expected")

func decodeWithin(w http.ResponseWriter, r *http.Request, v any, sent, inflated int64, columns bool) error {
	data, err := readText(w, r, sent, inflated, columns)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errEmptyBody
	}
	if err := json.Unmarshal(data, v); err != nil {
		return invalidJSON(err)
	}
	return nil
}

// invalidJSON explains what is wrong with a body without repeating its values,
// which may be secret.
func invalidJSON(err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fault.Wrap(fault.KindInvalid, err, "Bad Request: the body is not valid JSON (at byte %d)", syntax.Offset)
	case errors.As(err, &typ) && typ.Field != "":
		return fault.Invalid("Bad Request: member %q of the body must not be a JSON %s", typ.Field, strings.Fields(typ.Value)[0])
	case errors.As(err, &typ):
		return fault.Invalid("Bad Request: the body must not be a JSON %s", strings.Fields(typ.Value)[0])
	default:
		return fault.Wrap(fault.KindInvalid, err, "Bad Request: the body does not have the expected form")
	}
}

// readBody reads a whole body, decompressed. sent bounds its size on the wire,
// inflated its size in memory.
func readBody(w http.ResponseWriter, r *http.Request, sent, inflated int64) ([]byte, error) {
	return readAll(w, r, sent, inflated, func(body io.Reader) io.Reader { return body })
}

// readText is readBody for a body that has to be text; with columns it must not
// hold an escaped NUL either.
func readText(w http.ResponseWriter, r *http.Request, sent, inflated int64, columns bool) ([]byte, error) {
	return readAll(w, r, sent, inflated, func(body io.Reader) io.Reader { return &textReader{r: body, escapes: columns} })
}

func readAll(w http.ResponseWriter, r *http.Request, sent, inflated int64, through func(io.Reader) io.Reader) ([]byte, error) {
	opened, err := openBody(w, r, sent, inflated)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	body := through(opened)
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(min(r.ContentLength, sent)) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(body); err != nil {
		return nil, bodyError(err)
	}
	return buf.Bytes(), nil
}

// openBody returns the decompressed body as a stream with the same bounds.
// Its errors are to be passed through bodyError.
func openBody(w http.ResponseWriter, r *http.Request, sent, inflated int64) (io.ReadCloser, error) {
	if r.ContentLength > sent {
		return nil, &http.MaxBytesError{Limit: sent}
	}
	raw := http.MaxBytesReader(w, r.Body, sent)
	switch enc := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); enc {
	case "", "identity":
		return &boundedReader{r: raw, left: sent, limit: sent, close: raw.Close, hold: limitsOf(r).hold}, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(raw)
		if errors.Is(err, io.EOF) {
			return io.NopCloser(strings.NewReader("")), nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
		return &boundedReader{r: z, left: inflated, limit: inflated, close: z.Close, hold: limitsOf(r).hold}, nil
	case "zstd":
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(inflated)), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, bodyError(err)
		}
		return &boundedReader{r: z, left: inflated, limit: inflated, close: func() error { z.Close(); return nil }, hold: limitsOf(r).hold}, nil
	default:
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Message: fmt.Sprintf("Unsupported Media Type: Content-Encoding %q is not known here; use gzip, zstd or none", enc)}
	}
}

// bodyError tells a client's broken or oversized body from trouble of ours.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	var fe *fault.Error
	var he *Error
	if errors.As(err, &tooLarge) || errors.As(err, &fe) || errors.As(err, &he) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(fault.KindInvalid, err, "Bad Request: the body could not be read to its end")
}

// boundedReader refuses to inflate more than limit bytes.
type boundedReader struct {
	r     io.Reader
	left  int64
	limit int64
	close func() error
	hold  func(n, total int64) error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		// The limit itself is allowed: only a further byte is too much.
		var one [1]byte
		if n, err := io.ReadFull(b.r, one[:]); n == 0 {
			return 0, err
		}
		return 0, &http.MaxBytesError{Limit: b.limit}
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if busy := b.hold(int64(n), b.limit-b.left); busy != nil {
		return 0, busy
	}
	return n, err
}

func (b *boundedReader) Close() error { return b.close() }

// gzipFrom is the size from which responses are compressed.
const gzipFrom = 4 << 10

// writeJSON answers with a status and a JSON body, compressed when it is large
// and the client takes it.
func writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	return writeRaw(w, r, status, buf.Bytes())
}

// writeRaw is writeJSON for JSON that is encoded already. A client that does
// not read its response is no error of the server.
func writeRaw(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept-Encoding")
	if len(body) < gzipFrom || !acceptsGzip(r) {
		w.WriteHeader(status)
		w.Write(body) //nolint:errcheck,gosec // the client may be gone; JSON with nosniff is no page
		return nil
	}
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("compressing the response: %w", err)
	}
	z.Write(body) //nolint:errcheck // the client is gone
	z.Close()     //nolint:errcheck // the client is gone
	return nil
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

// noContent answers 204.
func noContent(w http.ResponseWriter) error {
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
