package joblog

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"time"
	"unicode/utf8"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

const (
	// MaxRows is the maximum number of lines that [Store.Rows] returns.
	MaxRows = 2000
	// maxRowText is the length at which the text of a row is cut, in bytes.
	maxRowText = 4 << 10
)

// Severity is the severity that the text of a line states.
type Severity int

// The severities.
const (
	Normal Severity = iota
	Warning
	Error
)

// Row is a line as pages show it. Its text contains colours, but neither newlines nor carriage
// returns: of a line that a program has overwritten, it is the last state.
type Row struct {
	Time     time.Time // zero if unknown
	Text     string
	Severity Severity
	Cut      bool // the line has more text
	Joined   bool // the line continues the previous one
	Note     bool // the line is by the server
}

// Rows is a part of a stream. It can contain fewer lines than requested.
type Rows struct {
	From  int64 // number of the first line, starting at 0
	Lines int64 // number of lines in the stream
	Rows  []Row
}

// Streams returns the number of streams of each claim of a job: one for each step, then the
// agent's. The server's notes follow as one more.
func Streams(job store.Job) int { return len(job.Steps) + 1 }

// StreamName returns the name of a stream or of the server's notes.
func StreamName(job store.Job, stream int) string {
	if stream == Streams(job) {
		return "Server"
	}
	return streamName(job, stream)
}

// CheckStream checks that a stream of a claim exists.
func CheckStream(job store.Job, epoch int64, stream int) error {
	if epoch < 1 || epoch > job.Epoch {
		return fault.NotFound("the deployment has no attempt %d", epoch)
	}
	if stream < 0 || stream > Streams(job) {
		return fault.NotFound("the deployment has no log of step %d", stream+1)
	}
	return nil
}

// notes returns the server's notes about a job. They belong to its last claim.
func notes(job store.Job, epoch int64) []Line {
	if epoch != job.Epoch {
		return nil
	}
	var out []Line
	if job.LogExpired {
		out = expired(job)
	}
	for _, n := range job.Notes {
		out = append(out, Line{Time: n.At, Text: n.Text})
	}
	return out
}

// Counts returns the number of lines of each stream of a claim, and of the server's notes.
func (l *Store) Counts(ctx context.Context, job store.Job, epoch int64) ([]int64, error) {
	counts := make([]int64, Streams(job)+1)
	counts[Streams(job)] = int64(len(notes(job, epoch)))
	if job.LogExpired {
		return counts, nil
	}
	for i := range Streams(job) {
		n, err := l.Count(ctx, job.ID, epoch, i)
		if err != nil {
			return nil, err
		}
		counts[i] = n
	}
	return counts, nil
}

// Count returns the number of lines of a stream.
func (l *Store) Count(ctx context.Context, jobID string, epoch int64, stream int) (int64, error) {
	key := Key(jobID, epoch, stream)
	ix := l.index(key)
	err := l.scan(ctx, key, ix, allLines)
	lines, _ := ix.end()
	return lines, err
}

// Rows returns up to count lines of a stream from the line from, which starts at 0. If whole is set,
// long lines are not cut.
func (l *Store) Rows(ctx context.Context, job store.Job, epoch int64, stream int, from int64, count int, whole bool) (Rows, error) {
	if err := CheckStream(job, epoch, stream); err != nil {
		return Rows{}, err
	}
	if from < 0 || count < 1 || count > MaxRows {
		return Rows{}, fault.Invalid("count must be between 1 and %d, and from must not be negative", MaxRows)
	}
	out := Rows{From: from}
	if stream == Streams(job) || job.LogExpired {
		if stream < Streams(job) {
			return out, nil
		}
		list := notes(job, epoch)
		out.Lines = int64(len(list))
		for _, line := range list[min(from, out.Lines):min(from+int64(count), out.Lines)] {
			row := newRow(protocol.Frame{Time: line.Time, Text: []byte(line.Text)}, whole)
			row.Note = true
			out.Rows = append(out.Rows, row)
		}
		return out, nil
	}
	if err := budget.Of(ctx).Take(ctx, pageMemory); err != nil {
		return Rows{}, err
	}
	page := room{count, pageBytes}
	joined := false
	var err error
	// The line before the first one says whether that one continues it.
	out.Lines, err = l.eachFrom(ctx, Key(job.ID, epoch, stream), max(0, from-1), allLines, func(at int64, f protocol.Frame) bool {
		if at >= from {
			row := newRow(f, whole)
			row.Joined = joined
			out.Rows = append(out.Rows, row)
			page.use(Line{Text: row.Text})
		}
		joined = f.Fragment
		return !page.full()
	})
	return out, err
}

// each calls visit for the lines of a stream from an offset, until visit returns false. The text is
// valid until visit returns; size is the number of bytes of the line in the stream.
func (l *Store) each(ctx context.Context, key string, offset int64, visit func(f protocol.Frame, size int) bool) error {
	buf, done := buffer()
	defer done()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, err := l.blobs.ReadAt(ctx, key, offset, buf)
		if err != nil {
			return err
		}
		n := 0
		for n < size {
			f, used := parseLine(buf[n:size])
			if used == 0 {
				break
			}
			if !visit(f, used) {
				return nil
			}
			n += used
		}
		if n == 0 {
			return nil
		}
		offset += int64(n)
	}
}

func newRow(f protocol.Frame, whole bool) Row {
	text := termtext.Coloured(nil, lastState(f.Text))
	row := Row{Time: f.Time}
	row.Severity, _ = severity(text)
	if !whole && len(text) > maxRowText {
		text, row.Cut = cutText(text, maxRowText), true
	}
	row.Text = string(text)
	return row
}

// lastState returns the text that a terminal shows after a program has returned to the start of the
// line.
func lastState(text []byte) []byte {
	for end := len(text); ; {
		i := bytes.LastIndexByte(text[:end], '\r')
		if i < 0 {
			return text[:end]
		}
		if part := text[i+1 : end]; len(part) > 0 && (part[0] != 0x1b || len(termtext.Plain(nil, part)) > 0) {
			return part
		}
		end = i
	}
}

// cutText cuts valid text at a limit, but not within a character or colour.
func cutText(text []byte, limit int) []byte {
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	if i := bytes.LastIndexByte(text[:limit], 0x1b); i >= 0 && bytes.IndexByte(text[i:limit], 'm') < 0 {
		limit = i
	}
	return text[:limit]
}

// WriteText writes the log of one stream as text. Without coloured, it contains no colours.
func (l *Store) WriteText(ctx context.Context, w io.Writer, job store.Job, epoch int64, stream int, coloured bool) error {
	if err := CheckStream(job, epoch, stream); err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 32<<10)
	if stream == Streams(job) {
		for _, line := range notes(job, epoch) {
			out.WriteString(line.Text) //nolint:errcheck // Flush returns the error
			if line.Text == "" || line.Text[len(line.Text)-1] != '\n' {
				out.WriteByte('\n') //nolint:errcheck // Flush returns the error
			}
		}
		return out.Flush()
	}
	if job.LogExpired {
		return nil
	}
	clean := termtext.Plain
	if coloured {
		clean = termtext.Coloured
	}
	var text []byte
	var failed error
	err := l.each(ctx, Key(job.ID, epoch, stream), 0, func(f protocol.Frame, _ int) bool {
		text = clean(text[:0], f.Text)
		if !f.Fragment {
			text = append(text, '\n')
		}
		_, failed = out.Write(text)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return out.Flush()
}
