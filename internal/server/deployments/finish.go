package deployments

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
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
	job.Reason, job.Message = v.reason, oneLine(v.message)
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
