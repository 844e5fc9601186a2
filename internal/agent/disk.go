package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/retry"
	"workflowagent/internal/words"
)

// diskInterval is the time between two checks of the disk.
const diskInterval = 5 * time.Second

// diskWatch tracks whether the disk of the state directory has space for jobs.
type diskWatch struct {
	dir     string
	free    func(dir string) (int64, error)
	log     *logrus.Entry
	changed func() // called when the disk becomes full or has space again

	mu  sync.Mutex
	err error
}

// state returns nil if the disk has space, and otherwise the reason why no jobs are claimed.
func (w *diskWatch) state() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *diskWatch) run(ctx context.Context) {
	for retry.Sleep(ctx, diskInterval) == nil {
		w.check()
	}
}

// check examines the disk. A disk that cannot be examined counts as one with space.
func (w *diskWatch) check() {
	var full error
	if free, err := w.free(w.dir); err == nil && free < executor.LeastSpace {
		full = fmt.Errorf("the disk of state_directory, %s, has only %s free, and jobs need %s: free up space", w.dir, words.Bytes(free), words.Bytes(executor.LeastSpace))
	}
	w.mu.Lock()
	changed := (full == nil) != (w.err == nil)
	w.err = full
	w.mu.Unlock()
	switch {
	case !changed:
		return
	case full != nil:
		w.log.WithError(full).Warn("the agent claims no jobs until the disk has space")
	default:
		w.log.Info("the disk has space for jobs again")
	}
	w.changed()
}

// onFullDisk returns advice to add to the message of a job that failed with err, or "".
func (a *Agent) onFullDisk(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, executor.ErrNoSpace) {
		return fmt.Sprintf(" A disk of the agent's host is full: free up space, first on that of state_directory, %s.", a.opts.Identity.Dir)
	}
	return ""
}
