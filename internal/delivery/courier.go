package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

const (
	firstRetry     = 500 * time.Millisecond
	maxStatusPause = 15 * time.Second
	maxResultPause = time.Minute
	statusTime     = time.Minute
	// resultTime is the part of a delivery's time that is reserved for the result, which must be
	// reported even if the log does not arrive.
	resultTime = 5 * time.Minute
	// maxConflicts limits how often the server can request log that it has already received. After
	// that, the log is reported as gone.
	maxConflicts = 8
)

// Server is the part of the server's API that one job uses. [protocol.JobClient] implements it.
type Server interface {
	Sender
	StepStatus(ctx context.Context, step int, req protocol.StepStatusRequest) error
	PostLogLines(ctx context.Context, step int, lines protocol.LogLines) error
	Result(ctx context.Context, req protocol.ResultRequest) error
}

// CourierOptions are the settings of a [Courier]. Server and Log are required.
type CourierOptions struct {
	Server Server
	Log    *logrus.Entry
	// Stock means that the server supports only the stock calls. It accepts log as JSON lines, and
	// derives the job's outcome from the step statuses.
	Stock bool
	// Compress allows large pieces of log to be compressed.
	Compress bool
	// Retry is the first pause after a failed call; 0 means half a second.
	Retry time.Duration
	// Reporting, if set, is called after the log is sent and before the result.
	Reporting func()
	// Refused, if set, is called when the server first rejects the result, and the delivery
	// continues. If Refused is nil, a rejection ends the delivery.
	Refused func(err error)
	// Guard, if set, runs background work and repeats it after a panic until ctx is done.
	Guard func(ctx context.Context, what string, work func())
}

// Verdict is the outcome of a job.
type Verdict struct {
	Status     workflow.Status
	Reason     workflow.Reason
	Message    string // one line for the deployment's log
	ExitCode   *int
	Signal     string
	FinishedAt time.Time
	NotStarted bool // see [protocol.ResultRequest]
}

