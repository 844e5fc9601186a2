package agent

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

var (
	// errStopping reports that the agent is detaching from its jobs. The next process resumes a job
	// that is in the journal, and the server requeues any other job.
	errStopping = errors.New("the agent is stopping")
	// errSuperseded reports that the job was assigned to another agent, or that the server already
	// has the job's final result.
	errSuperseded = errors.New("the server has closed the job or assigned it to another agent")
	errCancelled  = &executor.Error{Reason: workflow.ReasonCancelled, Message: "The deployment was cancelled before it started."}
)

const (
	heartbeatInterval  = 10 * time.Second
	retryFirst         = time.Second // default for [Options.JobRetry]
	retryLimit         = 10 * time.Second
	executorRetryLimit = 30 * time.Second // maximum pause between calls to the executor
	// definitionTime bounds the requests for the definition. Heartbeats renew the lease meanwhile.
	definitionTime = 2 * time.Minute
	// prepareTime bounds the image pull and the container's creation.
	prepareTime = time.Hour
	// leaveTime bounds the requests for permission to start. The server waits for the same time
	// before it marks a permitted job as lost.
	leaveTime = 10 * time.Minute
	// setupFlushTime is the maximum time that the delivery of the set-up log may delay a job's
	// result.
	setupFlushTime = 30 * time.Second
	// cleanupTime bounds the removal of a finished job's objects, because a busy host can keep a
	// file system mounted for a while. stopCleanupTime bounds the removal while the agent is
	// stopping.
	cleanupTime     = 2 * time.Minute
	stopCleanupTime = 5 * time.Second
	handBackTime    = 5 * time.Second
	// deliverTime is how long the agent keeps a job's log and result while the server is
	// unreachable. The server accepts them for the same period.
	deliverTime = 24 * time.Hour
	// leastDeliverTime is the minimum time for a delivery, even if the agent was not running for a
	// day.
	leastDeliverTime = 15 * time.Minute
	// maxPanics is the number of panics in a job's goroutine after which the agent leaves the job
	// to the next agent process.
	maxPanics = 3
)

// haltRetry is the policy for repeated calls that stop or remove a job. It starts with a short
// pause, because the job's result is not reported before the call succeeds.
var haltRetry = retry.Policy{First: 100 * time.Millisecond, Max: executorRetryLimit}

func (a *Agent) policy(limit time.Duration) retry.Policy {
	return retry.Policy{First: a.opts.JobRetry, Max: limit}
}

// job is the agent's state for one job. One goroutine owns it.
type job struct {
	agent   *Agent
	name    string // the name of the journal entry
	entry   instance.Entry
	client  *protocol.JobClient
	log     *logrus.Entry
	masks   *redact.Set
	maskErr error // why masks does not contain the secrets of this host
	// largeMasks is true while masks can need much memory.
	largeMasks bool
	echoed     atomic.Int64 // see [instance.Entry]; the copy of the output can outlive the job
	courier    *delivery.Courier
	logs       *delivery.Log // the streams that the agent itself writes
}

func (a *Agent) newJob(e instance.Entry) *job {
	j := &job{
		agent:  a,
		name:   instance.JobName(e.Claim.JobID, e.Claim.Epoch),
		entry:  e,
		client: a.opts.Client.Job(e.Claim.JobID, e.Claim.JobToken),
		log:    a.jobLog(e),
	}
	j.echoed.Store(e.Echoed)
	j.maskHost()
	return j
}

func (j *job) saveEntry() error {
	j.entry.Signed, j.entry.Echoed = j.client.Signed(), j.echoed.Load()
	return j.agent.journal.Write(j.name, j.entry)
}

func (a *Agent) accept(claim protocol.PollResponse) {
	j := a.newJob(instance.Entry{Claim: claim, ServiceURL: a.opts.ServiceURL, ClaimedAt: time.Now().UTC()})
	if a.hasRun(j.name) {
		j.log.Warn("the server assigned a job that this agent has already run; not running it again: check whether a proxy caches polls")
		return
	}
	if !a.launch(j, status.Preparing, func() { j.run(j.runClaimed) }) {
		j.log.Debug("the server assigned a job that this agent already has")
	}
}

func (j *job) run(part func(context.Context) (delivery.Verdict, error)) {
	ctx := j.agent.stopping
	defer j.dropLargeMasks()
	j.courier = j.newCourier()
	j.agent.board.change(j.name, func(s *shownJob) { s.courier = j.courier })
	var v delivery.Verdict
	err := j.openLog(ctx)
	switch {
	case err == nil:
		v, err = j.runRecovering(ctx, part)
	case !errors.Is(err, errStopping):
		// The job has not started, so its result can still report this failure.
		j.log.WithError(err).Error("storing the job's log failed: check whether the disk of state_directory is full")
		v, err = j.report(ctx, delivery.Failed(workflow.ReasonLaunch, "The agent could not store this job's log on its disk.%s", j.agent.onFullDisk(err)))
	}
	if err := j.courier.Close(); err != nil {
		j.log.WithError(err).Warn("closing the job's log failed")
	}
	j.retire(v, err)
}

