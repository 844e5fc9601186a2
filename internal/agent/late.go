package agent

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// A [executor.Launcher] starts the runner late: Start hands the job to the engine, and the runner
// itself requests leave once it runs. Until then the agent keeps the lease. The server gives leave to
// one runner only, so repeating Start cannot run the job twice, and neither can an engine.
//
//	journal → Start → AwaitStart → follow
//
// Two questions decide how such a job ends: whether the engine started the runner, and whether the
// server gave leave. A job without leave ran nothing, so the agent reports that it was not started.
// The server accepts this report only as long as it has given no leave, and gives none afterwards.

// lateProbe bounds the question to the executor after the server has closed the job, and the question
// to the server after the runner has ended.
const lateProbe = 10 * time.Second

// launcher returns the agent's executor if it starts runners late, and nil otherwise.
func (j *job) launcher() executor.Launcher {
	l, _ := j.agent.opts.Executor.(executor.Launcher)
	return l
}

// startLate hands the job to the engine and waits until the runner was started.
func (j *job) startLate(ctx context.Context, document []byte) error {
	return j.leased(ctx, func(ctx context.Context) error {
		if err := j.start(ctx, document); err != nil {
			return err
		}
		j.dropLargeMasks() // the engine can keep the job waiting
		return j.awaitStart(ctx)
	})
}

// leased runs work and keeps the job's lease meanwhile. If the server closes the job, leased cancels
// work, and returns nil if the runner was started all the same: then the runner knows better
// whether it has leave.
func (j *job) leased(ctx context.Context, work func(context.Context) error) error {
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer j.renewLease(working, cancel)()
	err := work(working)
	cause := context.Cause(working)
	if err == nil || ctx.Err() != nil || !errors.Is(cause, errSuperseded) && !errors.Is(cause, errCancelled) {
		return err
	}
	probe, done := context.WithTimeout(ctx, lateProbe)
	defer done()
	if j.launcher().AwaitStart(probe, *j.entry.Handle, func(string) {}) == nil {
		j.launched()
		return nil
	}
	return cause
}

// awaitStart waits until the runner was started, and reports the engine's progress.
func (j *job) awaitStart(ctx context.Context) error {
	last := ""
	progress := func(line string) {
		if line != last { // a repeated call reports the same progress
			j.writeSetup("%s", line)
		}
		last = line
	}
	err := j.agent.policy(executorRetryLimit).Do(ctx, func(err error) bool {
		if _, final := errors.AsType[*executor.Error](err); final || errors.Is(err, executor.ErrNotStarted) || ctx.Err() != nil {
			return false
		}
		j.log.WithError(err).Warn("waiting for the start of the job failed; retrying")
		return true
	}, func() error { return j.launcher().AwaitStart(ctx, *j.entry.Handle, progress) })
	switch {
	case err == nil:
		j.launched()
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, executor.ErrNotStarted):
		return &executor.Error{Reason: workflow.ReasonLaunch, Message: "The job was removed from its engine before it started.", Err: err}
	}
	return err
}

// resumeLate resumes a job in phase Starting. The engine may or may not have the job, and the runner
// may or may not have leave.
func (j *job) resumeLate(ctx context.Context) (delivery.Verdict, error) {
	has, _, err := j.wasStarted(ctx)
	switch {
	case err != nil:
		return delivery.Verdict{}, err
	case has:
		j.phase(status.StartingJob)
		err := j.leased(ctx, j.awaitStart)
		if !errors.Is(err, executor.ErrNotStarted) {
			return j.conclude(ctx, err)
		}
		// The engine has no record of the job: the earlier process did not reach the engine, or
		// a user removed the job.
	}
	switch leave, err := j.hasLeave(ctx); {
	case err != nil:
		return j.conclude(ctx, err)
	case leave:
		return j.conclude(ctx, &executor.Error{Reason: workflow.ReasonLost, Message: "The job no longer exists."})
	}
	definition, err := j.admitted(ctx)
	if err == nil {
		err = j.launch(ctx, definition)
	}
	return j.conclude(ctx, err)
}

