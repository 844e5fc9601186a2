package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/logspool"
	"workflowagent/internal/protocol"
)

// setupStep is the step whose log the agent writes while it prepares the job. The
// stream behind the definition's last step is the agent's, too: its closing words.
const setupStep = 0

const (
	// ownLogLimit bounds what the agent itself keeps of a job's log, in bytes; a
	// pull that tells its progress is the most of it.
	ownLogLimit = 4 << 20
	// maxLine bounds one line of the agent's own, in bytes.
	maxLine = 4 << 10
	// lineTime bounds how long a full disk may hold up a line.
	lineTime = 5 * time.Second
)

// jobLogs are log streams of one job on disk, and what ships them.
type jobLogs struct {
	job     *job
	spool   *logspool.Spool
	shipper *logspool.Shipper
	stop    context.CancelFunc
	running sync.WaitGroup
}

// openJobLogs opens the streams that the agent writes itself and ships them from
// then on.
func openJobLogs(j *job) (*jobLogs, error) {
	return openLogs(j, filepath.Join(j.agent.journal.spoolDir(j.name), "agent"))
}

func openLogs(j *job, dir string) (*jobLogs, error) {
	spool, err := logspool.Open(dir, logspool.Options{Limit: ownLogLimit, Log: j.log})
	if err != nil {
		return nil, fmt.Errorf("opening the log of the job: %w", err)
	}
	l := &jobLogs{job: j, spool: spool}
	j.agent.board.change(j.name, func(s *shownJob) { s.logs = append(s.logs, l) })
	l.shipper = logspool.NewShipper(spool, newSender(j), logspool.ShipperOptions{Compress: true, Log: j.log})
	// Shipping has the life of this object, not of a context that somebody ends:
	// what is in the spool is worth sending until the last moment.
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.running.Go(func() {
		if err := l.shipper.Run(ctx); err != nil {
			j.log.WithError(err).Debug("The server takes no more log of this job")
		}
	})
	return l, nil
}

// line writes one line to a stream, masked. A line that cannot be stored is told
// in the agent's own log.
func (l *jobLogs) line(step int, format string, args ...any) {
	text := strings.Join(strings.Fields(l.job.masks.String(fmt.Sprintf(format, args...))), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + " …"
	}
	ctx, cancel := context.WithTimeout(context.Background(), lineTime)
	defer cancel()
	stream, err := l.spool.Step(step)
	if err == nil {
		_, err = stream.WriteContext(ctx, []byte(text+"\n"))
	}
	if err != nil && !errors.Is(err, logspool.ErrClosed) {
		l.job.log.WithError(err).Warn("A line for the deployment's log could not be kept: " + text)
	}
}

// end says that a stream is complete.
func (l *jobLogs) end(step int) {
	stream, err := l.spool.Step(step)
	if err == nil {
		err = stream.Close()
	}
	if err != nil {
		l.job.log.WithError(err).Warn("The end of a log could not be made safe")
	}
}

// endAll ends every stream there is and returns the last one that has anything
// in it, or -1.
func (l *jobLogs) endAll() (last int) {
	last = -1
	for _, s := range l.spool.Summaries() {
		if s.Bytes > 0 {
			last = max(last, s.Step)
		}
		l.end(s.Step)
	}
	return last
}

// flush waits until the server has everything, for good.
func (l *jobLogs) flush(ctx context.Context) error {
	if err := l.shipper.Flush(ctx); err != nil {
		return fmt.Errorf("delivering the log: %w", err)
	}
	return nil
}

// results describes the streams for the job's result.
func (l *jobLogs) results() (steps []protocol.StepResult, truncated bool) {
	for _, s := range l.spool.Summaries() {
		steps = append(steps, protocol.StepResult{Step: s.Step, Bytes: s.Bytes, SHA256: s.SHA256})
		truncated = truncated || s.Truncated
	}
	return steps, truncated
}

// close stops shipping and releases the files.
func (l *jobLogs) close() error {
	l.stop()
	l.running.Wait()
	return l.spool.Close()
}

// newSender returns what carries log to the job's server.
func newSender(j *job) logspool.Sender {
	if j.entry.Claim.Epoch == 0 {
		return &linesSender{client: j.client, lines: map[int]mark{}}
	}
	return rawSender{j.client}
}

// rawSender sends frames as they are.
type rawSender struct{ client *protocol.JobClient }

// PutLog sends frames of a step.
func (s rawSender) PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (logspool.Ack, error) {
	ack, err := s.client.PutLog(ctx, step, offset, framed, compress)
	if gap, ok := errors.AsType[*protocol.LogGapError](err); ok {
		return logspool.Ack{}, &logspool.GapError{Want: gap.Ack.Received}
	}
	return logspool.Ack{Received: ack.Received, Durable: ack.Durable, Limit: ack.Limit}, err
}

// linesSender sends lines to a server that takes only those. Its offsets count
// lines, so it counts them.
type linesSender struct {
	client *protocol.JobClient

	mu    sync.Mutex
	lines map[int]mark
}

// mark is how far a step's log was sent: bytes of frames and lines.
type mark struct{ bytes, lines int64 }

// PutLog sends the lines in the frames of a step.
func (s *linesSender) PutLog(ctx context.Context, step int, offset int64, framed []byte, _ bool) (logspool.Ack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.lines[step]
	if offset != at.bytes {
		if len(framed) > 0 && offset < at.bytes {
			return logspool.Ack{}, &logspool.GapError{Want: at.bytes}
		}
		at.bytes = offset // sent by an earlier process, which took its count along
	}
	batch := protocol.LogLines{Offset: at.lines}
	rest, done := framed, 0
	var text []byte
	var last protocol.Frame
	for len(rest) > 0 {
		frame, n, err := protocol.ParseFrame(rest)
		if err != nil {
			break // the rest of a frame comes with the next request
		}
		text, last, rest = append(text, frame.Text...), frame, rest[n:]
		if !frame.Fragment {
			batch.Lines = append(batch.Lines, protocol.LogLine{Time: frame.Time, Line: string(text)})
			text, done = text[:0], len(framed)-len(rest)
		}
	}
	if done == 0 && len(rest) < len(framed) {
		// A line that is longer than a request is cut. A shorter one whose end is
		// yet to come is sent again with it.
		batch.Lines = append(batch.Lines, protocol.LogLine{Time: last.Time, Line: string(text)})
		done = len(framed) - len(rest)
	}
	if len(batch.Lines) > 0 {
		if err := s.client.PostLogLines(ctx, step, batch); err != nil {
			return logspool.Ack{}, err
		}
	}
	at.bytes += int64(done)
	at.lines += int64(len(batch.Lines))
	s.lines[step] = at
	return logspool.Ack{Received: at.bytes, Durable: at.bytes}, nil
}
