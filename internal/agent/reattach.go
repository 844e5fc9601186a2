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
	// startedProbe bounds the question whether a job was started. Silence means that it runs.
	startedProbe = 2 * time.Second
	sweepRetry   = time.Minute
)

// reattach resumes the journal's jobs of this server and executor, and removes leftovers.
func (a *Agent) reattach(hard context.Context) error {
	entries, foreign, err := a.journal.Read()
	if err != nil {
		return err
	}
	// Before the jobs continue: their new logs are no leftovers.
	if err := a.journal.Sweep(); err != nil {
		a.log.WithError(err).Warn("removing logs of jobs that were never started failed")
	}
	for _, name := range foreign {
		a.log.WithField("entry", name).Warn("the journal has an entry that this version does not understand; it is ignored")
	}
	for name, e := range entries {
		j := a.newJob(e)
		switch {
		case j.name != name:
			j.log.Warn("the journal has an entry under a wrong name; it is ignored")
		case e.ServiceURL != a.opts.ServiceURL:
			j.log.WithField("service_url", e.ServiceURL).Warn("the journal has a job of another service_url; it is ignored until the agent has that service_url again")
		case e.Handle != nil && e.Handle.Executor != a.opts.Executor.Name():
			j.log.WithField("deploy_target", e.Handle.Executor).Warn("the journal has a job of another deploy_target; it is ignored until the agent has that deploy_target again")
		default:
			j.log.WithField("phase", string(e.Phase)).Info("resuming a job of before the restart")
			a.epochs = a.epochs || e.Claim.Epoch > 0
			if e.Signed {
				a.opts.Client.ExpectSigned() // before any intermediary can answer
			}
			a.launch(j, status.Reattaching, func() { j.run(hard, j.resume) })
			continue
		}
		foreign = append(foreign, name)
	}
	a.loops.Go(func() { a.sweep(foreign) })
	return nil
}

// sweep removes objects of jobs that are in no journal, once the executor can run jobs.
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
				a.log.WithError(err).Warn("cleaning up after earlier jobs failed; retrying")
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

// claimed reports whether the agent works on a job or must leave it to a foreign entry.
func (a *Agent) claimed(h executor.Handle, foreign []string) bool {
	name := instance.JobName(h.JobID, h.Epoch)
	a.mu.Lock()
	_, active := a.active[name]
	a.mu.Unlock()
	return active || slices.ContainsFunc(foreign, func(entry string) bool {
		// Only the name of a foreign entry is known: keep every epoch.
		id, _, _ := strings.Cut(entry, ".")
		mine, _, _ := strings.Cut(name, ".")
		return id == mine
	})
}

func (j *job) resume(hard context.Context) (delivery.Verdict, error) {
	switch {
	case j.entry.Phase == instance.Reporting && j.entry.Result != nil:
		r := j.entry.Result
		v := delivery.Verdict{Status: r.Status, Reason: r.Reason, Message: r.Message, ExitCode: r.ExitCode, Signal: r.Signal}
		j.removeObjects(j.entry.Handle)
		if j.stock() {
			j.stepStatus(setupStep, workflow.StepFailed) // how a stock server learns of the end
		}
		return j.report(hard, v)
	case j.entry.Handle == nil:
		return delivery.Verdict{}, errors.New("the journal's entry names no objects")
	case j.entry.Phase == instance.Started:
		return j.follow(hard)
	}
	ctx, cancel := j.untilStopped(hard)
	defer cancel(nil)
	started, err := j.wasStarted(ctx)
	if err != nil {
		return delivery.Verdict{}, errStopping
	}
	if started {
		j.entry.Phase = instance.Started
		return j.follow(hard)
	}
	p := prepared{handle: j.entry.Handle}
	if j.rebooted() {
		return j.conclude(hard, p, &refusedError{delivery.Failed(workflow.ReasonLost,
			"The agent's host was restarted while the job was being started, so it is unknown whether the job ran; it is not started again. Check the stack before the next deployment.")})
	}
	if p.definition, err = j.fetchDefinition(ctx); err == nil {
		if v := j.agent.admit(j.entry.Claim, p.definition); v != nil {
			err = &refusedError{*v}
		} else {
			err = j.launch(ctx, hard, p)
		}
	}
	return j.conclude(hard, p, err)
}

// rebooted reports whether the host was restarted after the entry was written. The executor's
// host may then have lost unsynced files, so that a job that ran briefly looks as if it never
// had.
func (j *job) rebooted() bool {
	before, now := j.entry.BootID, j.agent.opts.BootID
	return before != "" && now != "" && before != now
}

// wasStarted asks the executor, which cannot answer while it cannot run jobs.
func (j *job) wasStarted(ctx context.Context) (bool, error) {
	for tries := 0; ; tries++ {
		up := j.agent.engine.check(ctx) == nil
		probe, cancel := context.WithTimeout(ctx, startedProbe)
		_, err := j.agent.opts.Executor.Wait(probe, *j.entry.Handle)
		timedOut := probe.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, executor.ErrNotStarted):
			return false, nil
		case err == nil || up && timedOut && errors.Is(err, context.DeadlineExceeded):
			return true, nil
		}
		j.log.WithError(err).Debug("the executor does not report whether the job was started")
		if err := j.agent.policy(executorRetryLimit).Wait(ctx, tries, nil); err != nil {
			return false, err
		}
	}
}
