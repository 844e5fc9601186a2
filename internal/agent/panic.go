package agent

import (
	"context"
	"runtime/debug"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/workflow"
)

// maxPanics is how many panics in one job's work leave the job to the next process.
const maxPanics = 3

// recoverPanic reports whether f panicked: that must not end the agent, which has other jobs.
func (j *job) recoverPanic(what string, f func()) (panicked bool) {
	defer func() {
		if value := recover(); value != nil {
			panicked = true
			j.log.WithField("panic", value).Errorf("a defect of the agent ended %s; please report it:\n%s", what, debug.Stack())
		}
	}()
	f()
	return false
}

// runRecovering runs a part of a job's life. After a panic it resumes the job as after a
// restart of the agent: one that may run is not reported as failed, one that cannot have
// started is.
func (j *job) runRecovering(hard context.Context, part func(context.Context) (delivery.Verdict, error)) (v delivery.Verdict, err error) {
	for panics := 0; ; panics++ {
		if !j.recoverPanic("its work for this job", func() { v, err = part(hard) }) {
			return v, err
		}
		if panics >= maxPanics || j.pause(hard, panics) != nil {
			return delivery.Verdict{}, errStopping // the next process continues from the journal
		}
		part = j.resume
		if j.entry.Phase == "" {
			part = func(ctx context.Context) (delivery.Verdict, error) {
				return j.neverStarted(ctx, &refusedError{delivery.Failed(workflow.ReasonInternalError,
					"The agent failed while it prepared this job. This is a defect: please report it with the agent's log.")})
			}
		}
	}
}

func (j *job) pause(hard context.Context, tries int) error {
	ctx, cancel := j.untilStopped(hard)
	defer cancel(nil)
	return j.agent.policy(executorRetryLimit).Wait(ctx, tries, nil)
}

func (j *job) keepRunning(ctx context.Context, what string, f func()) {
	for tries := 0; j.recoverPanic(what, f); tries++ {
		if j.agent.policy(time.Minute).Wait(ctx, tries, nil) != nil {
			return
		}
	}
}
