package agent_test

import (
	"context"
	"errors"
	"testing"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// TestNoReportBeforeTheRemoval: a job whose start failed may run until its objects are gone.
func TestNoReportBeforeTheRemoval(t *testing.T) {
	w := newHarness(t)
	w.executor.OnStarted(func(executor.Handle) error {
		return &executor.Error{Reason: workflow.ReasonLaunch, Message: "The runner could not be told what to do."}
	})
	job := w.server.Add()
	const failures = 5
	var calls, early int
	w.executor.OnRemove(func(executor.Handle) error {
		w.server.Update(func() { early += len(job.Results) })
		if calls++; calls <= failures {
			return errors.New("the engine is away")
		}
		return nil
	})
	a := w.finish(job)
	if calls <= failures || early != 0 {
		t.Errorf("reported after %d tries to remove the job, %d reports were early", calls, early)
	}
	if r := job.Results[0]; r.Status != workflow.StatusFailed || r.Reason != workflow.ReasonLaunch {
		t.Errorf("result: %+v", r)
	}
	w.cleanState(a)
}

// TestStartThatIsNotConfirmed: the first call breaks after the job has started, and the agent
// must not end the job.
func TestStartThatIsNotConfirmed(t *testing.T) {
	w := newHarness(t)
	broken := errors.New("the connection broke")
	w.executor.OnStarted(func(executor.Handle) error { return broken })
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	starts := 0
	w.executor.OnStart(func(context.Context, executor.Handle) error {
		if starts++; starts > 1 {
			return broken
		}
		return nil
	})
	job := w.server.Add()
	a := w.finish(job)
	if r := w.executor.Record(job.ID); len(r.Launches) != 1 || r.Kills != 0 {
		t.Errorf("executor: %+v", r)
	}
	if len(job.Results) != 1 || job.Results[0].Status != workflow.StatusSucceeded {
		t.Errorf("results: %+v", job.Results)
	}
	w.cleanState(a)
}
