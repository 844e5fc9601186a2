package agent_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/workflow"
)

type breaking struct {
	noMonitor
	left atomic.Int32
}

func (b *breaking) JobLaunched(time.Duration) {
	if b.left.Add(-1) >= 0 {
		panic("out of order")
	}
}

// TestPanicOfOneJob causes a panic in the preparation of one job. That job must fail, and the
// running job must succeed.
func TestPanicOfOneJob(t *testing.T) {
	w := newHarness(t)
	w.options = func(o *agent.Options) { o.MaxConcurrentJobs = 2 }
	running, reported := make(chan struct{}), make(chan struct{})
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		close(running)
		<-reported
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	good := w.server.Add()
	var bad *fakes.ServerJob
	w.executor.OnPrepare(func(_ context.Context, spec executor.Spec, _ func(string)) error {
		if spec.JobID != good.ID {
			panic("out of order")
		}
		return nil
	})
	a := w.start()
	<-running
	bad = w.server.Add()
	w.server.WaitFor("the failure", func() bool { return len(bad.Results) == 1 })
	close(reported)
	w.server.WaitFor("the success", func() bool { return len(good.Results) == 1 })
	a.drain()
	if r := bad.Results[0]; r.Status != workflow.StatusFailed || r.Reason != workflow.ReasonInternalError || !bad.Has(0, "This is a bug") {
		t.Errorf("result %+v, set-up log %q", r, bad.Log(0))
	}
	if good.Results[0].Status != workflow.StatusSucceeded {
		t.Errorf("the other job: %+v", good.Results[0])
	}
	if !strings.Contains(w.log.String(), "out of order") || !strings.Contains(w.log.String(), "panic_test.go") {
		t.Error("the agent's log does not contain the panic and its stack")
	}
	w.cleanState(a)
}

// TestPanicAfterTheStart checks that, after a panic, the agent resumes a started job and does not
// report it as failed.
func TestPanicAfterTheStart(t *testing.T) {
	w := newHarness(t)
	monitor := &breaking{}
	monitor.left.Store(1)
	w.options = func(o *agent.Options) { o.Monitor = monitor }
	finish := make(chan struct{})
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		<-finish
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	job := w.server.Add()
	a := w.start()
	w.log.await(t, "the agent panicked")
	close(finish)
	a.finish(job)
	if r := w.executor.Record(job.ID); len(r.Launches) != 1 || r.Kills != 0 || job.Results[0].Status != workflow.StatusSucceeded {
		t.Errorf("executor %+v, result %+v", r, job.Results[0])
	}
	w.cleanState(a)
}
