package agent

import (
	"context"
	"errors"
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
	// errStopping: the agent detaches. A job in the journal is for the next process; any other
	// returns to the queue.
	errStopping = errors.New("the agent is stopping")
	// errSuperseded: the job belongs to another agent, or has its final result.
	errSuperseded = errors.New("the server has given the job away or closed it")
	errCancelled  = errors.New("the deployment was cancelled")
)

const (
	heartbeatInterval  = 10 * time.Second
	retryFirst         = time.Second // default of [Options.JobRetry]
	retryLimit         = 10 * time.Second
	executorRetryLimit = 30 * time.Second // limit of the pause between calls of the executor
	// definitionTime bounds the requests for the definition: after such a silence the server
	// requeues an unstarted job.
	definitionTime = 2 * time.Minute
	// prepareTime bounds the pull of an image and the creation of a container.
	prepareTime = time.Hour
	// leaveTime bounds the requests for permission to start. The server waits as long before it
	// reports a permitted job as lost.
	leaveTime = 10 * time.Minute
	// setupFlushTime is how long the set-up log may delay the end of a job.
	setupFlushTime = 30 * time.Second
	// removeTime bounds the removal of a job's objects while the agent stops.
	removeTime = 5 * time.Second
	// deliverTime is how long the agent keeps a job's log and result for an unreachable server,
	// which accepts them as long.
	deliverTime = 24 * time.Hour
	// leastDeliverTime is the minimum time of a delivery, for instance after the agent was off
	// for a day.
	leastDeliverTime = 15 * time.Minute
)

// haltRetry begins early, because the report of the job's end waits for the call.
var haltRetry = retry.Policy{First: 100 * time.Millisecond, Max: executorRetryLimit}

func (a *Agent) policy(limit time.Duration) retry.Policy {
	return retry.Policy{First: a.opts.JobRetry, Max: limit}
}

// job is the agent's work for one job, in one goroutine.
type job struct {
	agent   *Agent
	name    string // in the journal
	entry   instance.Entry
	client  *protocol.JobClient
	log     *logrus.Entry
	masks   *redact.Set
	courier *delivery.Courier
	logs    *delivery.Log // the agent's own streams
}

func (a *Agent) newJob(e instance.Entry) *job {
	j := &job{
		agent:  a,
		name:   instance.JobName(e.Claim.JobID, e.Claim.Epoch),
		entry:  e,
		client: a.opts.Client.Job(e.Claim.JobID, e.Claim.JobToken),
		log:    a.jobLog(e),
		masks:  redact.New(nil, redact.Options{}),
	}
	j.masks.Add(
		redact.Secret{Name: "job token", Value: e.Claim.JobToken},
		redact.Secret{Name: "OIDC token", Value: e.Claim.OIDCToken},
	)
	for _, value := range a.opts.Tokens.Values() {
		j.masks.Add(redact.Secret{Name: "pool token", Value: value})
	}
	for name, values := range protocol.ProxySecrets(a.opts.ProxyEnv) {
		for _, value := range values {
			j.masks.Add(redact.Secret{Name: name, Value: value})
		}
	}
	for name, value := range a.opts.ForwardedEnv {
		j.masks.Add(redact.Secret{Name: name, Value: value})
	}
	return j
}

func (j *job) saveEntry() error {
	j.entry.Signed = j.client.Signed()
	return j.agent.journal.Write(j.name, j.entry)
}

func (a *Agent) accept(hard context.Context, claim protocol.PollResponse) {
	j := a.newJob(instance.Entry{Claim: claim, ServiceURL: a.opts.ServiceURL, ClaimedAt: time.Now().UTC()})
	if a.hasRun(j.name) {
		j.log.Warn("the server hands out a job that this agent has already run; it is not run again (does a proxy cache polls?)")
		return
	}
	if !a.launch(j, status.Preparing, func() { j.run(hard, j.runClaimed) }) {
		j.log.Debug("the server names a job that this agent already has")
	}
}

