package runner

import (
	"context"
	"errors"
	"io"

	"workflowagent/internal/logspool"
	"workflowagent/internal/protocol"
)

// sender returns the way of the log that the server speaks. A launch without an
// epoch comes from a server with only the stock calls.
func (j *job) sender() logspool.Sender {
	if j.launch.Epoch == 0 {
		return &lineSender{server: j.server, posted: map[int]position{}}
	}
	return rawSender{j.server}
}

// rawSender sends frames by byte offset.
type rawSender struct{ server Server }

// PutLog sends bytes of a step's log.
func (s rawSender) PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (logspool.Ack, error) {
	ack, err := s.server.PutLog(ctx, step, offset, framed, compress)
	if gap := (*protocol.LogGapError)(nil); errors.As(err, &gap) {
		return logspool.Ack(gap.Ack), &logspool.GapError{Want: gap.Ack.Received}
	}
	return logspool.Ack(ack), err
}

// lineSender sends frames as lines of JSON. Its offsets count lines, so it keeps
// for each step how many lines the bytes sent so far were. It is used by one
// shipper, so by one goroutine.
type lineSender struct {
	server Server
	posted map[int]position
}

// position is how far a step's log was sent.
type position struct {
	bytes int64
	lines int64
}

// PutLog sends bytes of a step's log. What was accepted counts as durable: there
// is no way to ask.
func (s *lineSender) PutLog(ctx context.Context, step int, offset int64, framed []byte, _ bool) (logspool.Ack, error) {
	at := s.posted[step]
	if offset != at.bytes {
		return logspool.Ack{}, &logspool.GapError{Want: at.bytes}
	}
	lines := protocol.LogLines{Offset: at.lines}
	for rest := framed; len(rest) > 0; {
		frame, n, err := protocol.ParseFrame(rest)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // the rest comes again with the next bytes
		}
		if err != nil {
			return logspool.Ack{}, err
		}
		rest = rest[n:]
		at.bytes += int64(n)
		// A fragment becomes a line of its own: lines can be of any length, and the
		// spool stores what a program prints before it has ended its line.
		lines.Lines = append(lines.Lines, protocol.LogLine{Time: frame.Time, Line: string(frame.Text)})
		at.lines++
	}
	if len(lines.Lines) > 0 {
		if err := s.server.PostLogLines(ctx, step, lines); err != nil {
			return logspool.Ack{}, err
		}
	}
	s.posted[step] = at
	return logspool.Ack{Received: at.bytes, Durable: at.bytes}, nil
}
