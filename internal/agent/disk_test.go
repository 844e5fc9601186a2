package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/workflow"
)

func TestFullDiskClaimsNothing(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var free atomic.Int64
	free.Store(executor.LeastSpace - 1)
	w.options = func(o *agent.Options) { o.FreeSpace = func(string) (int64, error) { return free.Load(), nil } }
	job := w.server.Add()
	a := w.start()
	w.log.await(t, "claims no jobs until the disk")
	if job.Claimed != 0 {
		t.Error("an agent with a full disk claimed a job")
	}
	r := a.Status()
	r.Healthy = true
	r.Judge()
	if r.State != status.NotReady || !strings.Contains(fmt.Sprint(r.Reasons), "disk of state_directory") {
		t.Errorf("the agent is %s: %q", r.State, r.Reasons)
	}
	free.Store(executor.LeastSpace)
	a.finish(job)
	if job.Status != workflow.StatusSucceeded {
		t.Errorf("after space was freed, the job is %s", job.Status)
	}
}

// TestFullDiskIsReported starts an agent that cannot start jobs. The server learns that it exists.
func TestFullDiskIsReported(t *testing.T) {
	w := newHarness(t)
	w.options = func(o *agent.Options) { o.FreeSpace = func(string) (int64, error) { return 0, nil } }
	w.start()
	w.server.WaitFor("a poll without slots", func() bool { return len(w.server.Polls) > 0 && w.server.Polls[0].Slots == 0 })
}

func TestJobThatMeetsAFullDiskNamesIt(t *testing.T) {
	w := newHarness(t)
	w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error {
		return &executor.Error{Reason: workflow.ReasonLaunch, Message: "The job's directory could not be created.", Err: syscall.ENOSPC}
	})
	job := w.server.Add()
	w.start().finish(job)
	if r := job.Results[0]; !strings.Contains(r.Message, "disk") || !job.Has(0, "disk") {
		t.Errorf("result %+v, log %q", r, job.Log(0))
	}
}
