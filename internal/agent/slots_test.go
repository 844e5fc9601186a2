package agent_test

import (
	"context"
	"errors"
	"net/http"
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

	// The engine is unavailable when the next agent process starts.
	job := w.server.Add()
	a = w.start()
	w.log.await(t, "the executor cannot run jobs")
	if job.Claimed != 0 {
		t.Error("the agent claimed a job that cannot run")
	}
	w.executor.SetCheck(nil)
	w.server.WaitFor("the second result", func() bool { return len(job.Results) == 1 })
	a.drain()
	if strings.Count(w.log.String(), "the executor cannot run jobs") != 1 || !strings.Contains(w.log.String(), "the executor can run jobs again") {
		t.Error("the agent did not log each change of the engine's state exactly once")
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
	w.options = func(o *agent.Options) { o.MaxConcurrentJobs = 2 }
	var jobs []*fakes.ServerJob
	for range 5 {
		jobs = append(jobs, w.server.Add())
	}
	a := w.start()
	w.server.WaitFor("presence", func() bool {
		return len(w.server.Polls) > 0 && w.server.Polls[len(w.server.Polls)-1].Slots == 0
	})
	if n := running.Load(); n > 2 {
		t.Errorf("%d jobs are running in 2 slots", n)
	}
	close(release)
	for _, j := range jobs {
		w.server.WaitFor("all results", func() bool { return len(j.Results) == 1 })
	}
	a.drain()
	if most.Load() > 2 {
		t.Errorf("%d concurrent jobs in 2 slots", most.Load())
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

// TestSingleRunWithARefusedResult checks that an undelivered result does not free the only slot.
func TestSingleRunWithARefusedResult(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(func(context.Context, *fakes.Job) executor.Exit { return executor.Exit{Code: 3} })
	w.options = func(o *agent.Options) { o.SingleRun = true }
	first, second := w.server.Add(), w.server.Add()
	var refused atomic.Int32
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "POST", "/result") || refused.Add(1) > 5 {
			return false
		}
		protocol.SignAnswers(rw, r).WriteHeader(http.StatusBadRequest)
		return true
	})
	w.start().wait()
	if len(first.Results) != 1 || second.Claimed != 0 {
		t.Errorf("%d results, the second job was claimed %d times, want 1 and 0", len(first.Results), second.Claimed)
	}
}

// TestRemovalIsRetried checks that the agent retries the failed removal of a finished job's
// objects, and that the slot is free for the next job meanwhile.
func TestRemovalIsRetried(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	first, second := w.server.Add(), w.server.Add()
	w.executor.OnRemove(func(h executor.Handle) error {
		done := false
		w.server.View(func() { done = len(second.Results) > 0 })
		if h.JobID == first.ID && (!done || w.executor.Record(h.JobID).Removes <= 5) {
			return errors.New("device or resource busy")
		}
		return nil
	})
	a := w.start()
	w.server.WaitForResult(second)
	a.drain()
	if n := w.executor.Record(first.ID).Removes; n <= 5 {
		t.Errorf("the agent tried %d times to remove the first job, want more than 5", n)
	}
	w.cleanState(a)
}

func TestStockServer(t *testing.T) {
	w := newHarness(t)
	w.server.Update(func() { w.server.Stock = true })
	w.executor.OnRun(sealing(fakes.UntilInterrupt(executor.Exit{Result: &protocol.Result{Status: workflow.StatusFailed, Reported: true}})))
	job := w.server.Add()
	a := w.start()
	w.server.WaitFor("the start", func() bool { return job.Steps[0] == workflow.StepSucceeded })
	// A busy agent must not poll a server that might not support polls with 0 free slots.
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
	w.server.Close() // an abandoned poll can still arrive
	for _, p := range w.server.Polls {
		if p.Slots == 0 {
			t.Error("the agent polled without free slots, which this server does not support")
		}
	}
	w.cleanState(a)
}
