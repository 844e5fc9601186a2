package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

func TestEngineDown(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	first := w.server.Add()
	a := w.start()
	w.server.WaitFor("the first result", func() bool { return len(first.Results) == 1 })
	w.executor.SetCheck(errors.New("the engine is down"))
	a.drain()

	// Another process finds the engine down from the start.
	job := w.server.Add()
	a = w.start()
	w.log.await(t, "no jobs can run here")
	if job.Claimed != 0 {
		t.Error("a job was claimed that cannot run")
	}
	w.executor.SetCheck(nil)
	w.server.WaitFor("the second result", func() bool { return len(job.Results) == 1 })
	a.drain()
	if strings.Count(w.log.String(), "no jobs can run here") != 1 || !strings.Contains(w.log.String(), "jobs can run again") {
		t.Error("the engine's state was not told exactly once per change")
	}
}

func TestSlotsAndPresence(t *testing.T) {
	w := newHarness(t)
	release := make(chan struct{})
	var running, most atomic.Int32
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-release
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	w.options = func(o *agent.Options) { o.Slots = 2 }
	var jobs []*fakes.ServerJob
	for range 5 {
		jobs = append(jobs, w.server.Add())
	}
	a := w.start()
	w.server.WaitFor("presence", func() bool {
		return len(w.server.Polls) > 0 && w.server.Polls[len(w.server.Polls)-1].Slots == 0
	})
	if n := running.Load(); n > 2 {
		t.Errorf("%d jobs run in 2 slots", n)
	}
	close(release)
	for _, j := range jobs {
		w.server.WaitFor("all results", func() bool { return len(j.Results) == 1 })
	}
	a.drain()
	if most.Load() > 2 {
		t.Errorf("%d jobs at a time in 2 slots", most.Load())
	}
	w.cleanState(a)
}

func TestSingleRun(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusFailed))
	w.options = func(o *agent.Options) { o.SingleRun = true }
	first, second := w.server.Add(), w.server.Add()
	a := w.start()
	a.wait()
	if len(first.Results) != 1 || second.Claimed != 0 {
		t.Errorf("%d results, the second was claimed %d times", len(first.Results), second.Claimed)
	}
}

func TestStockServer(t *testing.T) {
	w := newHarness(t)
	w.server.Update(func() { w.server.Stock = true })
	w.executor.OnRun(sealing(fakes.UntilInterrupt(executor.Exit{Result: &protocol.Result{Status: workflow.StatusFailed, Reported: true}})))
	job := w.server.Add()
	a := w.start()
	w.server.WaitFor("the start", func() bool { return job.Steps[0] == workflow.StepSucceeded })
	// A busy agent does not poll a server that may not know the meaning of 0 free slots.
	polls := 0
	w.server.Update(func() { polls, job.Status = len(w.server.Polls), workflow.StatusFailed })
	w.server.WaitFor("the next poll", func() bool { return len(w.server.Polls) > polls })
	a.drain()
	if r := w.executor.Record(job.ID); r.Interrupts != 1 || r.Kills != 0 {
		t.Errorf("executor: %+v", r)
	}
	if !job.Has(0, "runs this job") {
		t.Errorf("set-up log: %q", job.Log(0))
	}
	w.server.Close() // an abandoned poll may still arrive
	for _, p := range w.server.Polls {
		if p.Slots == 0 {
			t.Error("a poll without free slots went to a server that does not know them")
		}
	}
	w.cleanState(a)
}
