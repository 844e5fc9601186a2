package deployments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

type verdict struct {
	event   workflow.Event
	reason  workflow.Reason
	message string
	note    string // the server's line in the job's log, "" for none
	found   cause.Evidence
}

// finish ends a job in memory and writes the consequences to the database. The caller saves the job
// in the same transaction, which must hold the stack. The update of a dead runner ends too, so that no client
// waits for the update's events.
func (s *Service) finish(tx *store.Tx, job *store.Job, v verdict, now time.Time) error {
	if err := apply(job, v.event, now); err != nil {
		return err
	}
	if job.EndedAt.IsZero() || v.event != workflow.EventLose {
		job.EndedAt = now
	}
	if by := job.Message; v.reason == workflow.ReasonCancelled && job.CancelRequested && by != "" && by != v.message && v.event != workflow.EventLose {
		v.message = strings.TrimSpace(by + " " + v.message)
	}
	job.Reason, job.Message = v.reason, termtext.OneLine(v.message, maxMessage)
	if v.note != "" {
		addNote(job, now, v.note)
	}
	// The job's last log and result can still arrive. Only a lost job might still need its access
	// token.
	if err := tx.ExpireJobTokens(job.ID, store.RunnerToken, now.Add(s.opts.Evidence)); err != nil {
		return err
	}
	if v.event == workflow.EventLose {
		if err := tx.ExpireJobTokens(job.ID, store.JobToken, now.Add(s.opts.Evidence)); err != nil {
			return err
		}
	} else if err := tx.DeleteJobTokens(job.ID, store.JobToken); err != nil {
		return err
	}
	if v.event != workflow.EventSkip {
		if err := s.skipIntermediate(tx, *job, now); err != nil {
			return err
		}
	}
	log := s.log.WithFields(logrus.Fields{"job_id": job.ID, "deployment_id": job.DeploymentID, "status": job.Status, "reason": job.Reason})
	tx.OnCommit(func() {
		s.writers.Forget(job.ID)
		log.Info("job ended")
	})
	if s.opts.Updates != nil && job.Reason != workflow.ReasonLost { // a lost runner might still be working
		why := fmt.Sprintf("the deployment finished while this update was in progress: %s%s", job.Status, because(job.Reason))
		if err := s.opts.Updates.FinishOrphanedUpdate(tx, job.DeploymentID, why, now); err != nil {
			return err
		}
	}
	tx.Notify(pools.QueueTopic, pools.OrgPayload(job.OrgID))
	changed(tx, *job)
	if err := outbox.Changed(tx, job.StackID, job.DeploymentID); err != nil {
		return err
	}
	if err := s.recordEnd(tx, job); err != nil {
		return err
	}
	job.Cause = cause.Of(*job, v.found)
	return nil
}

