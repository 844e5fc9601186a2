package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const (
	// spoolCopies is how many times the agent tries to copy the dead runner's spool.
	spoolCopies = 5
	// spaceTime bounds the attempts while the agent's disk has no space for it.
	spaceTime = 15 * time.Minute
)

// finishJob delivers an ended runner's remaining log and result and removes the job's objects.
func (j *job) finishJob(ctx context.Context, exit executor.Exit, cancelled bool) (delivery.Verdict, error) {
	if exit.Result != nil && !exit.Result.SealedWith(j.entry.Claim.JobToken) {
		j.log.Warn("the job's directory holds a result that the runner did not write; it is ignored")
		exit.Result = nil
	}
	if r := exit.Result; r != nil && r.Reported {
		j.flushSetup(ctx)
		j.removeObjects(j.entry.Handle)
		return delivery.Verdict{Status: r.Status, Reason: r.Reason}, nil
	}
	v, err := j.takeOver(ctx, exit, judge(exit, cancelled))
	if errors.Is(err, errStopping) {
		return v, err // the next process repeats it; the server knows what it has
	}
	j.removeObjects(j.entry.Handle)
	if errors.Is(err, errSuperseded) {
		// The runner's result had arrived without its answer.
		return v, nil
	}
	return v, err
}

func (j *job) flushSetup(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, setupFlushTime)
	defer cancel()
	if err := errors.Join(j.courier.FlushLog(limited), j.courier.FlushStatuses(limited)); err != nil {
		j.log.WithError(err).Debug("the set-up log is not delivered completely")
	}
}

// takeOver continues the streams of a runner that ended before the server had its log and
// result, and adds one line that states the cause.
func (j *job) takeOver(ctx context.Context, exit executor.Exit, v delivery.Verdict) (delivery.Verdict, error) {
	log := j.log.WithField("reason", v.Reason).WithField("exit_code", exit.Code)
	if exit.Signal != "" {
		log = log.WithField("signal", exit.Signal)
	}
	log.Warn("the runner ended without a report: " + v.Message)

	j.phase(status.Shipping)
	runner, err := j.openRunnerLog(ctx)
	if runner != nil {
		defer func() {
			if err := runner.Close(); err != nil {
				j.log.WithError(err).Debug("closing the runner's log failed")
			}
		}()
	}
	if context.Cause(ctx) != nil {
		return v, errStopping
	}
	if err != nil {
		j.log.WithError(err).Warn("the log of the dead runner cannot be read")
		v.Message += " What it had not sent of its log is lost."
	} else {
		if exit.Result == nil && j.stock() {
			j.writeLine(runner, max(lastStream(runner), setupStep+1), "%s", v.Message)
		}
		for _, s := range runner.Summaries() {
			j.endStream(runner, s.Step)
		}
		if last := lastStream(runner); last > setupStep && exit.Result == nil {
			j.stepStatus(last, workflow.StepFailed)
		}
	}
	if exit.Result == nil && !j.stock() {
		j.closingWords(v.Message)
	}
	if err := j.killLeftovers(ctx); err != nil {
		return v, err
	}
	return j.report(ctx, v)
}

// stock reports whether the server lacks results and a stream after the last step.
func (j *job) stock() bool { return j.entry.Claim.Epoch == 0 }

func (j *job) closingWords(text string) {
	step := j.entry.Steps
	if step <= setupStep {
		return
	}
	if stream, err := j.logs.Step(step); err == nil && stream.Size() == 0 {
		j.writeLine(j.logs, step, "%s", text)
	}
	j.endStream(j.logs, step)
}

func (j *job) openRunnerLog(ctx context.Context) (*delivery.Log, error) {
	dir := filepath.Join(j.agent.journal.SpoolDir(j.name), "runner")
	var err error
	for tries, began := 0, time.Now(); ; tries++ {
		if err = os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("making room for the runner's log: %w", err)
		}
		if err = j.agent.opts.Executor.CopySpool(ctx, *j.entry.Handle, dir); err == nil {
			break
		}
		last := tries >= spoolCopies-1 && !(errors.Is(err, executor.ErrNoSpace) && time.Since(began) < spaceTime)
		if ctx.Err() != nil || last || j.agent.policy(retryLimit).Wait(ctx, tries, nil) != nil {
			return nil, fmt.Errorf("copying the runner's log: %w", err)
		}
	}
	log, err := j.courier.OpenLog(dir, delivery.Options{Has: j.isRunners})
	if err != nil {
		return nil, fmt.Errorf("opening the runner's log: %w", err)
	}
	return log, nil
}

