package web

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (

	// stallsInAll bounds the duration of one body or response, as a multiple of the stall limit.
	stallsInAll = 30
	// writePiece is the number of response bytes that a client must receive within the stall limit.
	writePiece = 64 << 10
)

// pace is the required speed of a client: some progress within each stall limit and, after the
// first stall limit, the rate on average.
type pace struct {
	stall time.Duration
	rate  int64 // bytes per second
	began time.Time
	bytes int64
}

func (p *pace) deadline() time.Time {
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	next := now.Add(p.stall)
	for _, end := range []time.Time{
		p.began.Add(p.stall + time.Duration(float64(p.bytes)/float64(p.rate)*float64(time.Second))),
		p.began.Add(stallsInAll * p.stall),
	} {
		if next.After(end) {
			next = end
		}
	}
	return next
}

// CutStalled returns middleware that closes the connections of clients that send a body or receive
// a response too slowly, so that such clients cannot occupy all connections. Other code bounds the
// time that clients wait for the server, as in a long poll.
func CutStalled(stall time.Duration, rate int64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Only the writers of real connections support deadlines. Writers in tests might not.
			c := http.NewResponseController(w)
			_ = c.SetWriteDeadline(time.Time{}) // clears the deadline of the previous request on this connection
			if r.ContentLength != 0 {
				b := &stallBody{ReadCloser: r.Body, conn: c, pace: pace{stall: stall, rate: rate}}
				b.extend()
				r.Body = b
			}
			next.ServeHTTP(&stallWriter{ResponseWriter: w, conn: c, pace: pace{stall: stall, rate: rate}}, r)
		})
	}
}

type stallBody struct {
	io.ReadCloser
	conn *http.ResponseController
	pace pace
}

func (b *stallBody) extend() { _ = b.conn.SetReadDeadline(b.pace.deadline()) }

// Read reads from the body. At the end of the body, it clears the deadline.
func (b *stallBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pace.bytes += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{})
	case err == nil:
		b.extend()
	}
	return n, err
}

type stallWriter struct {
	http.ResponseWriter
	conn *http.ResponseController
	pace pace
}

// Unwrap returns the underlying writer, for [http.ResponseController].
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *stallWriter) extend() { _ = w.conn.SetWriteDeadline(w.pace.deadline()) }

// WriteHeader begins the response.
func (w *stallWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write writes in pieces, each with its own deadline.
func (w *stallWriter) Write(p []byte) (int, error) {
	written := 0
	for {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+writePiece)])
		written += n
		w.pace.bytes += int64(n)
		if err != nil || written >= len(p) {
			return written, err
		}
	}
}