// skipIntermediate skips each queued deployment of a stack that is superseded by a newer deployment
// with the same operation and group, if the superseded deployment's settings permit it.
func (s *Service) skipIntermediate(tx *store.Tx, done store.Job, now time.Time) error {
	queued, err := tx.QueuedJobsOfStack(done.StackID)
	if err != nil {
		return err
	}
	type kind struct {
		op    workflow.Operation
		group string
	}
	kindOf := func(j store.Job) kind { return kind{j.Operation, j.QueueGroup} }
	newest := map[kind]int64{}
	for _, j := range queued {
		newest[kindOf(j)] = max(newest[kindOf(j)], j.Version)
	}
	for _, j := range queued {
		if !j.SkipIntermediate || j.Version == newest[kindOf(j)] {
			continue
		}
		text := fmt.Sprintf("Skipped: deployment #%d of the same operation is newer and skipIntermediateDeployments is on.", newest[kindOf(j)])
		if err := s.skip(tx, j, workflow.ReasonSuperseded, text, now); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) skip(tx *store.Tx, job store.Job, reason workflow.Reason, text string, now time.Time) error {
	v := verdict{event: workflow.EventSkip, reason: reason, message: text, note: text}
	if err := s.finish(tx, &job, v, now); err != nil {
		return err
	}
	return tx.SaveJob(job)
}

// overtaken describes the deployment of the stack or of its concurrency group that was claimed after the job was
// lost, or returns "". An overtaken job may start nothing on the stack, but may still report earlier work.
//
// A job whose update blocks the queue of the stack holds the group too, so that no job of it is claimed. A claim
// in the group that is not yet committed is not seen.
func overtaken(tx *store.Tx, job store.Job) (by string, err error) {
	if job.Reason != workflow.ReasonLost {
		return "", nil
	}
	switch newer, err := tx.NewestClaim(job.StackID, job.Version); {
	case err != nil:
		return "", err
	case newer > 0:
		return fmt.Sprintf("deployment #%d of the stack", newer), nil
	}
	queue, err := tx.StackQueue(job.StackID)
	if err != nil || queue.BlockedBy == job.DeploymentID {
		return "", err
	}
	if on, err := tx.GroupWentOn(job); err != nil || !on {
		return "", err
	}
	return fmt.Sprintf("a deployment of the concurrency group %q", job.ConcurrencyGroup), nil
}

// MayWrite returns an error, in the caller's transaction, which must hold the stack, unless a deployment may start
// an update or otherwise write to its stack. A deployment may until it ends. A lost one may until a newer deployment
// of the stack, or one of its concurrency group, is claimed, which does not happen before the lost deployment's
// update has ended.
func (s *Service) MayWrite(tx *store.Tx, deploymentID string) error {
	job, err := tx.JobOfDeployment(deploymentID)
	if err != nil || !job.Status.Final() {
		return store.IgnoreMissing(err)
	}
	if job.Reason != workflow.ReasonLost {
		return fault.Forbidden("deployment #%d has ended, so it must not change the stack", job.Version)
	}
	by, err := overtaken(tx, job)
	if err != nil {
		return err
	}
	if by != "" {
		return fault.Forbidden("deployment #%d is lost, and %s has started since: the lost deployment must not change the stack", job.Version, by)
	}
	return block(tx, job)
}

// block stops a stack's queue until a lost deployment has finished. It does nothing if the stack no
// longer exists, because the job itself can remove it.
func block(tx *store.Tx, job store.Job) error {
	queue, err := tx.StackQueue(job.StackID)
	if err != nil || queue.BlockedBy == job.DeploymentID {
		return err
	}
	if _, err := tx.Stack(job.StackID); errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	queue.BlockedBy = job.DeploymentID
	queueChanged(tx, job.OrgID, job.StackID)
	return tx.SaveStackQueue(queue)
}

func unblock(tx *store.Tx, stackID, deploymentID string) error {
	queue, err := tx.StackQueue(stackID)
	if err != nil || queue.BlockedBy != deploymentID || deploymentID == "" {
		return err
	}
	queue.BlockedBy = ""
	return tx.SaveStackQueue(queue)
}

// Cancel requests the end of a deployment. It is idempotent, because clients retry it. Without
// force, a running job gets a grace period. Cancel accepts a finished deployment only if it was
// cancelled before, or if it is lost and might still run.
func (s *Service) Cancel(ctx context.Context, st store.Stack, deploymentID, by string, force bool) error {
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		dj, err := find(tx, st, deploymentID)
		if err != nil {
			return err
		}
		job, now := dj.Job, tx.Now()
		text := fmt.Sprintf("Cancelled by %s.", by)
		lost := job.Reason == workflow.ReasonLost && now.Sub(job.EndedAt) <= s.opts.Evidence
		switch {
		case job.Status == workflow.StatusNotStarted:
			if err := recordCancel(ctx, tx, st, job, force); err != nil {
				return err
			}
			return s.skip(tx, job, workflow.ReasonCancelled, text, now)
		case job.Status == workflow.StatusAccepted:
			v := verdict{event: workflow.EventFail, reason: workflow.ReasonCancelled, message: text, note: text}
			if err := recordCancel(ctx, tx, st, job, force); err != nil {
				return err
			}
			if err := s.finish(tx, &job, v, now); err != nil {
				return err
			}
			return tx.SaveJob(job)
		case job.Status == workflow.StatusRunning, lost: // a lost job might still run
			if job.CancelRequested && (job.ForceRequested || !force) {
				return nil
			}
			if err := recordCancel(ctx, tx, st, job, force); err != nil {
				return err
			}
			job.CancelRequested, job.ForceRequested = true, job.ForceRequested || force
			job.ModifiedAt = now
			if !lost {
				job.Message = text // until the result arrives
			}
			changed(tx, job)
			return tx.SaveJob(job)
		case job.CancelRequested, job.Reason == workflow.ReasonCancelled: // a retry
			return nil
		}
		return fault.Conflict("deployment #%d has already finished: it is %s", job.Version, job.Status)
	})
}

