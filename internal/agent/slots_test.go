package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/protocol"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/workflow"
)

func TestEngineDown(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	first := w.server.add()
	a := w.start()
	w.server.waitFor("the first result", func() bool { return len(first.results) == 1 })
	w.executor.SetCheck(errors.New("the engine is down"))
	a.Drain()
	a.wait()

	// Another process meets the engine down from the start.
	job := w.server.add()
	a = w.start()
	waitLog(t, w, "No jobs can run here at the moment")
	if job.claimed != 0 {
		t.Error("a job was claimed that cannot run")
	}
	w.executor.SetCheck(nil)
	w.server.waitFor("the second result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	if strings.Count(w.log.String(), "No jobs can run here at the moment") != 1 || !strings.Contains(w.log.String(), "Jobs can run again") {
		t.Error("the engine's state was not told exactly once per change")
	}
}

func waitLog(t *testing.T, w *world, text string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !strings.Contains(w.log.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never says %q", text)
		}
		<-ticker.C
	}
}

func TestSlotsAndPresence(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	var running, most atomic.Int32
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-release
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	w.options = func(o *agent.Options) { o.Slots = 2 }
	var jobs []*serverJob
	for range 5 {
		jobs = append(jobs, w.server.add())
	}
	a := w.start()
	w.server.waitFor("presence", func() bool {
		return len(w.server.polls) > 0 && w.server.polls[len(w.server.polls)-1].slots == 0
	})
	if n := running.Load(); n > 2 {
		t.Errorf("%d jobs run in 2 slots", n)
	}
	close(release)
	for _, j := range jobs {
		w.server.waitFor("all results", func() bool { return len(j.results) == 1 })
	}
	a.Drain()
	a.wait()
	if most.Load() > 2 {
		t.Errorf("%d jobs at a time in 2 slots", most.Load())
	}
	w.cleanState(a)
}

func TestSingleRun(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusFailed))
	w.options = func(o *agent.Options) { o.SingleRun = true }
	first, second := w.server.add(), w.server.add()
	a := w.start()
	a.wait()
	if len(first.results) != 1 || second.claimed != 0 {
		t.Errorf("%d results, the second was claimed %d times", len(first.results), second.claimed)
	}
}

func TestStockServer(t *testing.T) {
	w := newWorld(t)
	w.server.update(func() { w.server.stock = true })
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		<-ctx.Done()
		return executor.Exit{}
	})
	w.executor.OnRun(sealing(fakes.UntilInterrupt(executor.Exit{Result: &protocol.Result{Status: workflow.StatusFailed, Reported: true}})))
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the start", func() bool { return job.steps[0] == workflow.StepSucceeded })
	// A busy agent does not ask a server that may not know what 0 free slots are.
	w.server.mu.Lock()
	polls := len(w.server.polls)
	w.server.mu.Unlock()
	w.server.update(func() { job.status = workflow.StatusFailed })
	w.server.waitFor("the next poll", func() bool { return len(w.server.polls) > polls })
	a.Drain()
	a.wait()
	if r := w.executor.Record(job.id); r.Interrupts != 1 || r.Kills != 0 {
		t.Errorf("executor: %+v", r)
	}
	if !job.has(0, "runs this job") {
		t.Errorf("set-up log: %q", job.text(0))
	}
	w.server.mu.Lock() // a poll that was given up may still come
	defer w.server.mu.Unlock()
	for _, p := range w.server.polls {
		if p.slots == 0 {
			t.Error("a poll without free slots went to a server that does not know them")
		}
	}
	w.cleanState(a)
}