// isRunners reports whether the runner writes the log of a step. The job may have put streams
// of any step into the runner's spool, and the server refuses a result that names a step twice
// or a missing one.
func (j *job) isRunners(step int) bool { return step > setupStep && step < j.entry.Steps }

// report delivers log, statuses and result. An error is errStopping, errSuperseded, or final.
func (j *job) report(parent context.Context, v delivery.Verdict) (delivery.Verdict, error) {
	ctx, cancel := j.untilStopped(parent)
	defer cancel(nil)
	if j.entry.EndedAt.IsZero() {
		j.entry.EndedAt = time.Now().UTC()
	}
	v.FinishedAt, v.Message = j.entry.EndedAt, j.masks.String(v.Message)
	if j.entry.Phase != instance.Started {
		// Nothing of the job runs, so the next process only has to report.
		result := v.Result()
		j.entry.Phase, j.entry.Result = instance.Reporting, &result
	}
	if err := j.saveEntry(); err != nil {
		j.log.WithError(err).Warn("the end of the job cannot be stored; a restart of the agent would lose it")
	}
	limited, done := context.WithTimeout(ctx, max(leastDeliverTime, time.Until(j.entry.EndedAt.Add(deliverTime))))
	defer done()
	err := j.courier.Deliver(limited, v)
	switch {
	case err == nil:
		return v, nil
	case protocol.Gone(err):
		return v, errSuperseded
	case context.Cause(ctx) != nil:
		return v, errStopping
	}
	return v, fmt.Errorf("delivering the end of the job: %w", err)
}

// judge derives the verdict on a runner that ended without delivering its result. cancelled
// says that the agent interrupted it because the deployment was cancelled.
func judge(exit executor.Exit, cancelled bool) delivery.Verdict {
	v := delivery.Verdict{Status: workflow.StatusFailed, Signal: exit.Signal}
	if exit.Code >= 0 && exit.Signal == "" && !exit.Lost {
		code := exit.Code
		v.ExitCode = &code
	}
	switch {
	case exit.Result != nil && exit.Result.Status.Final():
		// The runner knew the end but could not report it.
		code := exit.Result.ExitCode
		v.Status, v.Reason, v.ExitCode = exit.Result.Status, exit.Result.Reason, &code
		v.Signal = ""
		v.Message = "The runner ended before the server had its log and result; the agent delivers them."
	case exit.OOMKilled:
		v.Reason = workflow.ReasonOOM
		v.Message = "The job was killed because it ran out of memory: give job containers more (docker_memory), or make the program use less."
	case exit.Lost:
		v.Reason = workflow.ReasonLost
		v.Message = "The job is gone and its end is unknown, as after a restart of its host or engine. Check the stack before the next deployment."
	case cancelled:
		v.Reason = workflow.ReasonCancelled
		v.Message = "The deployment was cancelled."
	case exit.Signal == "SIGKILL":
		v.Reason = workflow.ReasonSignal
		v.Message = "The runner was killed by SIGKILL, but not by this product: by an operator, or by the system because memory ran out. Check the stack before the next deployment."
	case exit.Signal != "":
		v.Reason = workflow.ReasonSignal
		v.Message = fmt.Sprintf("The runner was killed by %s from outside of this product. Check the stack before the next deployment.", exit.Signal)
	case exit.Code == protocol.ExitNoLaunch:
		v.Reason = workflow.ReasonLaunch
		v.Message = "The runner did not receive the job, as when the connection to the engine breaks; nothing of the job was run."
	case exit.Code != 0:
		v.Reason = workflow.ReasonExitCode
		v.Message = fmt.Sprintf("The runner ended with exit code %d before it could say how the job ended.", exit.Code)
	default:
		v.Reason = workflow.ReasonInternalError
		v.Message = "The runner ended without a result. This is a defect: please report it with this log."
	}
	if exit.Detail != "" && exit.Result == nil {
		v.Message += " (" + strings.TrimSpace(exit.Detail) + ")"
	}
	return v
}
