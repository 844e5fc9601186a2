package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/delivery"
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
	spool   *delivery.Spool
	shipper *delivery.Shipper
	stop    context.CancelFunc
	running sync.WaitGroup
}

// openJobLogs opens the streams that the agent writes itself and ships them from
// then on.
func openJobLogs(j *job) (*jobLogs, error) {
	return openLogs(j, filepath.Join(j.agent.journal.spoolDir(j.name), "agent"), nil)
}

// openLogs opens the streams in dir of the steps that has admits; nil admits all.
func openLogs(j *job, dir string, has func(step int) bool) (*jobLogs, error) {
	spool, err := delivery.Open(dir, delivery.Options{Limit: ownLogLimit, Has: has, Log: j.log})
	if err != nil {
		return nil, fmt.Errorf("opening the log of the job: %w", err)
	}
	l := &jobLogs{job: j, spool: spool}
	j.agent.board.change(j.name, func(s *shownJob) { s.logs = append(s.logs, l) })
	l.shipper = delivery.NewShipper(spool, newSender(j, spool), delivery.ShipperOptions{
		Compress: !protocol.OnLoopback(j.entry.ServiceURL),
		Log:      j.log,
	})
	// Shipping has the life of this object, not of a context that somebody ends:
	// what is in the spool is worth sending until the last moment.
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.running.Go(func() {
		j.keepRunning(ctx, "sending the log of a job", func() {
			if err := l.shipper.Run(ctx); err != nil {
				j.log.WithError(err).Debug("The server takes no more log of this job")
			}
		})
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
	if err != nil && !errors.Is(err, delivery.ErrClosed) {
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

// last returns the last stream that has anything in it, or -1.
func (l *jobLogs) last() int {
	last := -1
	for _, s := range l.spool.Summaries() {
		if s.Bytes > 0 {
			last = max(last, s.Step)
		}
	}
	return last
}

// endAll ends every stream there is and returns the last one that has anything
// in it, or -1.
func (l *jobLogs) endAll() int {
	for _, s := range l.spool.Summaries() {
		l.end(s.Step)
	}
	return l.last()
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

// newSender returns what carries the log in the spool to the job's server.
func newSender(j *job, spool *delivery.Spool) delivery.Sender {
	if j.entry.Claim.Epoch == 0 {
		return delivery.NewLineSender(spool, j.client.PostLogLines)
	}
	return rawSender{j.client}
}

// rawSender sends frames as they are.
type rawSender struct{ client *protocol.JobClient }

// PutLog sends frames of a step.
func (s rawSender) PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (delivery.Ack, error) {
	ack, err := s.client.PutLog(ctx, step, offset, framed, compress)
	if gap, ok := errors.AsType[*protocol.LogGapError](err); ok {
		return delivery.Ack{}, &delivery.GapError{Want: gap.Ack.Received}
	}
	return delivery.Ack{Received: ack.Received, Durable: ack.Durable, Limit: ack.Limit}, err
}
