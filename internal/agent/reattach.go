package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

const (
	// startedProbe bounds the check for whether a job was started. If the check times out, the
	// agent assumes that the job is running.
	startedProbe = 2 * time.Second
	sweepRetry   = time.Minute
)

// reattach resumes the jobs in the journal that use this server and executor, and removes
// leftovers.
func (a *Agent) reattach() error {
	entries, foreign, err := a.journal.Read()
	if err != nil {
		return err
	}
	// Sweep must run before jobs are resumed, because it would remove their new logs.
	if err := a.journal.Sweep(); err != nil {
		a.log.WithError(err).Warn("removing the logs of jobs that never started failed")
	}
	for _, name := range foreign {
		a.log.WithField("entry", name).Warn("ignoring a journal entry of an unknown version")
	}
	for name, e := range entries {
		j := a.newJob(e)
		switch {
		case j.name != name:
			j.log.Warn("ignoring a journal entry whose file name does not match its job")
		case e.ServiceURL != a.opts.ServiceURL:
			j.log.WithField("service_url", e.ServiceURL).Warn("ignoring a journal entry for another service_url: to resume its job, configure that service_url")
		case e.Handle != nil && e.Handle.Executor != a.opts.Executor.Name():
			j.log.WithField("deploy_target", e.Handle.Executor).Warn("ignoring a journal entry for another deploy_target: to resume its job, configure that deploy_target")
		default:
			j.log.WithField("phase", string(e.Phase)).Info("resuming a job from before the restart")
			a.epochs = a.epochs || e.Claim.Epoch > 0
			if e.Signed {
				a.opts.Client.ExpectSigned() // before the first call, so that no intermediary can respond first
			}
			a.launch(j, status.Reattaching, func() { j.run(j.resume) })
			continue
		}
		foreign = append(foreign, name)
	}
	a.loops.Go(func() { a.sweep(foreign) })
	return nil
}

// sweep waits until the executor can run jobs. It then removes the objects of jobs that have no
// journal entry.
func (a *Agent) sweep(foreign []string) {
	for {
		if a.engine.state() == nil {
			ctx, cancel := context.WithTimeout(a.stopping, engineCall)
			removed, err := executor.Sweep(ctx, a.opts.Executor, a.opts.Identity.ID, time.Now(), 0, func(h executor.Handle) bool {
				return a.claimed(h, foreign)
			})
			cancel()
			for _, h := range removed {
				a.log.WithField("job_id", h.JobID).Info("removed leftovers of an earlier job")
			}
			if err == nil {
				return
			}
			if a.stopping.Err() == nil {
				a.log.WithError(err).Warn("removing leftovers of earlier jobs failed; retrying")
			}
			if retry.Sleep(a.stopping, retry.Spread(sweepRetry)) != nil {
				return
			}
		}
		if retry.Sleep(a.stopping, retry.Spread(time.Second)) != nil {
			return
		}
	}
}

// claimed reports whether the agent is working on the job, or must leave the job to a foreign
// journal entry.
func (a *Agent) claimed(h executor.Handle, foreign []string) bool {
	name := instance.JobName(h.JobID, h.Epoch)
	a.mu.Lock()
	_, active := a.active[name]
	a.mu.Unlock()
	return active || slices.ContainsFunc(foreign, func(entry string) bool {
		// Only the name of a foreign entry is known, so the objects of all epochs are kept.
		id, _, _ := strings.Cut(entry, ".")
		mine, _, _ := strings.Cut(name, ".")
		return id == mine
	})
}

func (j *job) resume(ctx context.Context) (delivery.Verdict, error) {
	switch {
	case j.entry.Phase == instance.Reporting && j.entry.Result != nil:
		r := j.entry.Result
		v := delivery.Verdict{Status: r.Status, Reason: r.Reason, Message: r.Message, ExitCode: r.ExitCode, Signal: r.Signal, NotStarted: r.NotStarted}
		j.removeObjects()
		if j.stock() {
			j.stepStatus(setupStep, workflow.StepFailed) // reports the result to a stock server
		}
		return j.report(ctx, v)
	case j.entry.Handle == nil:
		return delivery.Verdict{}, errors.New("the journal entry does not contain the job's objects")
	case j.entry.Phase == instance.Started:
		j.relaunched()
		return j.follow(ctx)
	}
	if j.launcher() != nil {
		return j.resumeLate(ctx)
	}
	started, ran, err := j.wasStarted(ctx)
	switch {
	case err != nil:
		return delivery.Verdict{}, err
	case ran && !j.rebooted():
		j.launched()
		return j.follow(ctx)
	case started:
		j.entry.Phase = instance.Started
		return j.follow(ctx)
	}
	if j.rebooted() {
		return j.conclude(ctx, &executor.Error{Reason: workflow.ReasonLost, Message: "The agent's host was restarted during the start of the job, so it is unknown whether the job ran. The agent does not start it again. " + workflow.UnknownEnd})
	}
	definition, err := j.admitted(ctx)
	if err == nil {
		err = j.launch(ctx, definition)
	}
	return j.conclude(ctx, err)
}

// rebooted reports whether the host was restarted after the entry was written. The executor may
// then have lost unsynced files, so a job that ran briefly can look as if it had never run.
func (j *job) rebooted() bool {
	before, now := j.entry.BootID, j.agent.opts.BootID
	return before != "" && now != "" && before != now
}

// wasStarted asks the executor whether the job was started, and whether its runner is known to run it, or
// to have run it. It retries while the executor cannot run jobs. Its only error is errStopping.
func (j *job) wasStarted(ctx context.Context) (started, ran bool, err error) {
	err = j.agent.policy(executorRetryLimit).Do(ctx, func(err error) bool {
		j.log.WithError(err).Debug("checking whether the job was started failed; retrying")
		return true
	}, func() error {
		up := j.agent.engine.check(ctx) == nil
		probe, cancel := context.WithTimeout(ctx, startedProbe)
		defer cancel()
		exit, err := j.agent.opts.Executor.Wait(probe, *j.entry.Handle)
		runs := up && probe.Err() != nil && errors.Is(err, context.DeadlineExceeded)
		started = err == nil || runs
		ran = runs || err == nil && exit.Ran()
		if started || ctx.Err() == nil && errors.Is(err, executor.ErrNotStarted) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, false, errStopping
	}
	return started, ran, nil
}