// PauseStack pauses or resumes the queue of a stack.
func (s *Service) PauseStack(ctx context.Context, p identity.Principal, st store.Stack, paused bool) error {
	_, err := s.SetPaused(ctx, p, st, paused)
	return err
}

// SetPaused is [Service.PauseStack]. It also reports whether the queue was not paused or resumed already.
func (s *Service) SetPaused(ctx context.Context, p identity.Principal, st store.Stack, paused bool) (changed bool, err error) {
	if err := p.Check(st, identity.Operate); err != nil {
		return false, err
	}
	err = s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		_, err := tx.DeploymentSettings(st.ID)
		if err != nil {
			return store.IfMissing(err, fault.Invalid("Attempted to pause or resume deployments on stack before it has been configured; store deployment settings first"))
		}
		queue, err := tx.StackQueue(st.ID)
		if err != nil {
			return err
		}
		if changed = paused != queue.Paused; changed {
			queue.Paused = paused
			queue.PausedBy, queue.PausedAt = pausedBy(tx, p, paused)
			if err := recordPause(ctx, tx, st.OrgID, audit.Stack(st), paused); err != nil {
				return err
			}
		}
		tx.Notify(pools.QueueTopic, pools.OrgPayload(st.OrgID))
		queueChanged(tx, st.OrgID, st.ID)
		return tx.SaveStackQueue(queue)
	})
	return changed, err
}

// pausedBy returns what a paused queue records about the pause.
func pausedBy(tx *store.Tx, p identity.Principal, paused bool) (by string, at time.Time) {
	if !paused {
		return "", time.Time{}
	}
	return p.Name(), tx.Now()
}

func recordPause(ctx context.Context, tx *store.Tx, orgID string, about audit.Subject, paused bool) error {
	action := audit.DeploymentsResumed
	if paused {
		action = audit.DeploymentsPaused
	}
	return audit.Record(ctx, tx, audit.Entry{OrgID: orgID, Action: action, Subject: about})
}

// PauseOrg pauses or resumes all queues of an organization.
func (s *Service) PauseOrg(ctx context.Context, p identity.Principal, orgID string, paused bool) error {
	return s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error { return s.PauseOrgIn(ctx, tx, p, orgID, paused) })
}

// PauseOrgIn is [Service.PauseOrg] in the caller's transaction, which must hold the organization.
func (s *Service) PauseOrgIn(ctx context.Context, tx *store.Tx, p identity.Principal, orgID string, paused bool) error {
	if !p.CanAdminOrg(orgID) {
		return fault.Forbidden("only administrators of the organization may pause or resume its deployments")
	}
	queue, err := tx.OrgQueue(orgID)
	if err != nil {
		return err
	}
	if !paused {
		if err := recovery.CheckResume(tx, orgID); err != nil {
			return err
		}
	}
	if paused != queue.Paused {
		queue.Paused = paused
		queue.PausedBy, queue.PausedAt = pausedBy(tx, p, paused)
		if err := recordPause(ctx, tx, orgID, audit.Subject{Kind: "organization", ID: orgID}, paused); err != nil {
			return err
		}
	}
	tx.Notify(pools.QueueTopic, pools.OrgPayload(orgID))
	queueChanged(tx, orgID, "")
	return tx.SaveOrgQueue(queue)
}
