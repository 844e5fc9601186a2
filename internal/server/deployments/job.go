package deployments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

func (s *Service) jobOfDeployment(ctx context.Context, deploymentID string) (store.Job, error) {
	job, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.Job, error) { return tx.JobOfDeployment(deploymentID) })
	return job, store.IfMissing(err, fault.NotFound("Deployment '%s' not found", termtext.OneLine(deploymentID, maxMessage)))
}

// callback returns the job to which a runner's token belongs. The token must match the job in the
// path and the job's current epoch.
func callback(tx *store.Tx, p identity.Principal, jobID string) (store.Job, error) {
	if p.Kind != identity.KindRunner || p.JobID != jobID {
		return store.Job{}, fault.New(fault.KindUnauthenticated, "this token is not for this job")
	}
	job, err := tx.Job(jobID)
	if err != nil {
		return store.Job{}, store.IfMissing(err, fault.New(fault.KindGone, "the job no longer exists"))
	}
	if p.Epoch != job.Epoch {
		return store.Job{}, fault.New(fault.KindGone, "the job was requeued; this claim (epoch %d) is superseded by epoch %d", p.Epoch, job.Epoch)
	}
	return job, nil
}

func ended(job store.Job) error {
	return fault.New(fault.KindGone, "the job has ended: %s%s", job.Status, because(job.Reason))
}

func because(r workflow.Reason) string {
	if r == workflow.ReasonNone {
		return ""
	}
	return " (" + string(r) + ")"
}

// onJob runs act on the job to which a runner's token belongs, in one transaction.
func (s *Service) onJob(ctx context.Context, p identity.Principal, jobID string, act func(tx *store.Tx, job *store.Job, now time.Time) error) error {
	return s.db.Write(ctx, ofRunner(p), func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		job, err := callback(tx, p, jobID)
		if err != nil {
			return err
		}
		return act(tx, &job, now)
	})
}

// ofRunner returns the owner of the job to which a runner's token belongs.
func ofRunner(p identity.Principal) scope.Set { return scope.Stack(p.Org.ID, p.StackID) }

// mayContinue returns an error unless a job's runner may continue with the job's next step. A lost
// job may, until it is overtaken.
func (s *Service) mayContinue(tx *store.Tx, job store.Job, now time.Time) error {
	lost := job.Reason == workflow.ReasonLost
	if job.Status.Final() && (!lost || now.Sub(job.EndedAt) > s.opts.Evidence) {
		return ended(job)
	}
	by, err := overtaken(tx, job)
	if err != nil {
		return err
	}
	if by != "" {
		return ended(job)
	}
	return nil
}

// maxHolder bounds the name of a holder, in bytes.
const maxHolder = 128

// CheckHolder returns an error if the name of a holder is invalid.
func CheckHolder(name string) error {
	if len(name) > maxHolder || termtext.OneLine(name, maxHolder) != name {
		return fault.Invalid("holder must be one line of at most %d bytes", maxHolder)
	}
	return nil
}

// Heartbeat extends a job's lease. If the phase is starting or running, it permits the job to start.
// In the phase returned, it requeues a job that has no permission yet.
// If the request names a holder, no other holder can receive that permission, and only the
// heartbeats of this holder then extend the lease.
func (s *Service) Heartbeat(ctx context.Context, p identity.Principal, jobID string, r protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error) {
	var out protocol.HeartbeatResponse
	if err := CheckHolder(r.Holder); err != nil {
		return out, err
	}
	err := s.onJob(ctx, p, jobID, func(tx *store.Tx, job *store.Job, now time.Time) error {
		if err := s.mayContinue(tx, *job, now); err != nil {
			return err
		}
		if job.Reason == workflow.ReasonLost && r.Phase == protocol.PhaseStarting {
			return ended(*job) // a lost job must not start at all
		}
		granted := job.Status != workflow.StatusAccepted
		columns := []string{"last_seen_at"}
		switch {
		case !granted && r.Phase == protocol.PhaseReturned:
			addNote(job, now, fmt.Sprintf("The agent on %s was stopped before it started the deployment; the deployment was requeued.", HostName(job.AgentHostname)))
			return s.requeue(tx, job, now)
		case granted && job.Holder != r.Holder && (r.Holder != "" || r.Phase == protocol.PhaseStarting):
			return fault.New(fault.KindGone, "another runner has permission to run this claim")
		case !granted && (r.Phase == protocol.PhaseStarting || r.Phase == protocol.PhaseRunning):
			job.Holder = r.Holder
			if err := s.leave(tx, job, now); err != nil {
				return err
			}
			columns = nil // all
		}
		if job.Holder == r.Holder || !granted {
			job.LastSeenAt = now // the agent must not extend the lease of a runner that may be dead
		}
		out = protocol.HeartbeatResponse{
			CancelRequested: job.CancelRequested, ForceRequested: job.ForceRequested,
			Started: job.Status != workflow.StatusAccepted,
		}
		return errors.Join(tx.TouchAgent(job.PoolID, job.AgentID, now), tx.SaveJob(*job, columns...))
	})
	return out, err
}

