package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/retry"
)

const (
	conditionTime = 10 * time.Second // limit of one test
	// retestPause is the pause between two tests while jobs cannot run.
	retestPause = 5 * time.Second
)

var errNotChecked = errors.New("the executor has not been checked yet")

// condition tracks whether something that jobs need, such as their executor, can be used.
type condition struct {
	test     func(ctx context.Context) error // returns nil if jobs can run, and otherwise the reason
	pause    time.Duration                   // between two tests while jobs can run
	lost, up string                          // what the log says about a change
	log      *logrus.Entry
	changed  func(err error) // called after each change

	mu    sync.Mutex
	known bool
	err   error
	since time.Time // the time of the last change
}

// state returns nil if jobs can run, and otherwise the reason.
func (c *condition) state() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return errNotChecked
	}
	return c.err
}

// run repeats the test until ctx is canceled. err is the result of the first one.
func (c *condition) run(ctx context.Context, err error) {
	for {
		pause := c.pause
		if err != nil {
			pause = retestPause
		}
		if retry.Sleep(ctx, retry.Spread(pause)) != nil {
			return
		}
		err = c.check(ctx)
	}
}

func (c *condition) check(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, conditionTime)
	defer cancel()
	err := c.test(limited)
	if ctx.Err() != nil {
		return ctx.Err() // the agent is stopping, so the error proves nothing
	}
	c.mu.Lock()
	first, changed := !c.known, !c.known || (err == nil) != (c.err == nil)
	c.known, c.err = true, err
	if changed {
		c.since = time.Now()
	}
	c.mu.Unlock()
	switch {
	case !changed:
		return err
	case err != nil:
		c.log.WithError(err).Warn(c.lost)
	case !first:
		c.log.Info(c.up)
	}
	c.changed(err)
	return err
}

// engineStatus returns the state of the executor.
func (a *Agent) engineStatus() status.Engine {
	c := a.engine
	c.mu.Lock()
	defer c.mu.Unlock()
	s := status.Engine{Target: a.opts.Executor.Name(), Up: c.known && c.err == nil, Since: known(c.since)}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}
