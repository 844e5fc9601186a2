package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sleep"
	"workflowagent/internal/workflow"
)

const (
	// spoolCopies is how often the dead runner's spool is asked for.
	spoolCopies = 5
	// spaceTime is how long it is asked for while the agent's disk has no space for it.
	spaceTime = 15 * time.Minute
	// maxConflicts is how often the server may want log that it was sent already.
	maxConflicts = 3
)

// settle ends a job whose runner has ended: it delivers what the runner could not
// and removes the job's objects.
func (j *job) settle(ctx context.Context, exit executor.Exit, cancelled bool) (verdict, error) {
	if exit.Result != nil && !exit.Result.SealedWith(j.entry.Claim.JobToken) {
		j.log.Warn("The job's directory holds a result that is not the runner's; it is ignored")
		exit.Result = nil
	}
	if r := exit.Result; r != nil && r.Reported {
		j.flushSetup(ctx)
		j.removeObjects(j.entry.Handle)
		return verdict{status: r.Status, reason: r.Reason}, nil
	}
	v, err := j.takeOver(ctx, exit, judge(exit, cancelled))
	if errors.Is(err, errStopping) {
		return v, err // the next process does it again; the server knows what it has
	}
	j.removeObjects(j.entry.Handle)
	if errors.Is(err, errSuperseded) {
		// The runner's result had arrived, only the answer had not.
		return v, nil
	}
	return v, err
}

// flushSetup gives the set-up log the time to arrive that nothing else waits for.
func (j *job) flushSetup(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, setupFlushTime)
	defer cancel()
	if err := j.logs.flush(limited); err != nil {
		j.log.WithError(err).Debug("The set-up log did not arrive completely")
	}
}

// takeOver goes on with the streams of a runner that ended before the server had
// its log and result. It takes the words of people for the end: one line that
// says what happened.
func (j *job) takeOver(ctx context.Context, exit executor.Exit, v verdict) (verdict, error) {
	log := j.log.WithField("reason", v.reason).WithField("exit_code", exit.Code)
	if exit.Signal != "" {
		log = log.WithField("signal", exit.Signal)
	}
	log.Warn("The runner ended without having reported: " + v.message)

	j.phase(status.Shipping)
	runner, err := j.openRunnerLogs(ctx)
	if cause := context.Cause(ctx); cause != nil {
		if runner != nil {
			_ = runner.close() // the files are read again by the next process
		}
		return v, errStopping
	}
	if err != nil {
		j.log.WithError(err).Warn("The log that the runner left cannot be read")
		v.message += " What it had not sent of its log is lost."
	}
	if runner != nil {
		defer func() {
			if err := runner.close(); err != nil {
				j.log.WithError(err).Debug("Closing the runner's log failed")
			}
		}()
		if exit.Result == nil && !j.ownEnd() {
			runner.line(max(runner.last(), setupStep+1), "%s", v.message)
		}
		if last := runner.endAll(); last > setupStep && exit.Result == nil {
			j.stepStatus(last, workflow.StepFailed)
		}
	}
	if exit.Result == nil && j.ownEnd() {
		j.closingWords(v.message)
	}
	if err := j.halt(ctx); err != nil {
		return v, err
	}
	return j.report(ctx, v, runner)
}

// ownEnd reports whether the server has a stream for the agent behind the job's last
// step. A server with only the stock calls does not.
func (j *job) ownEnd() bool { return j.entry.Claim.Epoch != 0 }

// closingWords writes the agent's last line, unless an earlier process has.
func (j *job) closingWords(text string) {
	step := j.entry.Steps
	if step <= setupStep {
		return
	}
	if stream, err := j.logs.spool.Step(step); err == nil && stream.Size() == 0 {
		j.logs.line(step, "%s", text)
	}
	j.logs.end(step)
}

// openRunnerLogs copies what the runner left of its log and opens it.
func (j *job) openRunnerLogs(ctx context.Context) (*jobLogs, error) {
	dir := filepath.Join(j.agent.journal.spoolDir(j.name), "runner")
	var err error
	for tries, began := 0, time.Now(); ; tries++ {
		if err = os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("making room for the runner's log: %w", err)
		}
		if err = j.agent.opts.Executor.CopySpool(ctx, *j.entry.Handle, dir); err == nil {
			break
		}
		last := tries >= spoolCopies-1 && !(errors.Is(err, executor.ErrNoSpace) && time.Since(began) < spaceTime)
		if ctx.Err() != nil || last || sleep.For(ctx, protocol.Backoff(retryFirst, retryLimit, tries, nil)) != nil {
			return nil, fmt.Errorf("copying the runner's log: %w", err)
		}
	}
	return openLogs(j, dir, j.isRunners)
}