// leave permits a claimed job to start. The job is never requeued afterwards.
func (s *Service) leave(tx *store.Tx, job *store.Job, now time.Time) error {
	if err := apply(job, workflow.EventLeave, now); err != nil {
		return err
	}
	job.StartedAt = now
	changed(tx, *job)
	if err := outbox.Changed(tx, job.StackID, job.DeploymentID); err != nil {
		return err
	}
	return s.record(tx, *job, webhooks.DeploymentStarted)
}

// AssumeStarted grants leave to a claimed job whose agent can have started it without the knowledge of the database, which
// was restored from a backup. So the job is never handed out again, and ends with its result, or as lost. The note is
// added to it, and to a running job.
func (s *Service) AssumeStarted(ctx context.Context, u store.Unfinished, note string) error {
	return s.db.Write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		job, err := tx.Job(u.JobID)
		if err != nil {
			return err
		}
		switch job.Status {
		case workflow.StatusAccepted:
			if err := s.leave(tx, &job, now); err != nil {
				return err
			}
		case workflow.StatusRunning:
		default:
			return nil
		}
		if slices.ContainsFunc(job.Notes, func(n store.Note) bool { return n.Text == note }) {
			return nil
		}
		job.LastSeenAt = now
		addNote(&job, now, note)
		return tx.SaveJob(job)
	})
}

// CheckStepStatus returns an error if a report about a step is invalid.
func CheckStepStatus(r protocol.StepStatusRequest) error {
	switch r.Status {
	case workflow.StepNotStarted, workflow.StepRunning, workflow.StepSucceeded, workflow.StepFailed, workflow.StepSkipped:
	default:
		return fault.Invalid("%q is not a status of a step: use not-started, running, succeeded, failed or skipped", termtext.OneLine(string(r.Status), maxMessage))
	}
	for _, at := range []*time.Time{r.StartedAt, r.FinishedAt} {
		// In UTC, a time with an offset can be in a year that JSON cannot express.
		if at != nil && (at.UTC().Year() < 0 || at.UTC().Year() > 9999) {
			return fault.Invalid("startedAt and finishedAt must be in the years 0 to 9999 in UTC")
		}
	}
	if r.LogBytes != nil && *r.LogBytes < 0 {
		return fault.Invalid("logBytes must not be negative")
	}
	return nil
}

// StepStatus records the progress of a step.
func (s *Service) StepStatus(ctx context.Context, p identity.Principal, jobID string, step int, r protocol.StepStatusRequest) error {
	if err := CheckStepStatus(r); err != nil {
		return err
	}
	return s.onJob(ctx, p, jobID, func(tx *store.Tx, job *store.Job, now time.Time) error {
		if step < 0 || step >= len(job.Steps) {
			return fault.Invalid("the job has steps 0 to %d", len(job.Steps)-1)
		}
		if job.Status.Final() && job.Reason != workflow.ReasonLost {
			return nil // a late report: the job already has its result
		}
		UpdateStep(&job.Steps[step], r, now)
		if s := &job.Steps[step]; s.Name == workflow.SourceStepName && s.Commit == "" && isFullCommit(r.Commit) {
			s.Commit = r.Commit // only once, because the program of a later step can imitate its runner
		}
		if job.Steps[step].Name == workflow.SourceStepName {
			s.recordUse(tx, &job.Steps[step], r.Workspace)
		}
		if setup := &job.Steps[0]; step > 0 && setup.Status == workflow.StepRunning {
			// The agent, which reports the end of the set-up, can be stopped at this time.
			setup.Status, setup.UpdatedAt, setup.FinishedAt = workflow.StepSucceeded, now, job.Steps[step].StartedAt
		}
		job.LastSeenAt, job.ModifiedAt = now, now
		changed(tx, *job)
		if job.Stock && job.Status == workflow.StatusRunning {
			if err := s.endStock(tx, job, now); err != nil {
				return err
			}
		}
		return tx.SaveJob(*job)
	})
}

