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

// setupStep is the step whose log the agent writes during the preparation. The agent also writes a
// stream after the last step.
const setupStep = 0

const (
	// ownLogLimit bounds the agent's own log for a job, in bytes. Most of that log reports the
	// progress of image pulls.
	ownLogLimit = 4 << 20
	maxLine     = 4 << 10
	// lineTime bounds how long a full disk may delay one line.
	lineTime = 5 * time.Second
	// spoolCopies is the maximum number of attempts to copy the spool of an exited runner.
	spoolCopies = 5
	// spaceTime bounds the time for these attempts if the agent's disk is full.
	spaceTime = 15 * time.Minute
	// copyTime bounds one attempt. Engines have streams that never end.
	copyTime = 5 * time.Minute
)

// finishJob delivers the remaining log and the result of a job whose runner has exited, and removes
// the job's objects.
func (j *job) finishJob(ctx context.Context, exit executor.Exit, cancelled bool) (delivery.Verdict, error) {
	if exit.Result != nil && !exit.Result.SealedWith(j.entry.Claim.JobToken) {
		j.log.Warn("ignoring a result in the job's directory that the runner did not write")
		exit.Result = nil
	}
	if r := exit.Result; r != nil && r.Reported {
		j.flushSetup(ctx)
		j.removeObjects()
		return delivery.Verdict{Status: r.Status, Reason: r.Reason}, nil
	}
	v, err := j.takeOver(ctx, exit, judge(exit, cancelled))
	if errors.Is(err, errStopping) {
		return v, err // the next process repeats the delivery; the server acknowledges the part of the log that it already has
	}
	j.removeObjects()
	if errors.Is(err, errSuperseded) {
		// The server had received the runner's result, but the runner did not receive the response.
		return v, nil
	}
	return v, err
}

func (j *job) flushSetup(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, setupFlushTime)
	defer cancel()
	if err := errors.Join(j.courier.FlushLog(limited), j.courier.FlushStatuses(limited)); err != nil {
		j.log.WithError(err).Debug("delivering the set-up log failed")
	}
}

// takeOver continues the log streams of a runner that exited before the server had received its log
// and result. It adds one line that states the cause.
func (j *job) takeOver(ctx context.Context, exit executor.Exit, v delivery.Verdict) (delivery.Verdict, error) {
	log := j.log.WithField("reason", v.Reason).WithField("exit_code", exit.Code)
	if exit.Signal != "" {
		log = log.WithField("signal", exit.Signal)
	}
	log.Warn("the runner exited without reporting a result: " + v.Message)

	j.phase(status.Shipping)
	runner, err := j.openRunnerLog(ctx)
	switch {
	case ctx.Err() != nil:
		return v, errStopping // the log is closed in end
	case err != nil:
		j.log.WithError(err).Warn("reading the log of the exited runner failed")
		v.Message += " Its unsent log is lost." + j.agent.onFullDisk(err)
	default:
		defer func() { _ = runner.Close() }() // after a panic, the resumed job copies the log again
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

// stock reports whether the server is a stock server. Such a server accepts neither results nor a
// stream after the last step.
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
	tries, began := 0, time.Now()
	err := j.agent.policy(retryLimit).Do(ctx, func(err error) bool {
		tries++
		return tries < spoolCopies || errors.Is(err, executor.ErrNoSpace) && time.Since(began) < spaceTime
	}, func() error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		return j.agent.opts.Executor.CopySpool(limited, *j.entry.Handle, dir)
	})
	if err != nil {
		return nil, fmt.Errorf("copying the runner's log: %w", err)
	}
	log, err := j.courier.OpenLog(dir, delivery.Options{Has: j.isRunners})
	if err != nil {
		return nil, fmt.Errorf("opening the runner's log: %w", err)
	}
	return log, nil
}

// isRunners reports whether the runner writes the log of a step. A job can add streams for any step
// to the runner's spool, and the server rejects a result that contains an unknown step or the same
// step twice.
func (j *job) isRunners(step int) bool { return step > setupStep && step < j.entry.Steps }

// report delivers the log, the step statuses and the result. An error is errStopping,
// errSuperseded, or final.
func (j *job) report(ctx context.Context, v delivery.Verdict) (delivery.Verdict, error) {
	if j.entry.EndedAt.IsZero() {
		j.entry.EndedAt = time.Now().UTC()
	}
	v.FinishedAt, v.Message = j.entry.EndedAt, j.masks.String(v.Message)
	if j.entry.Phase != instance.Started {
		// No process of the job is running, so the next agent process only has to report the
		// result.
		result := v.Result()
		j.entry.Phase, j.entry.Result = instance.Reporting, &result
	}
	if err := j.saveEntry(); err != nil {
		j.log.WithError(err).Warn("storing the job's result failed; an agent restart would lose it")
	}
	return j.deliver(ctx, v)
}

// deliver sends the log, the step statuses and the result. Its errors are those of report.
func (j *job) deliver(ctx context.Context, v delivery.Verdict) (delivery.Verdict, error) {
	limited, done := context.WithTimeout(ctx, max(leastDeliverTime, time.Until(j.entry.EndedAt.Add(deliverTime))))
	defer done()
	err := j.courier.Deliver(limited, v)
	switch {
	case err == nil:
		return v, nil
	case protocol.Gone(err):
		return v, errSuperseded
	case errors.Is(err, protocol.ErrStarted):
		return j.report(ctx, j.vanished(v))
	case ctx.Err() != nil:
		return v, errStopping
	}
	return v, fmt.Errorf("delivering the job's result: %w", err)
}