// Failed returns the verdict of a failed job with the given reason and message.
func Failed(reason workflow.Reason, format string, args ...any) Verdict {
	return Verdict{Status: workflow.StatusFailed, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Result returns the result that reports v. It does not include the log's streams.
func (v Verdict) Result() protocol.ResultRequest {
	return protocol.ResultRequest{
		Status: v.Status, Reason: v.Reason, Message: v.Message, ExitCode: v.ExitCode, Signal: v.Signal,
		FinishedAt: v.FinishedAt, Steps: []protocol.StepResult{}, NotStarted: v.NotStarted,
	}
}

// Courier delivers a job's log streams and its step statuses, in order, and then its verdict to the
// server.
type Courier struct {
	opts     CourierOptions
	statuses *statusQueue
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu   sync.Mutex
	logs []*Log
}

// Log is a [Spool] that a courier ships.
type Log struct {
	*Spool
	courier *Courier
	shipper *Shipper
	stop    context.CancelFunc
	running sync.WaitGroup
}

// NewCourier returns a courier, which the caller must close.
func NewCourier(opts CourierOptions) *Courier {
	if opts.Retry <= 0 {
		opts.Retry = firstRetry
	}
	if opts.Guard == nil {
		opts.Guard = func(_ context.Context, _ string, work func()) { work() }
	}
	// Everything accepted for delivery is sent until Close, independent of the job's context.
	ctx, stop := context.WithCancel(context.Background())
	c := &Courier{opts: opts, statuses: newStatusQueue(opts.Server, opts.Retry, opts.Log), stop: stop}
	c.running.Go(func() {
		opts.Guard(ctx, "sending step statuses", func() { c.statuses.run(ctx) })
	})
	return c
}

// OpenLog opens the spool in dir and starts shipping it.
func (c *Courier) OpenLog(dir string, opts Options) (*Log, error) {
	if opts.Log == nil {
		opts.Log = c.opts.Log
	}
	spool, err := Open(dir, opts)
	if err != nil {
		return nil, err
	}
	var sender Sender = c.opts.Server
	if c.opts.Stock {
		sender = NewLineSender(spool, c.opts.Server.PostLogLines)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Log{Spool: spool, courier: c, stop: stop}
	l.shipper = NewShipper(spool, sender, ShipperOptions{Compress: c.opts.Compress, Log: c.opts.Log})
	c.mu.Lock()
	c.logs = append(c.logs, l)
	c.mu.Unlock()
	l.running.Go(func() {
		c.opts.Guard(ctx, "sending a job's log", func() {
			if err := l.shipper.Run(ctx); err != nil {
				c.opts.Log.WithError(err).Warn("the server no longer accepts this job's log")
			}
		})
	})
	return l, nil
}

// Close stops shipping and closes the spool. The spool's files remain.
func (l *Log) Close() error {
	c := l.courier
	c.mu.Lock()
	c.logs = slices.DeleteFunc(c.logs, func(other *Log) bool { return other == l })
	c.mu.Unlock()
	l.stop()
	l.running.Wait()
	return l.Spool.Close()
}

// Close stops all deliveries and closes the logs.
func (c *Courier) Close() error {
	c.stop()
	c.running.Wait()
	var errs []error
	for _, l := range c.open() {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (c *Courier) open() []*Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.logs)
}

// Progress returns how many bytes the open logs have received, and how many of them the server has
// yet to receive.
func (c *Courier) Progress() (written, pending int64) {
	for _, l := range c.open() {
		w, p := l.Spool.Progress()
		written, pending = written+w, pending+p
	}
	return written, pending
}

// ReportStep queues a step's status. It never blocks.
func (c *Courier) ReportStep(step int, req protocol.StepStatusRequest) {
	c.statuses.add(step, req)
}

// FlushStatuses waits until the server has accepted or rejected every status.
func (c *Courier) FlushStatuses(ctx context.Context) error { return c.statuses.flush(ctx) }

// FlushLog waits until the server can no longer lose any part of the log.
func (c *Courier) FlushLog(ctx context.Context) error {
	var errs []error
	for _, l := range c.open() {
		errs = append(errs, l.shipper.Flush(ctx))
	}
	return errors.Join(errs...)
}

// Deliver sends the remaining log and statuses, and then the verdict. It returns when the server
// has them or ctx is done. Unsent statuses delay the verdict only briefly. The verdict is sent even
// if the log cannot be.
func (c *Courier) Deliver(ctx context.Context, v Verdict) error {
	logCtx := ctx
	if deadline, ok := ctx.Deadline(); ok {
		reserved, cancel := context.WithDeadline(ctx, deadline.Add(-min(resultTime, time.Until(deadline)/4)))
		defer cancel()
		logCtx = reserved
	}
	logErr := c.FlushLog(logCtx)
	if logErr != nil {
		c.opts.Log.WithError(logErr).Warn("part of the log was not delivered; it stays in the spool")
	}
	if c.opts.Reporting != nil {
		c.opts.Reporting()
	}
	if c.opts.Stock {
		return errors.Join(logErr, c.FlushStatuses(ctx))
	}
	limited, cancel := context.WithTimeout(ctx, statusTime)
	if err := c.FlushStatuses(limited); err != nil {
		c.opts.Log.WithError(err).Debug("sending the result although some step statuses are undelivered")
	}
	cancel()
	return c.postResult(ctx, logCtx, v)
}

// postResult sends the verdict until the server accepts it. Until logCtx is done, it also sends the
// log that the server requests.
func (c *Courier) postResult(ctx, logCtx context.Context, v Verdict) error {
	gone := map[int]bool{}
	conflicts, refused := 0, false
	again := retry.Policy{First: c.opts.Retry, Max: maxResultPause}
	for tries := 0; ; tries++ {
		err := c.opts.Server.Result(ctx, c.describeLog(v.Result(), gone))
		conflict, isConflict := errors.AsType[*protocol.ResultConflictError](err)
		switch {
		case err == nil:
			return nil
		case protocol.Gone(err), errors.Is(err, protocol.ErrStarted):
			return err
		case isConflict:
			conflicts++
			unavailable := conflicts >= maxConflicts || c.FlushLog(logCtx) != nil && ctx.Err() == nil
			for _, m := range conflict.Missing {
				if unavailable || c.discarded(m) {
					gone[m.Step] = true
				}
			}
		case protocol.Permanent(err) && !refused:
			if c.opts.Refused == nil {
				return err
			}
			refused = true
			c.opts.Refused(err)
		}
		if cause := again.Wait(ctx, tries, err); cause != nil {
			return fmt.Errorf("delivering the result: %w", errors.Join(cause, err))
		}
	}
}

func (c *Courier) describeLog(req protocol.ResultRequest, gone map[int]bool) protocol.ResultRequest {
	for _, l := range c.open() {
		for _, s := range l.Summaries() {
			req.Steps = append(req.Steps, protocol.StepResult{Step: s.Step, Bytes: s.Bytes, SHA256: s.SHA256, Gone: gone[s.Step]})
			req.Truncated = req.Truncated || s.Truncated
		}
	}
	return req
}

// discarded reports whether a spool has dropped the requested bytes because they were reported as
// durable.
func (c *Courier) discarded(m protocol.MissingLog) bool {
	for _, l := range c.open() {
		for _, s := range l.list() {
			if _, durable := s.Acked(); s.step == m.Step && durable > m.Received {
				return true
			}
		}
	}
	return false
}
