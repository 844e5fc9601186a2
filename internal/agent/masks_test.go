package agent_test

import (
	"context"
	"strings"
	"testing"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/workflow"
)

// secret returns a change of a job that gives it a secret of the given size.
func secret(size int) func(*fakes.ServerJob) {
	return func(j *fakes.ServerJob) {
		j.Definition.Env["FILE"] = strings.Repeat("0123456789\n", size/11)
		j.Definition.SecretEnv = []string{"FILE"}
	}
}

func TestJobWithTooManySecretsIsNotStarted(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	job := w.server.Add(secret(300 << 10))
	a := w.start()
	a.finish(job)
	if r := job.Results[0]; r.Reason != workflow.ReasonInvalidJob || !strings.Contains(r.Message, "secrets") {
		t.Errorf("result %+v", r)
	}
	if n := len(w.executor.Record(job.ID).Launches); n != 0 {
		t.Errorf("ran %d times", n)
	}
}

// TestLargeSecretsOneJobAtATime checks that jobs with large secrets are not prepared at the same
// time, but run at the same time, and do not delay other jobs.
func TestLargeSecretsOneJobAtATime(t *testing.T) {
	w := newHarness(t)
	w.options = func(o *agent.Options) { o.MaxConcurrentJobs = 3 }
	preparing, proceed := make(chan string, 3), make(chan struct{})
	running := make(chan string, 3)
	finish := newGate()
	t.Cleanup(finish.release)
	w.executor.OnPrepare(func(ctx context.Context, spec executor.Spec, _ func(string)) error {
		preparing <- spec.JobID
		select {
		case <-proceed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		running <- ""
		<-finish.open
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	jobs := []*fakes.ServerJob{w.server.Add(secret(100 << 10)), w.server.Add(secret(100 << 10)), w.server.Add()}
	a := w.start()
	first, second := <-preparing, <-preparing
	if first != jobs[2].ID && second != jobs[2].ID {
		t.Fatal("two jobs with large secrets are prepared at the same time")
	}
	proceed <- struct{}{}
	proceed <- struct{}{}
	<-preparing // the large set is dropped when the first of them has started
	proceed <- struct{}{}
	for range jobs {
		<-running
	}
	finish.release()
	for _, job := range jobs {
		a.finish(job)
	}
}
