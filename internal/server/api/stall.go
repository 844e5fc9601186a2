package api

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// defaultStall is how long a client may neither send nor take anything while
	// it is its turn.
	defaultStall = time.Minute
	// stallsInAll bounds one body or response, however steadily it trickles, in
	// times of the stall.
	stallsInAll = 30
	// writePiece is how much of a response has to be taken in one stall, in bytes.
	writePiece = 64 << 10
)

// cutStalled ends connections of clients that stop sending a body, or stop taking
// a response, so that nobody can hold them all. Waiting for the server, as in a
// long poll, is bounded elsewhere.
func cutStalled(stall time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Not every writer of tests has deadlines; those of connections do.
			c := http.NewResponseController(w)
			_ = c.SetWriteDeadline(time.Time{}) // of the request before, on the same connection
			if r.ContentLength != 0 {
				b := &stallBody{ReadCloser: r.Body, conn: c, stall: stall, end: time.Now().Add(stallsInAll * stall)}
				b.extend()
				r.Body = b
			}
			next.ServeHTTP(&stallWriter{ResponseWriter: w, conn: c, stall: stall}, r)
		})
	}
}

// stallBody is a request's body that has to go on.
type stallBody struct {
	io.ReadCloser
	conn  *http.ResponseController
	stall time.Duration
	end   time.Time
}

func (b *stallBody) extend() {
	deadline := time.Now().Add(b.stall)
	if deadline.After(b.end) {
		deadline = b.end
	}
	_ = b.conn.SetReadDeadline(deadline)
}

// Read reads from the body; at its end the connection may be silent again.
func (b *stallBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{})
	case err == nil:
		b.extend()
	}
	return n, err
}

// stallWriter is a response that has to be taken.
type stallWriter struct {
	http.ResponseWriter
	conn  *http.ResponseController
	stall time.Duration
	end   time.Time
}

// Unwrap is for [http.ResponseController].
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *stallWriter) extend() {
	now := time.Now()
	if w.end.IsZero() {
		w.end = now.Add(stallsInAll * w.stall)
	}
	deadline := now.Add(w.stall)
	if deadline.After(w.end) {
		deadline = w.end
	}
	_ = w.conn.SetWriteDeadline(deadline)
}

// WriteHeader begins the response.
func (w *stallWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write writes in pieces, each of which has its time.
func (w *stallWriter) Write(p []byte) (int, error) {
	written := 0
	for {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+writePiece)])
		written += n
		if err != nil || written >= len(p) {
			return written, err
		}
	}
}
