package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/retry"
)

const (
	followFast = 10 * time.Millisecond
	followSlow = 250 * time.Millisecond
)

// Output returns a stream that follows the runner's output file.
func (e *Executor) Output(ctx context.Context, h executor.Handle) (io.ReadCloser, error) {
	d, err := e.open(h)
	if err != nil {
		return nil, err
	}
	id, err := d.started(ctx)
	if err != nil && !errors.Is(err, errEnded) {
		return nil, fmt.Errorf("following the output of job %s: %w", h.JobID, err)
	}
	file, err := os.Open(d.path(fileOutput))
	if err != nil {
		return nil, fmt.Errorf("following the output of job %s: %w", h.JobID, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &follower{ctx: ctx, cancel: cancel, file: file, id: id}, nil
}

type follower struct {
	ctx    context.Context
	cancel context.CancelFunc
	file   *os.File
	id     identity // identity of the writing process
}

// Read reads from the output file. At the end of the file, it returns io.EOF if the runner has
// exited, and otherwise waits for more output. It does not wait for the output of processes that
// outlive the runner.
func (f *follower) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for delay := followFast; ; delay = min(2*delay, followSlow) {
		alive := f.id.running() // checked before the read: if the writer has exited, the file is complete
		n, err := f.file.Read(b)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if !alive {
			return 0, io.EOF
		}
		if err := retry.Sleep(f.ctx, delay); err != nil {
			return 0, err
		}
	}
}

// Close interrupts a blocked Read.
func (f *follower) Close() error {
	f.cancel()
	return f.file.Close()
}
