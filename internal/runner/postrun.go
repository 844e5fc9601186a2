package runner

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
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
		if j.server.Gone() || v.Reason == workflow.ReasonLost {
			return v
		}
		limit := j.opts.Timing.PostRun
		_, stopped := j.stop.reason()
		if stopped {
			if limit = min(limit, j.opts.Timing.PostRunStopped); !shortened {
				began, shortened = time.Now(), true
			}
		}
		left := limit - time.Since(began)
		step := workflow.Step{Name: workflow.PostRunStepName(i), Run: workflow.RunPostRun, Timeout: workflow.Duration(left)}
		why := j.omits(c, planned)
		if why == "" && left <= 0 {
			why = fmt.Sprintf("the post-run commands took longer than %s in total", limit)
			if v.Status == workflow.StatusSucceeded {
				v = delivery.Failed(workflow.ReasonTimeout, "%s was not started, because %s", step.Name, why)
			}
		}
		if why != "" {
			j.skip(len(j.definition.Steps)+i, step, why)
			continue
		}
		result := j.step(ctx, len(j.definition.Steps)+i, step, i)
		if result.Status != workflow.StatusSucceeded && v.Status == workflow.StatusSucceeded {
			v = result
		}
		v.FinishedAt = time.Now()
	}
	return v
}

// omits returns the reason why a post-run command does not run after planned steps with a status, or "".
func (j *job) omits(c workflow.PostRunCommand, planned workflow.Status) string {
	select {
	case <-j.stop.killed:
		return "the job must stop at once"
	default:
	}
	reason, stopped := j.stop.reason()
	always := c.When == workflow.WhenAlways || c.When == ""
	switch {
	case stopped && (reason != workflow.ReasonCancelled && reason != workflow.ReasonTimeout || !always):
		return describeStop(reason)
	case c.When == workflow.WhenSuccess && planned != workflow.StatusSucceeded:
		return "it runs only on success, and an earlier step has failed"
	case c.When == workflow.WhenFailure && planned == workflow.StatusSucceeded:
		return "it runs only on failure, and the earlier steps have succeeded"
	}
	return ""
}

// skip reports that a step does not run.
func (j *job) skip(index int, step workflow.Step, why string) {
	log := j.log.WithField("step", index).WithField("name", step.Name)
	log.Info("step skipped: " + why)
	report := protocol.StepStatusRequest{Status: workflow.StepSkipped}
	stream, err := j.spool.Step(index)
	if err != nil {
		log.WithError(err).Warn("opening the log of a skipped step")
	} else {
		out := newStepLog(j.masks, stream, j.echo(), log)
		out.line("skipped: " + why)
		out.close()
		size := stream.Size()
		report.LogBytes = &size
	}
	j.courier.ReportStep(index, report)
}
