package redact

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// flushAfter limits the time for which complete lines are held because they might begin a secret.
const flushAfter = 50 * time.Millisecond

// maxPiece limits the number of bytes that are masked at once, and so a writer's memory.
const maxPiece = 256 << 10

// maxHeld is the number of bytes above which complete lines are no longer held, because line breaks
// within an occurrence could be any number.
const maxHeld = 8 << 10

var errWriterClosed = errors.New("write to a masking writer that is closed")

// Writer masks the text that is written to it and writes the result to its destination. It is safe
// for concurrent use.
//
// It writes text at once unless the text can be part of a secret. It holds back the longest suffix
// of the stream that is the beginning of a secret, or of a piece of a long secret. This suffix is
// shorter than 256 bytes, without its line breaks. It also holds back the beginning of a character
// or escape sequence, because readers decode each of its writes by itself. One of the following decides what happens to
// the held text:
//
//   - The next bytes, usually.
//   - [Writer.Flush], which the writer calls after 50 ms, writes complete lines. A multi-line
//     secret might have begun in them, but its lines of at least [MinLength] bytes are masked one
//     by one, and shorter lines are not secrets. Flush never writes part of a line that might be
//     the beginning of a secret.
//   - [Writer.Close] masks the text if it is at least [MinLength] long, because a secret was
//     probably cut off. Otherwise Close writes it.
type Writer struct {
	set *Set
	dst io.Writer

	mu      sync.Mutex
	scanner scanner
	held    []byte
	heldAt  int64 // offset of the held text in the written text
	timer   *time.Timer
	armedAt int64 // heldAt when the timer was started; -1 if it is not running
	closed  bool
	err     error // error of dst, kept because all later output is lost
}

// Writer returns a writer that masks the secrets of s, including those added later, and writes the
// masked text to dst in as few writes as possible. The caller must close it.
func (s *Set) Writer(dst io.Writer) *Writer {
	return &Writer{set: s, dst: dst, armedAt: -1}
}

// Write masks p and writes it to the destination, except for text that it holds back. An error of
// the destination is permanent.
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

// Flush writes the complete lines that are held back; see [Writer].
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.err == nil {
		w.pass(nil, wholeLines)
		w.arm()
	}
	return w.err
}

// Close masks or writes the held text; see [Writer]. It does not close the destination. It may be
// called more than once.
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

// pass masks and writes the held text and piece. The caller holds the lock.
func (w *Writer) pass(piece []byte, mode scanMode) {
	text := piece
	if len(w.held) > 0 {
		w.held = append(w.held, piece...)
		text = w.held
		switch held := len(text) - len(piece); {
		case held > 4*maxHeld:
			mode = endOfStream // only invisible bytes can be so many
		case held > maxHeld && mode == moreToCome:
			mode = wholeLines
		}
	}
	var cut int // bytes of an incomplete character or escape sequence
	if mode != endOfStream {
		cut = max(incomplete(text), incompleteSequence(text))
	}
	masked, hold := w.scanner.scan(w.set.matcher.Load(), text[:len(text)-cut], mode)
	if len(masked) > 0 {
		_, w.err = w.dst.Write(masked)
	}
	w.held = append(w.held[:0], text[hold:]...)
	w.heldAt += int64(hold)
}

// incomplete returns the number of bytes at the end of text that begin a character whose other bytes
// are missing.
func incomplete(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// arm ensures that held lines are flushed in time, counted from their first byte. If the time were
// counted from the last write, a slow but steady stream would hold them forever. The caller holds
// the lock.
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
