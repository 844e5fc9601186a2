package agent_test

import (
	"context"
	"io"
	"testing"
	"time"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// endless is an executor whose streams of output never end.
type endless struct {
	executor.Executor
	ignoresClose bool
	released     chan struct{}
}

func (e *endless) Output(context.Context, executor.Handle) (io.ReadCloser, error) {
	r, w := io.Pipe()
	if e.ignoresClose {
		return stubborn{r, e.released}, nil
	}
	_ = w // nothing is ever written
	return r, nil
}

type stubborn struct {
	io.Reader
	released chan struct{}
}

func (s stubborn) Read([]byte) (int, error) {
	<-s.released
	return 0, io.EOF
}

func (stubborn) Close() error { return nil }

// TestEndlessOutputDelaysNoResult checks that neither the result nor the slot of a job depends on the
// stream of its output.
func TestEndlessOutputDelaysNoResult(t *testing.T) {
	for name, ignoresClose := range map[string]bool{"until it is closed": false, "even if it is closed": true} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			released := make(chan struct{})
			t.Cleanup(func() { close(released) })
			w.executor.OnRun(w.runner(workflow.StatusSucceeded))
			w.options = func(o *agent.Options) {
				o.Executor = &endless{o.Executor, ignoresClose, released}
				o.OutputWait = 10 * time.Millisecond
			}
			first, second := w.server.Add(), w.server.Add()
			a := w.start()
			w.server.WaitForResult(first)
			a.finish(second)
			if first.Status != workflow.StatusSucceeded || second.Status != workflow.StatusSucceeded {
				t.Errorf("the jobs are %s and %s", first.Status, second.Status)
			}
		})
	}
}