// concludeLate finishes a job whose runner was not started as far as the engine knows, or ran
// nothing. err is the cause.
func (j *job) concludeLate(ctx context.Context, err error) (delivery.Verdict, error) {
	leave, askErr := false, error(nil)
	if !errors.Is(err, errSuperseded) {
		leave, askErr = j.hasLeave(ctx)
	}
	if errors.Is(askErr, errStopping) {
		return delivery.Verdict{}, askErr
	}
	if stopErr := j.removeStarted(ctx); stopErr != nil {
		return delivery.Verdict{}, stopErr
	}
	switch {
	case askErr != nil:
		return delivery.Verdict{}, askErr
	case errors.Is(err, errSuperseded):
		return delivery.Verdict{}, err
	case leave:
		return j.report(ctx, j.vanished(failure(err)))
	}
	if j.entry.Phase != instance.Started {
		return j.neverStarted(ctx, err)
	}
	v := failure(err)
	v.NotStarted = true
	j.log.WithField("reason", v.Reason).Warn("the runner ran nothing: " + v.Message)
	j.closingWords(j.masks.String(v.Message))
	j.entry.Phase = instance.Starting // no process is left, so the next agent process only has to report
	return j.report(ctx, v)
}

// hasLeave asks the server whether a runner of this claim has leave. It retries until the server
// answers. An error is errSuperseded or errStopping.
func (j *job) hasLeave(ctx context.Context) (leave bool, err error) {
	if j.stock() {
		return false, nil
	}
	var response protocol.HeartbeatResponse
	err = j.agent.policy(retryLimit).Do(ctx, func(err error) bool { return !protocol.Refused(err) }, func() (err error) {
		response, err = j.client.Heartbeat(ctx, protocol.PhasePreparing)
		return err
	})
	switch {
	case err == nil:
		return response.Started, nil
	case protocol.Refused(err):
		return false, errSuperseded
	}
	return false, errStopping
}

// vanished returns the verdict for a job whose runner has leave but no longer exists. v states what
// the engine said. The runner may still report, because its machine can be cut off from its engine:
// the server lets such a report correct the reason lost.
func (j *job) vanished(v delivery.Verdict) delivery.Verdict {
	text := "The server had permitted the job to start, but its runner no longer exists and its result is unknown. " + workflow.UnknownEnd + " (" + v.Message + ")"
	v = delivery.Failed(workflow.ReasonLost, "%s", text)
	j.log.Warn(v.Message)
	j.closingWords(j.masks.String(v.Message))
	return v
}

// ranNothing reports whether a late runner ended without having run any part of the job: it says so,
// or the server confirms that it had no leave.
func (j *job) ranNothing(ctx context.Context, exit executor.Exit) bool {
	if j.launcher() == nil || exit.Result != nil || exit.Code == 0 {
		return false
	}
	if exit.Code == protocol.ExitNoLeave || exit.Code == protocol.ExitNoLaunch {
		return true
	}
	if j.stock() {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, lateProbe)
	defer cancel()
	leave, err := j.hasLeave(limited)
	return err == nil && !leave
}

// nothingRan returns the failure of a job whose runner ended without having run any part of it.
func nothingRan(exit executor.Exit) *executor.Error {
	reason := exit.Reason
	exit.Reason = workflow.ReasonNone
	if reason == workflow.ReasonNone && exit.Lost {
		reason = workflow.ReasonLaunch
	}
	v := judge(exit, false)
	if exit.Code != protocol.ExitNoLeave && exit.Code != protocol.ExitNoLaunch {
		v.Message = "The runner ended before the server had permitted the job to start. The job did not run."
		if exit.Detail != "" {
			v.Message += " (" + strings.TrimSpace(exit.Detail) + ")"
		}
	}
	return &executor.Error{Reason: cmp.Or(reason, v.Reason), Message: v.Message}
}
