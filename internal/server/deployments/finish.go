package deployments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// verdict is how a job ends.
type verdict struct {
	event   workflow.Event
	reason  workflow.Reason
	message string
	note    string // a line of the server in the job's log, "" for none
}

// finish ends a job in memory, with all that follows from it in the database.
// The caller saves the job in the same transaction and calls afterEnd once
// that is committed.
func (s *Service) finish(tx *store.Tx, job *store.Job, v verdict, now time.Time) error {
	if err := apply(job, v.event, now); err != nil {
		return err
	}
	if job.EndedAt.IsZero() || v.event != workflow.EventLose {
		job.EndedAt = now
	}
	job.Reason, job.Message = v.reason, termtext.OneLine(v.message, maxMessage)
	if v.note != "" {
		addNote(job, now, v.note)
	}
	// What is left of the job may still be delivered for a while; only a lost
	// job may still be running and needs its access token.
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
	tx.Notify(pools.QueueTopic, pools.OrgPayload(job.OrgID))
	return nil
}

// skipIntermediate skips the waiting deployments of a stack that a newer one
// of the same operation makes unnecessary, where their settings ask for it.
func (s *Service) skipIntermediate(tx *store.Tx, done store.Job, now time.Time) error {
	queued, err := tx.QueuedJobsOfStack(done.StackID)
	if err != nil {
		return err
	}
	newest := map[workflow.Operation]int64{}
	for _, j := range queued {
		newest[j.Operation] = max(newest[j.Operation], j.Version)
	}
	for _, j := range queued {
		if !j.SkipIntermediate || j.Version == newest[j.Operation] {
			continue
		}
		text := fmt.Sprintf("Skipped: deployment #%d of the same operation is newer and skipIntermediateDeployments is on.", newest[j.Operation])
		if err := s.skip(tx, j, workflow.ReasonSuperseded, text, now); err != nil {
			return err
		}
	}
	return nil
}

// skip takes a waiting job out of the queue.
func (s *Service) skip(tx *store.Tx, job store.Job, reason workflow.Reason, text string, now time.Time) error {
	v := verdict{event: workflow.EventSkip, reason: reason, message: text, note: text}
	if err := s.finish(tx, &job, v, now); err != nil {
		return err
	}
	return tx.SaveJob(job)
}

// afterEnd does what follows a job's end outside of the database's
// transaction: whatever update the dead runner left in progress is ended, so
// that no client waits for its events.
func (s *Service) afterEnd(ctx context.Context, job store.Job) {
	log := s.log.WithFields(logrus.Fields{"job_id": job.ID, "deployment_id": job.DeploymentID, "status": job.Status, "reason": job.Reason})
	log.Info("job ended")
	if s.opts.Updates == nil || job.Reason == workflow.ReasonLost {
		return // a lost runner may still be at work; its update's lease decides
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneTimeout)
	defer cancel()
	why := fmt.Sprintf("the deployment ended while this update was in progress: %s%s", job.Status, because(job.Reason))
	if err := s.opts.Updates.FinishOrphanedUpdate(ctx, job.DeploymentID, why); err != nil {
		log.WithError(err).Error("could not end the update that a deployment left in progress; its lease will")
	}
}

// overtaken returns the number of a newer deployment of the stack that was
// claimed after a job was given up as lost, 0 for none. From then on the job
// begins nothing: its stack belongs to others. What it has done until then it
// still reports.
func overtaken(tx *store.Tx, job store.Job) (int64, error) {
	if job.Reason != workflow.ReasonLost {
		return 0, nil
	}
	return tx.NewestClaim(job.StackID, job.Version)
}

// MayWrite is to be asked, in the same transaction, before a deployment starts
// an update or writes to its stack in another way. A lost deployment may while
// no newer one was claimed, and then none is until its update has ended.
func (s *Service) MayWrite(tx *store.Tx, deploymentID string) error {
	job, err := tx.JobOfDeployment(deploymentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && job.Reason != workflow.ReasonLost {
		return nil
	}
	if err != nil {
		return err
	}
	newer, err := overtaken(tx, job)
	if err != nil {
		return err
	}
	if newer > 0 {
		return fault.Forbidden("Forbidden: deployment #%d was given up as lost, and deployment #%d of the stack has begun since: it must not change the stack any more", job.Version, newer)
	}
	return block(tx, job)
}

// block lets the queue of a stack wait for a lost deployment. The job may have
// removed the stack.
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
	return tx.SaveStackQueue(queue)
}

// unblock resumes the queue of a stack that waits for a lost deployment.
func unblock(tx *store.Tx, stackID, deploymentID string) error {
	queue, err := tx.StackQueue(stackID)
	if err != nil || queue.BlockedBy != deploymentID || deploymentID == "" {
		return err
	}
	queue.BlockedBy = ""
	return tx.SaveStackQueue(queue)
}

// Cancel asks a deployment to end. Clients repeat it, so repetition changes
// nothing; only force, once asked for, ends a running job without a grace period. A
// deployment that has ended is left as it is, except for a lost one.
func (s *Service) Cancel(ctx context.Context, st store.Stack, deploymentID, by string, force bool) error {
	var ended *store.Job
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		ended = nil
		dj, err := find(tx, st, deploymentID)
		if err != nil {
			return err
		}
		job, now := dj.Job, tx.Now()
		text := fmt.Sprintf("Cancelled by %s.", by)
		lost := job.Reason == workflow.ReasonLost && now.Sub(job.EndedAt) <= s.opts.Evidence
		switch {
		case job.Status == workflow.StatusNotStarted:
			return s.skip(tx, job, workflow.ReasonCancelled, text, now)
		case job.Status == workflow.StatusAccepted:
			v := verdict{event: workflow.EventFail, reason: workflow.ReasonCancelled, message: text, note: text}
			if err := s.finish(tx, &job, v, now); err != nil {
				return err
			}
			ended = &job
			return tx.SaveJob(job)
		case job.Status == workflow.StatusRunning, lost: // which may still run
			if job.CancelRequested && (job.ForceRequested || !force) {
				return nil
			}
			job.CancelRequested, job.ForceRequested = true, job.ForceRequested || force
			job.ModifiedAt = now
			return tx.SaveJob(job)
		default:
			return nil
		}
	})
	if err == nil && ended != nil {
		s.afterEnd(ctx, *ended)
	}
	return err
}

// PauseStack holds or releases the queue of a stack.
func (s *Service) PauseStack(ctx context.Context, st store.Stack, paused bool) error {
	return s.db.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.DeploymentSettings(st.ID)
		if errors.Is(err, store.ErrNotFound) {
			return fault.Invalid("Bad Request: Attempted to pause or resume deployments on stack before it has been configured; store deployment settings first")
		}
		if err != nil {
			return err
		}
		queue, err := tx.StackQueue(st.ID)
		if err != nil {
			return err
		}
		queue.Paused = paused
		tx.Notify(pools.QueueTopic, pools.OrgPayload(st.OrgID))
		return tx.SaveStackQueue(queue)
	})
}

// PauseOrg holds or releases all queues of an organization.
func (s *Service) PauseOrg(ctx context.Context, orgID string, paused bool) error {
	return s.db.Write(ctx, func(tx *store.Tx) error {
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return err
		}
		queue.Paused = paused
		tx.Notify(pools.QueueTopic, pools.OrgPayload(orgID))
		return tx.SaveOrgQueue(queue)
	})
}
