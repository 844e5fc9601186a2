package joblog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/termtext"
)

// Line is a log line for clients. Text is valid UTF-8, contains no terminal escapes except for
// colours, and ends with a newline unless the next line continues it.
type Line struct {
	Time   time.Time
	Text   string
	Header string // name of the step that starts here; such a line has no text
}

// readAhead is the number of bytes read from a stream at once. It is the size of several frames of
// maximum length.
const readAhead = 256 << 10

var buffers = sync.Pool{New: func() any { return new([readAhead]byte) }}

// buffer returns a buffer for reads of a stream. The caller must call done after its last use.
func buffer() (buf []byte, done func()) {
	b, ok := buffers.Get().(*[readAhead]byte)
	if !ok {
		b = new([readAhead]byte)
	}
	return b[:], func() { buffers.Put(b) }
}

type room struct{ lines, bytes int }

func (r *room) full() bool { return r.lines <= 0 || r.bytes <= 0 }

func (r *room) use(line Line) {
	r.lines--
	r.bytes -= len(line.Text)
}

// readLines decodes lines from a byte offset until the page is full or a frame is incomplete. It
// returns the lines and the next offset. It returns bytes that do not form a frame as plain lines.
func (l *Store) readLines(ctx context.Context, key string, offset int64, page *room) ([]Line, int64, error) {
	var out []Line
	var text []byte
	if page.full() {
		return out, offset, nil
	}
	err := l.each(ctx, key, offset, func(f protocol.Frame, size int) bool {
		line := decode(f, &text)
		out = append(out, line)
		page.use(line)
		offset += int64(size)
		return !page.full()
	})
	return out, offset, err
}

// decode returns a frame as a line for clients: as valid UTF-8, without terminal escapes except for
// colours. It reuses the memory of buf.
func decode(f protocol.Frame, buf *[]byte) Line {
	*buf = termtext.Coloured((*buf)[:0], f.Text)
	if !f.Fragment {
		*buf = append(*buf, '\n')
	}
	return Line{Time: f.Time, Text: string(*buf)}
}

// parseLine returns the line at the start of b without decoding its text. used is its number of
// bytes, or 0 if the line is incomplete. Bytes that do not form a frame are a line without a time.
func parseLine(b []byte) (f protocol.Frame, used int) {
	f, used, err := protocol.ParseFrame(b)
	if err == nil {
		return f, used
	}
	switch used = foreignSize(b, err); {
	case used == 0:
		return protocol.Frame{}, 0
	case b[used-1] == '\n':
		return protocol.Frame{Text: b[:used-1]}, used
	default:
		return protocol.Frame{Text: b[:used], Fragment: true}, used
	}
}

// foreignSize returns the size of a line that is not a frame, because parsing it failed with err. A
// line that is too long for a frame is split.
func foreignSize(b []byte, err error) int {
	limit := len(b)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		limit = min(limit, protocol.MaxFrameText)
	}
	// A header that contains a newline is not a frame.
	if i := bytes.IndexByte(b[:limit], '\n'); i >= 0 {
		return i + 1
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || len(b) < protocol.MaxFrameText {
		return 0
	}
	return protocol.MaxFrameText
}

// readFrom returns up to count lines from the line first on, as many as fit into a page, and whether
// the stream has more.
func (l *Store) readFrom(ctx context.Context, key string, first int64, count int) ([]Line, bool, error) {
	var out []Line
	var text []byte
	page := room{count, pageBytes}
	known, err := l.eachFrom(ctx, key, first, first+int64(count), func(_ int64, f protocol.Frame) bool {
		line := decode(f, &text)
		out = append(out, line)
		page.use(line)
		return !page.full()
	})
	return out, len(out) > 0 && first+int64(len(out)) < known, err
}

// eachFrom calls visit for the lines of a stream from the line first on, with their numbers, until visit
// returns false. It first scans the stream up to its end or the wanted line, visits only scanned lines,
// and returns their number.
func (l *Store) eachFrom(ctx context.Context, key string, first, want int64, visit func(at int64, f protocol.Frame) bool) (known int64, err error) {
	ix := l.index(key)
	if err := l.scan(ctx, key, ix, want); err != nil {
		return 0, err
	}
	at, offset, known := ix.before(first)
	if first >= known {
		return known, nil
	}
	return known, l.each(ctx, key, offset, func(f protocol.Frame, _ int) bool {
		at++
		return (at <= first || visit(at-1, f)) && at < known
	})
}

// PutLines stores log lines that were sent as JSON, and syncs them to disk, because the sender does
// not keep them. Offsets are line numbers. PutLines skips lines that are already stored.
func (l *Store) PutLines(ctx context.Context, key string, r protocol.LogLines) error {
	if err := l.appendLines(ctx, key, r); err != nil || l.instant {
		return err
	}
	_, err := l.Sync(ctx, key)
	return err
}

func (l *Store) appendLines(ctx context.Context, key string, r protocol.LogLines) error {
	st := l.open(key)
	st.mu.Lock()
	defer st.mu.Unlock()
	ix := l.index(key)
	if err := l.scan(ctx, key, ix, allLines); err != nil {
		return err
	}
	have, scanned := ix.end()
	if have -= r.Offset; have > 0 {
		r.Lines = r.Lines[min(have, int64(len(r.Lines))):]
	}
	var framed []byte
	for _, line := range r.Lines {
		framed = protocol.AppendFrame(framed, line.Time, false, []byte(strings.TrimSuffix(line.Line, "\n")))
	}
	if len(framed) == 0 {
		return nil
	}
	_, err := l.append(ctx, key, st, scanned, framed)
	return err
}