// isRunners reports whether the runner writes the log of a step. The server refuses a result
// that names a step twice or one that the job does not have, and the job may have put streams of
// any step into the runner's spool.
func (j *job) isRunners(step int) bool { return step > setupStep && step < j.entry.Steps }

// report delivers the log and then the result of a job. more, if not nil, holds
// further streams. An error is errStopping, errSuperseded, or final.
func (j *job) report(parent context.Context, v verdict, more *jobLogs) (verdict, error) {
	ctx, cancel := j.untilStopped(parent)
	defer cancel(nil)
	if j.entry.EndedAt.IsZero() {
		j.entry.EndedAt = time.Now().UTC()
	}
	limited, done := context.WithTimeout(ctx, max(leastDeliverTime, time.Until(j.entry.EndedAt.Add(deliverTime))))
	defer done()

	req := protocol.ResultRequest{
		Status:     v.status,
		Reason:     v.reason,
		Message:    j.masks.String(v.message),
		ExitCode:   v.exitCode,
		Signal:     v.signal,
		FinishedAt: j.entry.EndedAt,
		Steps:      []protocol.StepResult{},
	}
	sources := []*jobLogs{j.logs, more}
	for _, logs := range sources {
		if logs != nil {
			steps, truncated := logs.results()
			req.Steps = append(req.Steps, steps...)
			req.Truncated = req.Truncated || truncated
		}
	}
	if j.entry.Phase != phaseStarted {
		// Nothing runs any more, so this is all that the next process has to do.
		j.entry.Phase, j.entry.Result = phaseReporting, &req
	}
	if err := j.keep(); err != nil {
		j.log.WithError(err).Warn("How the job ended could not be kept on disk; a restart now would lose it")
	}
	err := j.deliver(limited, req, sources)
	if err != nil && context.Cause(ctx) != nil {
		return v, errStopping
	}
	return v, err
}

// deliver sends log and result until the server has them.
func (j *job) deliver(ctx context.Context, req protocol.ResultRequest, sources []*jobLogs) error {
	logCtx := ctx
	if deadline, ok := ctx.Deadline(); ok {
		limited, endLog := context.WithDeadline(ctx, deadline.Add(-resultTime))
		defer endLog()
		logCtx = limited
	}
	flush := func() {
		for _, logs := range sources {
			if logs == nil {
				continue
			}
			if err := logs.flush(logCtx); err != nil {
				// The server has said why, or time is over; the result says it better.
				j.log.WithError(err).Debug("The log did not arrive completely")
			}
		}
	}
	flush()
	j.phase(status.Reporting)
	if j.entry.Claim.Epoch == 0 {
		return ctx.Err() // a server without this call learns from the steps' statuses
	}
	conflicts, refused := 0, false
	for tries := 0; ; tries++ {
		err := j.client.Result(ctx, req)
		var conflict *protocol.ResultConflictError
		switch {
		case err == nil:
			return nil
		case protocol.Gone(err):
			return errSuperseded
		case errors.As(err, &conflict):
			if conflicts++; conflicts >= maxConflicts {
				req.Steps = giveUp(req.Steps, conflict.Missing)
			}
			flush()
		case protocol.Permanent(err) && !refused:
			// The evidence stays for as long as the server takes any: somebody may fix the cause.
			refused = true
			j.agent.freeSlot(j.name)
			j.log.WithError(err).Warn("The server refuses the result of the job; trying again for 24 h after the end of the job")
		}
		if sleep.For(ctx, protocol.Backoff(retryFirst, deliverWait, tries, err)) != nil {
			return fmt.Errorf("delivering the result within %s of the end of the job: %w", deliverTime, err)
		}
	}
}

// giveUp marks the streams of which the server wants bytes that are not to be had.
func giveUp(steps []protocol.StepResult, missing []protocol.MissingLog) []protocol.StepResult {
	marked := append([]protocol.StepResult{}, steps...)
	for i := range marked {
		for _, m := range missing {
			if m.Step == marked[i].Step {
				marked[i].Gone = true
			}
		}
	}
	return marked
}

var _ delivery.Sender = rawSender{}