func isFullCommit(hash string) bool {
	return (len(hash) == 40 || len(hash) == 64) && strings.Trim(hash, "0123456789abcdef") == ""
}

// UpdateStep changes the state of a step by a report that [CheckStepStatus] accepts.
func UpdateStep(st *store.StepState, r protocol.StepStatusRequest, now time.Time) {
	if (st.Status == workflow.StepSucceeded || st.Status == workflow.StepSkipped) && r.Status == workflow.StepFailed {
		return // the agent of a runner that died takes the step with the last log for the one that failed
	}
	st.Status, st.UpdatedAt, st.LogBytes = r.Status, now, r.LogBytes
	if r.ExitCode != nil {
		st.ExitCode = r.ExitCode
	}
	if v, err := workflow.ParseVersion(r.PulumiVersion); err == nil {
		st.PulumiVersion = v.String()
	}
	if r.StartedAt != nil {
		st.StartedAt = r.StartedAt.UTC()
	}
	if st.StartedAt.IsZero() && r.Status != workflow.StepNotStarted && r.Status != workflow.StepSkipped {
		st.StartedAt = now
	}
	switch {
	case r.FinishedAt != nil:
		st.FinishedAt = r.FinishedAt.UTC()
	case r.Status == workflow.StepSucceeded || r.Status == workflow.StepFailed:
		st.FinishedAt = now
	}
}

// endStock ends the job of a stock agent if the job's steps determine its outcome, because such an
// agent reports no results. Stock agents never report step 0.
func (s *Service) endStock(tx *store.Tx, job *store.Job, now time.Time) error {
	succeeded := 0
	for i, step := range job.Steps[1:] {
		switch step.Status {
		case workflow.StepFailed:
			return s.finish(tx, job, verdict{
				event: workflow.EventFail, reason: workflow.ReasonExitCode,
				message: fmt.Sprintf("step %d (%s) failed", i+1, step.Name),
			}, now)
		case workflow.StepSucceeded:
			succeeded++
		}
	}
	if succeeded < len(job.Steps)-1 {
		return nil
	}
	return s.finish(tx, job, verdict{event: workflow.EventSucceed}, now)
}

// Result ends a job with the result that its runner or agent reports. Callers may repeat the
// result. On a [*joblog.Missing] error, the caller must first send the missing log.
func (s *Service) Result(ctx context.Context, p identity.Principal, jobID string, r protocol.ResultRequest) error {
	if r.Status != workflow.StatusSucceeded && r.Status != workflow.StatusFailed {
		return fault.Invalid("a result is %q or %q, not %q", workflow.StatusSucceeded, workflow.StatusFailed, termtext.OneLine(string(r.Status), maxMessage))
	}
	r.Message, r.Signal, r.Reason = termtext.OneLine(r.Message, maxMessage), termtext.OneLine(r.Signal, maxMessage), workflow.Reason(termtext.OneLine(string(r.Reason), maxMessage))
	// Results of one job are compared with the job's log one at a time, because the first result
	// can end the job.
	unlock, err := s.results.lock(ctx, jobID)
	if err != nil {
		return err
	}
	defer unlock()
	job, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.Job, error) { return callback(tx, p, jobID) })
	if err != nil {
		return err
	}
	if job.Status.Final() && job.Reason != workflow.ReasonLost {
		return repeated(job, r) // without reading its log again
	}
	complaints, err := s.logs.Check(ctx, job, r)
	if err != nil {
		return err
	}
	var found cause.Evidence
	if r.Status == workflow.StatusFailed {
		found = s.evidence(ctx, job)
	}
	return s.db.Write(ctx, ofRunner(p), func(tx *store.Tx) error {
		job, err := callback(tx, p, jobID)
		if err != nil {
			return err
		}
		now := tx.Now()
		if job.Status.Final() && (job.Reason != workflow.ReasonLost || job.EndedAt.Add(s.opts.Evidence).Before(now)) {
			return repeated(job, r)
		}
		if r.NotStarted && job.Status != workflow.StatusAccepted {
			return fault.Conflict("a runner has received permission to start the job")
		}
		return s.recordResult(tx, &job, r, complaints, found, now)
	})
}

