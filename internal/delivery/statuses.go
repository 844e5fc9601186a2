package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

// statusQueue sends statuses in order and in the background, so that steps do not wait.
type statusQueue struct {
	server Server
	retry  time.Duration
	log    *logrus.Entry
	wake   chan struct{}

	mu      sync.Mutex
	queue   []stepStatus
	drained chan struct{} // closed while the queue is empty
}

type stepStatus struct {
	step int
	req  protocol.StepStatusRequest
}

func newStatusQueue(server Server, retry time.Duration, log *logrus.Entry) *statusQueue {
	drained := make(chan struct{})
	close(drained)
	return &statusQueue{server: server, retry: retry, log: log, wake: make(chan struct{}, 1), drained: drained}
}

func (q *statusQueue) add(step int, req protocol.StepStatusRequest) {
	q.mu.Lock()
	if len(q.queue) == 0 {
		q.drained = make(chan struct{})
	}
	q.queue = append(q.queue, stepStatus{step, req})
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *statusQueue) flush(ctx context.Context) error {
	q.mu.Lock()
	drained := q.drained
	q.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("the server has not accepted the status of every step"), context.Cause(ctx))
	}
}

func (q *statusQueue) run(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; {
		next, ok := q.first()
		if !ok {
			select {
			case <-ctx.Done():
			case <-q.wake:
			}
			continue
		}
		err := q.server.StepStatus(ctx, next.step, next.req)
		if err != nil && !protocol.Permanent(err) {
			_ = retry.Policy{First: q.retry, Max: maxStatusPause}.Wait(ctx, tries, err)
			tries++
			continue
		}
		if err != nil {
			q.log.WithError(err).WithField("step", next.step).Warn("the server refuses a step's status")
		}
		tries = 0
		q.sent()
	}
}

func (q *statusQueue) first() (stepStatus, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return stepStatus{}, false
	}
	return q.queue[0], true
}

func (q *statusQueue) sent() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = q.queue[1:]
	if len(q.queue) == 0 {
		close(q.drained)
	}
}
