package runner

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
)

const (
	// maxRetryPause bounds the pause between tries of the runner's calls.
	maxRetryPause = 15 * time.Second
	// maxResultPause is the same for the result, which may be tried for a day.
	maxResultPause = time.Minute
)

// reporter sends the states of steps in order, beside the work: a server that
// does not answer delays no step.
type reporter struct {
	server Server
	retry  time.Duration
	log    *logrus.Entry

	wake chan struct{}

	mu      sync.Mutex
	queue   []stepReport
	drained chan struct{} // closed while the queue is empty
}

type stepReport struct {
	step    int
	request protocol.StepStatusRequest
}

func newReporter(server Server, retry time.Duration, log *logrus.Entry) *reporter {
	drained := make(chan struct{})
	close(drained)
	return &reporter{server: server, retry: retry, log: log, wake: make(chan struct{}, 1), drained: drained}
}

// report queues the state of a step.
func (r *reporter) report(step int, request protocol.StepStatusRequest) {
	r.mu.Lock()
	if len(r.queue) == 0 {
		r.drained = make(chan struct{})
	}
	r.queue = append(r.queue, stepReport{step, request})
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// wait returns when everything was sent, or refused for good, or ctx has ended.
func (r *reporter) wait(ctx context.Context) {
	r.mu.Lock()
	drained := r.drained
	r.mu.Unlock()
	select {
	case <-drained:
	case <-ctx.Done():
	}
}

// run sends until ctx ends.
func (r *reporter) run(ctx context.Context) {
	for tries := 0; ; {
		report, ok := r.first()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
			continue
		}
		err := r.server.StepStatus(ctx, report.step, report.request)
		if err != nil && !protocol.Permanent(err) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(protocol.Backoff(r.retry, maxRetryPause, tries, err)):
			}
			tries++
			continue
		}
		if err != nil {
			r.log.WithError(err).WithField("step", report.step).Warn("The server refused the state of a step")
		}
		tries = 0
		r.sent()
	}
}

func (r *reporter) first() (stepReport, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return stepReport{}, false
	}
	return r.queue[0], true
}

func (r *reporter) sent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = r.queue[1:]
	if len(r.queue) == 0 {
		close(r.drained)
	}
}