// repeated returns the response to a result for a job that has already ended. The first result is
// final.
func repeated(job store.Job, r protocol.ResultRequest) error {
	// A job that was cancelled before it started has no result. A result from its agent is ignored.
	if r.Status == job.Status || len(job.Results) == 0 || recorded(job, r) {
		return nil
	}
	return fault.New(fault.KindGone, "the job has already ended as %s%s; this result was not recorded", job.Status, because(job.Reason))
}

func (s *Service) recordResult(tx *store.Tx, job *store.Job, r protocol.ResultRequest, complaints []string, found cause.Evidence, now time.Time) error {
	lost := job.Reason == workflow.ReasonLost
	if lost && r.Status == workflow.StatusSucceeded {
		switch ok, err := applied(tx, *job); {
		case err != nil:
			return err
		case !ok:
			return s.doubt(tx, job, r, now)
		}
	}
	v := verdict{event: workflow.EventFail, reason: r.Reason, message: r.Message, found: found}
	switch {
	case r.Status == workflow.StatusSucceeded && lost:
		v.event = workflow.EventCorrectOK
	case r.Status == workflow.StatusSucceeded:
		v.event = workflow.EventSucceed
	case lost:
		v.event = workflow.EventCorrectKO
	}
	if r.Status == workflow.StatusSucceeded {
		v.reason = workflow.ReasonNone
	} else if v.reason == workflow.ReasonNone {
		v.reason = workflow.ReasonExitCode
	}
	if job.Status == workflow.StatusAccepted && v.event == workflow.EventSucceed {
		// Only a started job can succeed.
		if err := s.leave(tx, job, now); err != nil {
			return err
		}
	}
	if lost {
		v.note = fmt.Sprintf("The deployment was marked as lost; its runner has now reported that it %s.", r.Status)
	}
	job.Results = append(job.Results, store.JobResult{At: now, Epoch: job.Epoch, Result: r})
	if err := s.finish(tx, job, v, now); err != nil {
		return err
	}
	for _, c := range complaints {
		addNote(job, now, c)
	}
	if lost {
		if err := unblock(tx, job.StackID, job.DeploymentID); err != nil {
			return err
		}
	}
	return tx.SaveJob(*job)
}

// applied reports whether the newest update of a deployment's own operation ended well. A destroy can
// have removed its stack, and its updates with it.
func applied(tx *store.Tx, job store.Job) (bool, error) {
	if _, err := tx.Stack(job.StackID); errors.Is(err, store.ErrNotFound) {
		return job.Operation == workflow.OperationDestroy, nil
	} else if err != nil {
		return false, err
	}
	started, err := tx.UpdateKindsOfDeployment(job.DeploymentID)
	if err != nil {
		return false, err
	}
	for _, u := range started {
		if updateMatches(job.Operation, u) {
			return u.Status == string(workflow.StatusSucceeded), nil
		}
	}
	return false, nil
}

// doubt records the success of a lost job whose update the server refused or knows only as failed or in
// progress. The job stays lost.
func (s *Service) doubt(tx *store.Tx, job *store.Job, r protocol.ResultRequest, now time.Time) error {
	if !recorded(*job, r) {
		job.Results = append(job.Results, store.JobResult{At: now, Epoch: job.Epoch, Result: r})
		addNote(job, now, "The deployment was marked as lost; its runner has now reported that it succeeded, but the server knows no update of it that ended well. It stays lost: check the stack, and deploy again.")
	}
	changed(tx, *job)
	tx.Notify(pools.QueueTopic, pools.OrgPayload(job.OrgID))
	if err := unblock(tx, job.StackID, job.DeploymentID); err != nil {
		return err
	}
	return tx.SaveJob(*job)
}

// recorded reports whether a job has a result with the same status from the same claim.
func recorded(job store.Job, r protocol.ResultRequest) bool {
	return slices.ContainsFunc(job.Results, func(was store.JobResult) bool {
		return was.Epoch == job.Epoch && was.Result.Status == r.Status
	})
}

// keyLocks are locks by name.
type keyLocks struct {
	held sync.Map // of chan struct{} by name, closed when released
}

func (l *keyLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		other, taken := l.held.LoadOrStore(name, mine)
		if !taken {
			break
		}
		select {
		case <-other.(chan struct{}): //nolint:forcetypeassert // the map has only these
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another result of the job: %w", ctx.Err())
		}
	}
	return func() {
		l.held.Delete(name)
		close(mine)
	}, nil
}
