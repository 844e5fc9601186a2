package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"workflowagent/internal/protocol"
)

const (
	// maxJoined bounds the length in bytes of a line that is joined from fragments. The remaining
	// fragments become the next line. The split depends only on the log and not on the requests, so
	// that a retry sends the same lines.
	maxJoined = 64 << 10

	marksFormat = "lines sent 1 bytes=%d lines=%d"
	marksSize   = 128
)

// LineSender sends a spool's streams to a server that accepts only JSON lines and counts offsets in
// lines. It records its progress in a file next to each stream, so that another process continues
// with the same line numbers. Shippers must not share a LineSender.
type LineSender struct {
	sp   *Spool
	post func(ctx context.Context, step int, lines protocol.LogLines) error
	sent map[int]lineMark
}

// lineMark records how much of a stream the server has accepted.
type lineMark struct {
	bytes, lines int64 // on the server; only whole lines
	// ahead is the number of bytes after these that are fragments of open, the unfinished next
	// line.
	ahead int64
	open  protocol.LogLine
}

// NewLineSender returns a sender for the streams of sp. post sends lines of one step to the server,
// which must ignore lines that it already has.
func NewLineSender(sp *Spool, post func(ctx context.Context, step int, lines protocol.LogLines) error) *LineSender {
	return &LineSender{sp: sp, post: post, sent: map[int]lineMark{}}
}

// PutLog sends the whole lines in the frames of a step. It reports accepted lines as durable,
// because the server has no call that reports durability. It reports the fragments of an unfinished
// line only as received. They remain in the spool.
func (s *LineSender) PutLog(ctx context.Context, step int, offset int64, framed []byte, _ bool) (protocol.LogAck, error) {
	m, known := s.sent[step]
	if !known {
		m = s.load(step)
	}
	if len(framed) > 0 && offset != m.bytes+m.ahead {
		m.ahead, m.open = 0, protocol.LogLine{}
		s.sent[step] = m
		if offset != m.bytes {
			return protocol.LogAck{Received: m.bytes, Durable: m.bytes}, nil
		}
	}
	batch := protocol.LogLines{Offset: m.lines}
	next, err := m.appendLines(framed, &batch)
	if err != nil {
		return protocol.LogAck{}, err
	}
	if len(batch.Lines) > 0 {
		if err := s.post(ctx, step, batch); err != nil {
			return protocol.LogAck{}, err
		}
		s.save(step, next)
	}
	s.sent[step] = next
	return protocol.LogAck{Received: next.bytes + next.ahead, Durable: next.bytes}, nil
}

func (m lineMark) appendLines(framed []byte, batch *protocol.LogLines) (lineMark, error) {
	emit := func() {
		batch.Lines = append(batch.Lines, m.open)
		m.lines++
		m.bytes += m.ahead
		m.ahead, m.open = 0, protocol.LogLine{}
	}
	for len(framed) > 0 {
		frame, n, err := protocol.ParseFrame(framed)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // the incomplete frame is passed again with the next bytes
		}
		if err != nil {
			return m, fmt.Errorf("reading the log in the spool: %w", err)
		}
		framed = framed[n:]
		if m.ahead > 0 && len(m.open.Line)+len(frame.Text) > maxJoined {
			emit()
		}
		if m.ahead == 0 {
			m.open.Time = frame.Time
		}
		m.open.Line += string(frame.Text)
		m.ahead += int64(n)
		if !frame.Fragment {
			emit()
		}
	}
	return m, nil
}

func (s *LineSender) load(step int) lineMark {
	data, err := s.sp.root.ReadFile(stepName(step, marksSuffix))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.sp.opts.Log.WithError(err).WithField("step", step).Warn("cannot read how much of the log was sent; sending it again")
		}
		return lineMark{}
	}
	var m lineMark
	if _, err := fmt.Sscanf(string(data), marksFormat, &m.bytes, &m.lines); err != nil || m.bytes < 0 || m.lines < 0 || m.bytes > maxOffset || m.lines > m.bytes {
		return lineMark{}
	}
	return m
}

// save writes the progress in place with one system call, so that a crash of the process cannot
// tear the record. If the record is missing, the next process sends the spool's bytes again.
func (s *LineSender) save(step int, m lineMark) {
	f, err := openRegular(s.sp.root, stepName(step, marksSuffix), os.O_CREATE|os.O_WRONLY)
	if err == nil {
		text := fmt.Sprintf(marksFormat, m.bytes, m.lines)
		_, err = f.WriteAt(fmt.Appendf(nil, "%-*s\n", marksSize-1, text), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.sp.opts.Log.WithError(err).WithField("step", step).Debug("cannot record how much of the log was sent")
	}
}