func (j *job) run(hard context.Context, part func(context.Context) (delivery.Verdict, error)) {
	j.courier = j.newCourier()
	j.agent.board.change(j.name, func(s *shownJob) { s.courier = j.courier })
	var v delivery.Verdict
	err := j.openLog(hard)
	switch {
	case err == nil:
		v, err = j.runRecovering(hard, part)
	case !errors.Is(err, errStopping):
		// Nothing was started, and the result can still state the reason.
		j.log.WithError(err).Error("the log of the job cannot be stored: is the disk of state_directory full?")
		v, err = j.report(hard, delivery.Failed(workflow.ReasonLaunch, "The agent could not keep the log of this job on its disk."))
	}
	if err := j.courier.Close(); err != nil {
		j.log.WithError(err).Warn("closing the log of the job failed")
	}
	j.end(v, err)
}

// end records the end of the agent's work and removes its files, unless the next process needs
// them.
func (j *job) end(v delivery.Verdict, err error) {
	how := outcome(v)
	switch {
	case errors.Is(err, errStopping):
		j.ended(status.Outcome{Status: status.Detached})
		return
	case errors.Is(err, errSuperseded):
		how = status.Outcome{Status: status.GivenAway}
		j.log.Info("the server has closed the job or given it to another agent; nothing more is done for it")
	case err != nil:
		how = status.Outcome{Status: status.Unreported, Reason: string(v.Reason), Message: j.masks.String(err.Error())}
		j.log.WithError(err).Error("reporting the end of the job failed")
	default:
		log := j.log.WithField("status", v.Status)
		if v.Reason != "" {
			log = log.WithField("reason", v.Reason)
		}
		log.Info("the job has ended")
	}
	j.ended(how)
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

func (j *job) runClaimed(hard context.Context) (delivery.Verdict, error) {
	j.log.Info("running deployment workflow")
	j.stepStatus(0, workflow.StepRunning)
	identity := j.agent.opts.Identity
	j.writeSetup("Agent %s (id %s, version %s) runs this job.", identity.Hostname, identity.ID, j.agent.opts.Version)

	ctx, cancel := j.untilStopped(hard)
	defer cancel(nil)
	p, err := j.prepare(ctx, cancel)
	if err == nil {
		err = j.launch(ctx, hard, p)
	}
	return j.conclude(hard, p, err)
}

func (j *job) conclude(hard context.Context, p prepared, err error) (delivery.Verdict, error) {
	switch {
	case err == nil:
		return j.follow(hard)
	case errors.Is(err, errStopping) && j.entry.Phase != "":
		return delivery.Verdict{}, err // the next process continues from the journal
	}
	if j.entry.Phase == instance.Starting {
		// Start may have been called, so the job may run until Remove has succeeded.
		if err := j.removeStarted(hard); err != nil {
			return delivery.Verdict{}, err
		}
	} else {
		j.removeObjects(p.handle)
	}
	switch {
	case errors.Is(err, errStopping):
		// It cannot have started: the server requeues it.
		j.log.Info("the agent stops; the job returns to the queue")
		return delivery.Verdict{}, errSuperseded
	case errors.Is(err, errSuperseded):
		return delivery.Verdict{}, err
	}
	return j.neverStarted(hard, err)
}

// untilStopped returns a context that ends with hard or, with errStopping, when the agent
// stops.
func (j *job) untilStopped(hard context.Context) (context.Context, context.CancelCauseFunc) {
	// Not a child of hard, whose end would come with another cause.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(hard))
	unlinkHard := context.AfterFunc(hard, func() { cancel(errStopping) })
	unlink := context.AfterFunc(j.agent.stopping, func() { cancel(errStopping) })
	return ctx, func(cause error) {
		unlink()
		unlinkHard()
		cancel(cause)
	}
}

// neverStarted ends a job of which nothing ran, with one line in the set-up log and a result.
func (j *job) neverStarted(hard context.Context, err error) (delivery.Verdict, error) {
	v := delivery.Failed(workflow.ReasonLaunch, "%s", err)
	var refused *refusedError
	var failed *executor.Error
	var bad *protocol.DefinitionError
	switch {
	case errors.As(err, &refused):
		v = refused.verdict
	case errors.Is(err, errCancelled):
		v = delivery.Failed(workflow.ReasonCancelled, "The deployment was cancelled before it started.")
	case errors.As(err, &bad):
		v = delivery.Failed(workflow.ReasonInvalidJob, "%s", bad)
	case errors.As(err, &failed):
		v = delivery.Failed(failed.Reason, "%s", failed.Message)
	}
	v.Message = j.masks.String(v.Message)
	j.log.WithField("reason", v.Reason).Warn("the job is not started: " + v.Message)
	j.writeSetup("%s", v.Message)
	j.endStream(j.logs, setupStep)
	j.stepStatus(setupStep, workflow.StepFailed)
	return j.report(hard, v)
}

type refusedError struct{ verdict delivery.Verdict }

// Error returns the line for the deployment's log.
func (e *refusedError) Error() string { return e.verdict.Message }

func (j *job) writeSetup(format string, args ...any) { j.writeLine(j.logs, setupStep, format, args...) }

func (j *job) stepStatus(step int, status workflow.StepStatus) {
	now := time.Now().UTC()
	req := protocol.StepStatusRequest{Status: status, FinishedAt: &now}
	if status == workflow.StepRunning {
		req.StartedAt, req.FinishedAt = &now, nil
	}
	j.courier.ReportStep(step, req)
}

// removeStarted removes a job that may run. It retries until it succeeds or the agent stops;
// the next process then resumes the job from the journal.
func (j *job) removeStarted(hard context.Context) error {
	return j.retryCall(hard, "The job could not be removed, so it may still run; its end is not reported until it is removed", j.agent.opts.Executor.Remove)
}

// killLeftovers kills the processes that outlive a runner. The report of the end allows the
// stack's next deployment, so nothing may run by then.
func (j *job) killLeftovers(hard context.Context) error {
	return j.retryCall(hard, "Processes of the job may still run; its end is not reported until they are gone", func(ctx context.Context, h executor.Handle) error {
		err := j.agent.opts.Executor.Stop(ctx, h, executor.StopKill)
		if errors.Is(err, executor.ErrNotStarted) {
			return j.agent.opts.Executor.Remove(ctx, h) // so that no concurrent start can still succeed
		}
		return err
	})
}

// retryCall repeats call until it succeeds, or returns errStopping.
func (j *job) retryCall(hard context.Context, warning string, call func(context.Context, executor.Handle) error) error {
	ctx, cancel := j.untilStopped(hard)
	defer cancel(nil)
	for tries := 0; ; tries++ {
		limited, done := context.WithTimeout(ctx, engineCall)
		err := call(limited, *j.entry.Handle)
		done()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errStopping
		case tries == 0:
			j.log.WithError(err).Warn(warning)
		default:
			j.log.WithError(err).Debug(warning)
		}
		if haltRetry.Wait(ctx, tries, nil) != nil {
			return errStopping
		}
	}
}

// removeObjects has its own context: it must work even when all others have ended.
func (j *job) removeObjects(h *executor.Handle) {
	if h == nil {
		return
	}
	limit := engineCall
	if j.agent.stopping.Err() != nil {
		limit = removeTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	for tries := range 3 {
		if err = j.agent.opts.Executor.Remove(ctx, *h); err == nil {
			return
		}
		if j.agent.policy(retryLimit).Wait(ctx, tries, nil) != nil {
			break
		}
	}
	j.log.WithError(err).Warn("removing the job's leftovers failed; the next start of the agent retries")
}
