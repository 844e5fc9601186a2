package runner

import (
	"context"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/runner/process"
	"workflowagent/internal/workflow"
)

// postRun runs the post-run commands after the planned steps, whose verdict is v, and returns the verdict on
// the job. The first failed command makes a job fail that has succeeded so far. The conditions of the commands
// are about the planned steps, so a failed command prevents no other one. None runs before the source exists.
func (j *job) postRun(ctx context.Context, v delivery.Verdict) delivery.Verdict {
	d := j.definition.Deployment
	if d == nil || len(d.PostRunCommands) == 0 || !j.begun {
		return v
	}
	if v.FinishedAt.IsZero() {
		v.FinishedAt = time.Now()
	}
	began, shortened, planned := time.Now(), false, v.Status
	for i, c := range d.PostRunCommands {
		limit := j.opts.Timing.PostRun
		reason, stopped := j.stop.reason()
		if stopped {
			if limit = min(limit, j.opts.Timing.PostRunStopped); !shortened {
				began, shortened = time.Now(), true
			}
		}
		switch {
		case j.server.Gone(), v.Reason == workflow.ReasonLost:
			return v
		case stopped && reason != workflow.ReasonCancelled && reason != workflow.ReasonTimeout: // the host is going away
			j.log.WithField("first", workflow.PostRunStepName(i)).Warn("the remaining post-run commands are not run, because the runner must stop")
			return v
		case stopped && c.When != workflow.WhenAlways && c.When != "":
			continue
		case c.When == workflow.WhenSuccess && planned != workflow.StatusSucceeded, c.When == workflow.WhenFailure && planned == workflow.StatusSucceeded:
			continue
		}
		left := limit - time.Since(began)
		select {
		case <-j.stop.killed:
			return v
		default:
		}
		name := workflow.PostRunStepName(i)
		if left <= 0 {
			j.log.WithField("first", name).Warn("the remaining post-run commands are not run, because the earlier ones took too long")
			if v.Status == workflow.StatusSucceeded {
				v = delivery.Failed(workflow.ReasonTimeout, "%s was not started, because the post-run commands took longer than %s in total", name, limit)
			}
			return v
		}
		step := workflow.Step{Name: name, Run: workflow.RunPostRun, Timeout: workflow.Duration(left)}
		result := j.step(ctx, len(j.definition.Steps)+i, step, i)
		if result.Status != workflow.StatusSucceeded && v.Status == workflow.StatusSucceeded {
			v = result
		}
		v.FinishedAt = time.Now()
	}
	return v
}

// awaitPostRun waits until a post-run command has exited. After the timeout, it interrupts the command and
// kills it after the time for leftover processes. A request to stop that arrives meanwhile has the same effect;
// one that came before has none, so that the command can clean up after it.
func (j *job) awaitPostRun(p *process.Process, interrupt func() error, timeout time.Duration, out *stepLog) sent {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	interrupted := j.stop.interrupted
	if _, stopped := j.stop.reason(); stopped {
		interrupted = nil
	}
	select {
	case <-p.Exited:
		return sentNothing
	case <-timer.C:
	case <-interrupted:
	case <-j.stop.killed:
		p.Kill()
		<-p.Exited
		return sentKill
	}
	if err := interrupt(); err != nil {
		j.log.WithError(err).Warn("interrupting a post-run command")
	}
	grace := time.NewTimer(j.opts.Timing.Linger)
	defer grace.Stop()
	select {
	case <-p.Exited:
		return sentInterrupt
	case <-grace.C:
	case <-j.stop.killed:
	}
	p.Kill()
	<-p.Exited
	out.line("warning: killed the command, which did not exit in time")
	return sentKill
}
