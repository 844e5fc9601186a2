package deployments

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

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