// retire logs the outcome of the agent's work on the job. It removes the job's files unless the next
// process needs them.
func (j *job) retire(v delivery.Verdict, err error) {
	how := status.Outcome{Status: string(v.Status), Reason: string(v.Reason), Message: v.Message}
	switch {
	case errors.Is(err, errStopping):
		j.ended(status.Outcome{Status: status.Detached})
		return
	case errors.Is(err, errSuperseded):
		how = status.Outcome{Status: status.GivenAway}
		j.log.Info("the server has closed the job or assigned it to another agent; this agent stops working on the job")
	case err != nil:
		how.Status, how.Message = status.Unreported, j.masks.String(err.Error())
		j.log.WithError(err).Error("reporting the job's result failed")
	default:
		log := j.log.WithField("status", v.Status)
		if v.Reason != "" {
			log = log.WithField("reason", v.Reason)
		}
		log.Info("the job has finished")
	}
	j.ended(how)
	if j.agent.opts.Keeper != nil {
		j.agent.opts.Keeper.Changed()
	}
	if j.stock() && !errors.Is(err, errSuperseded) {
		j.agent.remember(j.name)
	}
	if err := j.agent.journal.Remove(j.name); err != nil {
		j.log.WithError(err).Warn("removing the job's journal failed")
	}
	if j.agent.opts.SingleRun && !errors.Is(err, errSuperseded) {
		j.agent.oneOnly.Do(func() { close(j.agent.ranOne) })
	}
}

func (j *job) runClaimed(ctx context.Context) (delivery.Verdict, error) {
	j.log.Info("running deployment workflow")
	j.stepStatus(0, workflow.StepRunning)
	identity := j.agent.opts.Identity
	j.writeSetup("Agent %s (id %s, version %s) runs this job.", identity.Hostname, identity.ID, j.agent.opts.Version)

	preparing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	definition, err := j.prepare(preparing, cancel)
	if err == nil {
		err = j.launch(preparing, definition)
	}
	return j.conclude(ctx, err)
}

// conclude waits until a started job has finished. If err is not nil, it is the error of the start,
// and conclude reports the failure.
func (j *job) conclude(ctx context.Context, err error) (delivery.Verdict, error) {
	switch {
	case err == nil:
		return j.follow(ctx)
	case errors.Is(err, errStopping) && j.entry.Phase != "":
		return delivery.Verdict{}, err // the next process resumes the job from the journal
	}
	if j.entry.Phase == instance.Starting && j.launcher() != nil {
		return j.concludeLate(ctx, err)
	}
	if j.entry.Phase == instance.Starting {
		// Start may have been called, so the job may be running until Remove has succeeded.
		if err := j.removeStarted(ctx); err != nil {
			return delivery.Verdict{}, err
		}
	} else {
		j.removeObjects()
	}
	switch {
	case errors.Is(err, errStopping):
		// The job cannot have started, so the server requeues it.
		j.handBack()
		j.log.Info("the agent is stopping; the server requeues the job")
		return delivery.Verdict{}, errSuperseded
	case errors.Is(err, errSuperseded):
		return delivery.Verdict{}, err
	}
	return j.neverStarted(ctx, err)
}

// handBack returns a job that has not started to the server, so that another agent can claim it at
// once. If this fails, the server requeues the job when its lease expires.
func (j *job) handBack() {
	if j.stock() {
		return
	}
	ctx, cancel := context.WithTimeout(j.agent.aborting, handBackTime)
	defer cancel()
	if _, err := j.client.Heartbeat(ctx, protocol.PhaseReturned); err != nil && !protocol.Refused(err) {
		j.log.WithError(err).Debug("handing back the job failed; the server requeues it when its lease expires")
	}
}

// neverStarted finishes a job that was never started. It writes one line to the set-up log and
// reports a result.
func (j *job) neverStarted(ctx context.Context, err error) (delivery.Verdict, error) {
	v := failure(err)
	v.Message += j.agent.onFullDisk(err)
	v.NotStarted = j.entry.Phase == instance.Starting && j.launcher() != nil
	v.Message = j.masks.String(v.Message)
	j.dropLargeMasks() // the report can take a day
	j.log.WithField("reason", v.Reason).Warn("the job is not started: " + v.Message)
	j.writeSetup("%s", v.Message)
	j.endStream(j.logs, setupStep)
	j.endedSetup(workflow.StepFailed)
	return j.report(ctx, v)
}

// failure returns the verdict for a job whose start failed with err.
func failure(err error) delivery.Verdict {
	v := delivery.Failed(workflow.ReasonLaunch, "%s", err)
	if failed, ok := errors.AsType[*executor.Error](err); ok {
		v = delivery.Failed(failed.Reason, "%s", failed.Message)
	} else if bad, ok := errors.AsType[*protocol.DefinitionError](err); ok {
		v = delivery.Failed(workflow.ReasonInvalidJob, "%s", bad)
	}
	return v
}

