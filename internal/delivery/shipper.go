package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

const (
	// A request is sent shipDelay after its first byte was written, or at once when it has
	// shipBytes or the stream has ended.
	shipDelay  = 50 * time.Millisecond
	shipBytes  = 256 << 10
	maxRequest = 1 << 20
	// compressFrom is the minimum size of a chunk that is worth compressing, in bytes.
	compressFrom = 2 << 10
	// requestTimeout limits a request if the sender does not.
	requestTimeout = 2 * time.Minute

	// flushBackoff limits the time between attempts while a caller waits in Flush, because a job's
	// end is reported only after its log has arrived.
	flushBackoff  = 1500 * time.Millisecond
	maxRetryAfter = 2 * time.Minute

	// The limits of the pause between requests that ask the server to make bytes durable.
	firstAsk = 20 * time.Millisecond
	maxAsk   = time.Second
)

var sendRetry = retry.Policy{First: 250 * time.Millisecond, Max: 15 * time.Second}

// Sender sends bytes of a log to the server.
//
// A [*protocol.LogGapError] names the offset to continue with. The shipper retries after any other
// error, with two exceptions: after a [protocol.Permanent] error it sends no more of the step, and
// after a [protocol.Gone] error it sends nothing at all.
type Sender interface {
	// PutLog sends the bytes of a step from offset on. A request without bytes asks for the current
	// state, and should make the server store its bytes durably. framed is valid until PutLog
	// returns.
	PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (protocol.LogAck, error)
}

// ShipperOptions are the settings of a [Shipper].
type ShipperOptions struct {
	// Compress allows the sender to compress large chunks.
	Compress bool
	// Log receives messages for the operator. Nil discards them.
	Log *logrus.Entry
}

// Shipper sends the streams of a spool to the server. A spool has at most one shipper.
type Shipper struct {
	sp     *Spool
	sender Sender
	opts   ShipperOptions

	flushing  atomic.Int32 // number of callers that wait in Flush
	buf       []byte
	shipments map[*Stream]*shipment

	stopOnce sync.Once
	stopped  chan struct{} // closed when err is set
	err      error

	mu      sync.Mutex
	refused map[*Stream]error // the server's permanent refusals
}

type shipment struct {
	best  int64 // the largest number of bytes that the server has had
	gaps  int   // responses since best last grew that moved the offset without accepting bytes
	ask   time.Duration
	askAt time.Time
}

// NewShipper returns a shipper for the current and future streams of sp.
func NewShipper(sp *Spool, sender Sender, opts ShipperOptions) *Shipper {
	opts.Log = orDiscard(opts.Log)
	return &Shipper{sp: sp, sender: sender, opts: opts, shipments: make(map[*Stream]*shipment), stopped: make(chan struct{}), refused: make(map[*Stream]error)}
}

// Run ships until ctx is canceled and then returns nil. If the server responds that the job is
// gone, Run returns that error. Writing to the spool remains possible. After another permanent
// error, Run continues with the other streams.
func (sh *Shipper) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		s, wait := sh.next(time.Now())
		if s == nil {
			sleepOrWake(ctx, wait, sh.sp.wake)
			continue
		}
		err := sh.ship(ctx, s)
		switch {
		case err == nil:
			if failures > 0 {
				sh.opts.Log.WithField("attempts", failures+1).Info("the server accepts the job's log again")
			}
			failures = 0
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx stops Run
		case protocol.Gone(err):
			err = fmt.Errorf("shipping the log of step %d: %w", s.step, err)
			sh.stop(err)
			return err
		case protocol.Permanent(err):
			sh.opts.Log.WithError(err).WithField("step", s.step).Warn("the server refuses a step's log; the logs of other steps are still sent")
			sh.refuse(s, err)
			continue
		}
		if failures == 0 {
			sh.opts.Log.WithError(err).WithField("step", s.step).Warn("the server did not accept the job's log; it stays in the spool and is sent again")
		}
		sh.backoff(ctx, failures, retry.After(err))
		failures++
	}
	return nil
}

// Flush waits until the server can no longer lose any byte that was written before the call,
// excluding bytes that it does not accept. [Shipper.Run] must be running.
func (sh *Shipper) Flush(ctx context.Context) error {
	targets := make(map[*Stream]int64)
	for _, s := range sh.sp.list() {
		targets[s] = s.Size()
	}
	sh.flushing.Add(1)
	defer sh.flushing.Add(-1)
	sh.sp.signal()
	for {
		advance := sh.sp.advance()
		missing, lost := int64(0), int64(0)
		var refused error
		for s, target := range targets {
			n := s.missing(target)
			missing += n
			if err := sh.refusal(s); err != nil && n > 0 {
				lost, refused = lost+n, err
			}
		}
		if missing == 0 {
			return nil
		}
		if missing == lost {
			return fmt.Errorf("the server refuses %d bytes of the log: %w", lost, refused)
		}
		select {
		case <-advance:
		case <-sh.stopped:
			return fmt.Errorf("%d bytes of the log can no longer be sent to the server: %w", missing, sh.err)
		case <-ctx.Done():
			return fmt.Errorf("%d bytes of the log are not yet stored durably on the server: %w", missing, context.Cause(ctx))
		}
	}
}

