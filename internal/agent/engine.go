package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/retry"
)

// The agent checks the executor more often while it cannot run jobs.
const (
	engineUpInterval   = 30 * time.Second
	engineDownInterval = 5 * time.Second
	engineCheckTime    = 10 * time.Second
)

var errNotChecked = errors.New("the executor has not been checked yet")

// engineWatch tracks whether the executor can run jobs.
type engineWatch struct {
	executor executor.Executor
	log      *logrus.Entry
	monitor  Monitor
	changed  func() // called when the executor becomes able or unable to run jobs

	mu    sync.Mutex
	known bool
	err   error
	since time.Time // the time of the last such change
}

// state returns nil if jobs can run, and otherwise the reason.
func (w *engineWatch) state() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known {
		return errNotChecked
	}
	return w.err
}

func (w *engineWatch) status() status.Engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := status.Engine{Target: w.executor.Name(), Up: w.known && w.err == nil, Since: known(w.since)}
	if w.err != nil {
		s.Error = w.err.Error()
	}
	return s
}

func (w *engineWatch) run(ctx context.Context, err error) {
	for {
		pause := engineUpInterval
		if err != nil {
			pause = engineDownInterval
		}
		if retry.Sleep(ctx, retry.Spread(pause)) != nil {
			return
		}
		err = w.check(ctx)
	}
}

func (w *engineWatch) check(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, engineCheckTime)
	defer cancel()
	err := w.executor.Check(limited)
	if ctx.Err() != nil {
		return ctx.Err() // the agent is stopping, so the error does not prove an engine failure
	}
	w.mu.Lock()
	first, changed := !w.known, !w.known || (err == nil) != (w.err == nil)
	w.known, w.err = true, err
	if changed {
		w.since = time.Now()
	}
	w.mu.Unlock()
	switch {
	case !changed:
		return err
	case err != nil:
		w.log.WithError(err).Warn("the executor cannot run jobs; the agent claims no jobs until it can")
	case !first:
		w.log.Info("the executor can run jobs again")
	}
	w.monitor.EngineState(err)
	w.changed()
	return err
}