func (j *job) stepStatus(step int, status workflow.StepStatus) {
	now := time.Now().UTC()
	req := protocol.StepStatusRequest{Status: status, FinishedAt: &now}
	if status == workflow.StepRunning {
		req.StartedAt, req.FinishedAt = &now, nil
	}
	j.courier.ReportStep(step, req)
}

// endedSetup reports the end of the set-up and the size of its log, to which the agent adds nothing
// more.
func (j *job) endedSetup(status workflow.StepStatus) {
	now, size := time.Now().UTC(), j.setupBytes()
	j.courier.ReportStep(setupStep, protocol.StepStatusRequest{Status: status, FinishedAt: &now, LogBytes: &size})
}

// removeStarted removes a job that may be running. It retries until it succeeds or the agent stops.
// In the latter case, the next process resumes the job from the journal.
func (j *job) removeStarted(ctx context.Context) error {
	return j.retryCall(ctx, "Removing the job failed, so it may still be running; its result is reported after the removal", j.agent.opts.Executor.Remove)
}

// killLeftovers kills the processes that outlive a runner. The job's result permits the stack's
// next deployment, so all of the job's processes must have exited before the result is reported.
func (j *job) killLeftovers(ctx context.Context) error {
	return j.retryCall(ctx, "Processes of the job may still be running; its result is reported after they are killed", func(ctx context.Context, h executor.Handle) error {
		err := j.agent.opts.Executor.Stop(ctx, h, executor.StopKill)
		if errors.Is(err, executor.ErrNotStarted) {
			return j.agent.opts.Executor.Remove(ctx, h) // Remove ensures that a concurrent start cannot succeed later
		}
		return err
	})
}

// retryCall repeats call until it succeeds or the agent stops. Its only error is errStopping.
func (j *job) retryCall(ctx context.Context, warning string, call func(context.Context, executor.Handle) error) error {
	level := logrus.WarnLevel
	err := haltRetry.Do(ctx, func(err error) bool {
		j.log.WithError(err).Log(level, warning)
		level = logrus.DebugLevel
		return true
	}, func() error {
		limited, cancel := context.WithTimeout(ctx, engineCall)
		defer cancel()
		return call(limited, *j.entry.Handle)
	})
	if err != nil {
		return errStopping
	}
	return nil
}

// removeObjects removes the objects of a job that is no longer running. It retries until the
// cleanup deadline. It uses its own context, because all other contexts may already be canceled.
func (j *job) removeObjects() {
	if j.entry.Handle == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	unlink := context.AfterFunc(j.agent.stopping, func() { time.AfterFunc(stopCleanupTime, cancel) })
	defer unlink()
	err := j.agent.policy(retryLimit).Do(ctx, func(err error) bool {
		j.log.WithError(err).Debug("removing the job's leftovers failed; retrying")
		j.agent.freeSlot(j.name)
		return true
	}, func() error { return j.agent.opts.Executor.Remove(ctx, *j.entry.Handle) })
	if err != nil {
		j.log.WithError(err).Warn("removing the job's leftovers failed; the agent retries at its next start")
	}
}

// recoverPanic calls f and reports whether f panicked. A panic must not stop the agent, because the
// agent has other jobs.
func (j *job) recoverPanic(what string, f func()) (panicked bool) {
	defer func() {
		if value := recover(); value != nil {
			panicked = true
			j.log.WithField("panic", value).Errorf("the agent panicked while %s; this is a bug, please report it:\n%s", what, debug.Stack())
		}
	}()
	f()
	return false
}

// runRecovering runs part of a job's work. After a panic, it resumes the job in the same way as an
// agent restart: it reports the job as failed only if the job cannot have started.
func (j *job) runRecovering(ctx context.Context, part func(context.Context) (delivery.Verdict, error)) (v delivery.Verdict, err error) {
	for panics := 0; ; panics++ {
		if !j.recoverPanic("working on this job", func() { v, err = part(ctx) }) {
			return v, err
		}
		if panics >= maxPanics || j.agent.policy(executorRetryLimit).Wait(ctx, panics, nil) != nil {
			return delivery.Verdict{}, errStopping // the next process resumes the job from the journal
		}
		part = j.resume
		if j.entry.Phase == "" {
			part = func(ctx context.Context) (delivery.Verdict, error) {
				return j.conclude(ctx, &executor.Error{
					Reason:  workflow.ReasonInternalError,
					Message: "The agent panicked while preparing this job. This is a bug: please report it with the agent's log.",
				})
			}
		}
	}
}

func (j *job) keepRunning(ctx context.Context, what string, f func()) {
	for tries := 0; j.recoverPanic(what, f); tries++ {
		if j.agent.policy(time.Minute).Wait(ctx, tries, nil) != nil {
			return
		}
	}
}