func (sh *Shipper) stop(err error) {
	sh.stopOnce.Do(func() {
		sh.err = err
		close(sh.stopped)
	})
}

func (sh *Shipper) refuse(s *Stream, err error) {
	sh.mu.Lock()
	sh.refused[s] = err
	sh.mu.Unlock()
	sh.sp.advanced()
}

func (sh *Shipper) refusal(s *Stream) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.refused[s]
}

// next returns the first stream that is due, so that steps arrive in order. If none is due, it
// returns the time to wait.
func (sh *Shipper) next(now time.Time) (*Stream, time.Duration) {
	flushing := sh.flushing.Load() > 0
	asking := flushing || sh.sp.anyBlocked()
	wait := time.Hour
	for _, s := range sh.sp.list() {
		if sh.refusal(s) != nil {
			continue
		}
		due := s.due(flushing, now)
		if received, _ := s.Acked(); due < 0 && asking && s.missing(received) > 0 {
			due = max(0, sh.shipment(s).askAt.Sub(now))
		}
		if due == 0 {
			return s, 0
		}
		if due > 0 {
			wait = min(wait, due)
		}
	}
	return nil, wait
}

func (sh *Shipper) shipment(s *Stream) *shipment {
	if sh.shipments[s] == nil {
		sh.shipments[s] = &shipment{}
	}
	return sh.shipments[s]
}

// ship sends one request. An error means that the shipper should wait before the next request.
func (sh *Shipper) ship(ctx context.Context, s *Stream) error {
	r := sh.shipment(s)
	offset, n := s.unsent()
	if cap(sh.buf) < n {
		sh.buf = make([]byte, min(maxRequest, max(4<<10, 2*n)))
	}
	chunk := sh.buf[:n]
	if err := s.readAt(chunk, offset); err != nil {
		return err
	}
	chunk, cut := s.fit(chunk, offset)
	if cut {
		sh.opts.Log.WithField("step", s.step).WithField("bytes", offset).Warn("the log has reached the server's limit; the rest is discarded")
		sh.sp.advanced()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ack, err := sh.sender.PutLog(ctx, s.step, offset, chunk, sh.opts.Compress && len(chunk) >= compressFrom)
	gap, isGap := errors.AsType[*protocol.LogGapError](err)
	switch {
	case isGap:
		ack = protocol.LogAck{Received: gap.Ack.Received}
	case err != nil:
		return err
	}
	_, before := s.Acked()
	taken, aerr := s.acknowledge(ack, isGap, offset, len(chunk))
	if aerr != nil {
		sh.opts.Log.WithError(aerr).WithField("step", s.step).Error("the server's copy of the log does not match the spool; it will be shown as incomplete")
	}
	if _, durable := s.Acked(); durable > before || len(chunk) > 0 {
		r.ask = 0
		r.askAt = time.Time{}
	} else {
		r.ask = min(max(2*r.ask, firstAsk), maxAsk)
		r.askAt = time.Now().Add(retry.Spread(r.ask))
	}
	sh.sp.advanced()
	received, _ := s.Acked()
	if received > r.best {
		r.best, r.gaps = received, 0
	}
	if taken {
		return nil
	}
	// One such response is normal after a crash on either side. If the server repeats it, the
	// shipper must pause between requests.
	if r.gaps++; r.gaps > 1 {
		return fmt.Errorf("the server accepted no log from offset %d and expects offset %d", offset, ack.Received)
	}
	return nil
}

func (sh *Shipper) backoff(ctx context.Context, failures int, asked time.Duration) {
	delay := sendRetry.Pause(failures, nil)
	if asked > 0 {
		delay = retry.Spread(min(asked, maxRetryAfter))
	}
	for start := time.Now(); ctx.Err() == nil; {
		left := delay
		if asked <= 0 && sh.flushing.Load() > 0 {
			left = min(left, flushBackoff)
		}
		if left -= time.Since(start); left <= 0 {
			return
		}
		sleepOrWake(ctx, left, sh.sp.wake)
	}
}

func sleepOrWake(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}
