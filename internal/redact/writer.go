package redact

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// flushAfter limits how long complete lines that may begin a secret are held.
const flushAfter = 50 * time.Millisecond

// maxPiece limits what is masked at once, in bytes, and so the memory of a writer.
const maxPiece = 256 << 10

var errWriterClosed = errors.New("write to a masking writer that is closed")

// Writer masks what is written to it and passes it on. It is safe for concurrent use.
//
// It passes on at once whatever cannot be part of a secret, and holds back the rest: the longest
// end of the stream that is the beginning of a secret or of a piece of a long one, so less than 256
// bytes. The held text is decided by
//
//   - the next bytes, mostly;
//   - [Writer.Flush], which the writer calls after 50 ms, for complete lines.
//     A multi-line secret may have begun in them, but its lines of [MinLength] and more are
//     masked one by one, and shorter ones are not secrets. Part of a line that may be the
//     beginning of a secret is never passed on because of time;
//   - [Writer.Close], which masks it if it is at least [MinLength] long, because a secret was
//     probably cut off, and else passes it on.
type Writer struct {
	set *Set
	dst io.Writer

	mu      sync.Mutex
	scanner scanner
	held    []byte
	heldAt  int64 // its offset in the written text
	timer   *time.Timer
	armedAt int64 // heldAt for which the timer was started; -1 if it is not running
	closed  bool
	err     error // of dst, kept: all later output is lost
}

// Writer returns a writer that masks the secrets of s, including those added later, and passes the
// text on to dst in as few writes as possible. The caller must close it.
func (s *Set) Writer(dst io.Writer) *Writer {
	return &Writer{set: s, dst: dst, armedAt: -1}
}

// Write masks p and passes it on, except for held text. An error of the destination is permanent.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, errWriterClosed
	}
	n := 0
	for n < len(p) && w.err == nil {
		piece := p[n:min(len(p), n+maxPiece)]
		w.pass(piece, moreToCome)
		n += len(piece)
	}
	w.arm()
	if w.err != nil {
		return 0, w.err
	}
	return n, nil
}

// Flush passes on the complete lines that are held back, see [Writer].
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.err == nil {
		w.pass(nil, wholeLines)
		w.arm()
	}
	return w.err
}

// Close masks the held text or passes it on. It does not close the destination and may be repeated.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.err == nil {
		w.pass(nil, endOfStream)
	}
	return w.err
}

// pass masks the held text and piece. The caller holds the lock.
func (w *Writer) pass(piece []byte, mode scanMode) {
	text := piece
	if len(w.held) > 0 {
		w.held = append(w.held, piece...)
		text = w.held
	}
	masked, hold := w.scanner.scan(w.set.matcher.Load(), text, mode)
	if len(masked) > 0 {
		_, w.err = w.dst.Write(masked)
	}
	w.held = append(w.held[:0], text[hold:]...)
	w.heldAt += int64(hold)
}

// arm ensures that held lines are flushed in time, counted from their first byte: counted from the
// last write, a slow but steady stream would hold them forever. The caller holds the lock.
func (w *Writer) arm() {
	switch {
	case bytes.IndexByte(w.held, '\n') < 0:
		if w.armedAt >= 0 {
			w.timer.Stop()
			w.armedAt = -1
		}
	case w.armedAt == w.heldAt:
	case w.timer == nil:
		w.timer = time.AfterFunc(flushAfter, w.onTimer)
		w.armedAt = w.heldAt
	default:
		w.timer.Reset(flushAfter)
		w.armedAt = w.heldAt
	}
}

func (w *Writer) onTimer() {
	w.mu.Lock()
	w.armedAt = -1
	w.mu.Unlock()
	// The next caller receives the error.
	_ = w.Flush()
}