func (j *job) newCourier() *delivery.Courier {
	return delivery.NewCourier(delivery.CourierOptions{
		Server:    j.client,
		Log:       j.log,
		Stock:     j.stock(),
		Compress:  !protocol.OnLoopback(j.entry.ServiceURL),
		Retry:     j.agent.opts.JobRetry,
		Guard:     j.keepRunning,
		Reporting: func() { j.phase(status.Reporting) },
		Refused: func(err error) {
			// The server accepts results for a day, so the operator has time to fix the cause.
			j.agent.freeSlot(j.name)
			j.log.WithError(err).WithField("log", j.agent.journal.SpoolDir(j.name)).
				Warn("the server rejected the job's result; retrying until 24 h after the job finished, and keeping its log until then")
		},
	})
}

// openLog opens the agent's own streams for the job. If the job may be running, openLog retries,
// because a full disk must not stop the job.
func (j *job) openLog(ctx context.Context) error {
	dir := filepath.Join(j.agent.journal.SpoolDir(j.name), "agent")
	err := j.agent.policy(executorRetryLimit).Do(ctx, func(err error) bool {
		j.log.WithError(err).Warn("opening the job's log failed")
		return j.entry.Handle != nil
	}, func() (err error) {
		j.logs, err = j.courier.OpenLog(dir, delivery.Options{Limit: ownLogLimit})
		return err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && j.entry.Handle != nil:
		return errStopping
	}
	return fmt.Errorf("opening the job's log: %w", err)
}

func (j *job) writeSetup(format string, args ...any) { j.writeLine(j.logs, setupStep, format, args...) }

// writeLine writes one masked line to a stream. If the write fails, writeLine logs the line in the
// agent's own log.
func (j *job) writeLine(log *delivery.Log, step int, format string, args ...any) {
	text := strings.Join(strings.Fields(j.masks.String(fmt.Sprintf(format, args...))), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + " …"
	}
	ctx, cancel := context.WithTimeout(context.Background(), lineTime)
	defer cancel()
	stream, err := log.Step(step)
	if err == nil {
		_, err = stream.WriteContext(ctx, []byte(text+"\n"))
	}
	if err != nil && !errors.Is(err, delivery.ErrClosed) {
		j.log.WithError(err).Warn("writing a line to the deployment's log failed; the line is:  " + text)
	}
}

func (j *job) endStream(log *delivery.Log, step int) {
	stream, err := log.Step(step)
	if err == nil {
		err = stream.Close()
	}
	if err != nil {
		j.log.WithError(err).Warn("closing a log stream failed")
	}
}

// lastStream returns the number of the last step whose stream is not empty, or -1.
func lastStream(log *delivery.Log) int {
	last := -1
	for _, s := range log.Summaries() {
		if s.Bytes > 0 {
			last = max(last, s.Step)
		}
	}
	return last
}

// judge returns the verdict for a runner that exited without delivering its result. cancelled is
// true if the agent interrupted the runner because the deployment was cancelled.
func judge(exit executor.Exit, cancelled bool) delivery.Verdict {
	v := delivery.Verdict{Status: workflow.StatusFailed, Signal: exit.Signal}
	if exit.Code >= 0 && exit.Signal == "" && !exit.Lost {
		v.ExitCode = &exit.Code
	}
	switch {
	case exit.Result != nil && exit.Result.Status.Final():
		v.Status, v.Reason, v.ExitCode, v.Signal = exit.Result.Status, exit.Result.Reason, &exit.Result.ExitCode, ""
		v.Message = "The runner exited before the server had received its log and result; the agent delivers them."
	case exit.OOMKilled:
		v.Reason = workflow.ReasonOOM
		v.Message = "The job was killed because it ran out of memory: give jobs more memory (docker_memory, or the pod template in Kubernetes), or reduce the program's memory use."
	case exit.Lost:
		v.Reason = workflow.ReasonLost
		v.Message = "The job no longer exists and its result is unknown, for example after a restart of its host or engine. " + workflow.UnknownEnd
	case cancelled:
		v.Reason = workflow.ReasonCancelled
		v.Message = "The deployment was cancelled."
	case exit.Reason != workflow.ReasonNone:
		v.Reason = exit.Reason
		v.Message = "The engine ended the job before the runner could report its result. " + workflow.UnknownEnd
	case exit.Signal == "SIGKILL":
		v.Reason = workflow.ReasonSignal
		v.Message = "The runner was killed by SIGKILL, which the agent did not send: an operator sent it, or the system ran out of memory. " + workflow.UnknownEnd
	case exit.Signal != "":
		v.Reason = workflow.ReasonSignal
		v.Message = fmt.Sprintf("The runner was killed by %s, which the agent did not send. %s", exit.Signal, workflow.UnknownEnd)
	case exit.Code == protocol.ExitNoLaunch:
		v.Reason = workflow.ReasonLaunch
		v.Message = "The runner did not receive the job, for example because the connection to the engine broke. The job did not run."
	case exit.Code == protocol.ExitNoLeave:
		v.Reason = workflow.ReasonLaunch
		v.Message = "The runner did not receive the server's permission to start the job, for example because it could not reach the server. The job did not run."
	case exit.Code != 0:
		v.Reason = workflow.ReasonExitCode
		v.Message = fmt.Sprintf("The runner exited with exit code %d before it could report the job's result.", exit.Code)
	default:
		v.Reason = workflow.ReasonInternalError
		v.Message = "The runner exited without a result. This is a bug: please report it with this log."
	}
	if exit.Detail != "" && exit.Result == nil {
		v.Message += " (" + strings.TrimSpace(exit.Detail) + ")"
	}
	return v
}
