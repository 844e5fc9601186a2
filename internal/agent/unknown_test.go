package agent_test

import (
	"context"
	"errors"
	"testing"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// TestNoReportBeforeTheRemoval causes an error in a job's start. The agent must not report a result
// before the job's objects are removed, because the job may be running until then.
func TestNoReportBeforeTheRemoval(t *testing.T) {
	w := newHarness(t)
	w.executor.OnStarted(func(executor.Handle) error {
		return &executor.Error{Reason: workflow.ReasonLaunch, Message: "The launch document could not be written."}
	})
	job := w.server.Add()
	const failures = 5
	var calls, early int
	w.executor.OnRemove(func(executor.Handle) error {
		w.server.Update(func() { early += len(job.Results) })
		if calls++; calls <= failures {
			return errors.New("the engine is unavailable")
		}
		return nil
	})
	a := w.finish(job)
	if calls <= failures || early != 0 {
		t.Errorf("the agent reported the job after %d attempts to remove it; %d reports were early", calls, early)
	}
	if r := job.Results[0]; r.Status != workflow.StatusFailed || r.Reason != workflow.ReasonLaunch {
		t.Errorf("result: %+v", r)
	}
	w.cleanState(a)
}

// TestStartThatIsNotConfirmed breaks the connection during the start, after the job has started.
// The agent must not end the job.
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
