package deployments

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Run syncs logs to disk, records the presence of agents and checks all timers until ctx is canceled, and then ends all held polls.
// Several servers may run it on one database.
func (s *Service) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.logs.Run(ctx) })
	wg.Go(func() { s.beats(ctx) })
	wg.Go(func() { s.opts.Pools.Run(ctx) })
	s.watch(ctx)
	s.shutdown()
	wg.Wait()
	return nil
}

func (s *Service) watch(ctx context.Context) {
	ticker := time.NewTicker(s.opts.Sweep)
	defer ticker.Stop()
	tidied := time.Time{}
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.WithError(err).Error("checking the deployment queue failed; retrying")
		}
		if time.Since(tidied) > time.Minute {
			tidied = time.Now()
			if err := s.opts.Pools.Forget(ctx); err != nil && ctx.Err() == nil {
				s.log.WithError(err).Warn("deleting old agents failed; retrying in a minute")
			}
			s.logs.Tidy()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.nudge:
		}
	}
}

// LinkUpdate returns the id of the deployment to which an update claims to belong. It returns ""
// unless that deployment is running, or was lost recently and might still run.
func (s *Service) LinkUpdate(tx *store.Tx, st store.Stack, deploymentID string) (string, error) {
	job, err := tx.JobOfDeployment(deploymentID)
	lost := job.Reason == workflow.ReasonLost && tx.Now().Sub(job.EndedAt) <= s.opts.Evidence
	if errors.Is(err, store.ErrNotFound) || err == nil && (job.StackID != st.ID || job.Status != workflow.StatusRunning && !lost) {
		return "", nil
	}
	return deploymentID, err
}

// UpdateFinished requests a sweep, because a queue might be waiting for the end of the update.
func (s *Service) UpdateFinished(store.Update) {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

func (s *Service) sweep(ctx context.Context) error {
	return errors.Join(s.sweepUnstarted(ctx), s.sweepRunning(ctx), s.sweepQueue(ctx), s.sweepBlocked(ctx))
}

// beats records, at the sweep interval, that the server is up. It stops when ctx is canceled. It
// has its own goroutine, so that a slow sweep is not treated as downtime.
func (s *Service) beats(ctx context.Context) {
	ticker := time.NewTicker(s.opts.Sweep)
	defer ticker.Stop()
	for {
		if err := s.beat(ctx); err != nil && ctx.Err() == nil {
			s.log.WithError(err).Warn("recording that the server is up failed; the time until the next record is treated as downtime")
		}
		s.dispatcher.note("") // notifications can be lost
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// beat records that the server is up. If no server was up before, it extends leases by the
// downtime.
func (s *Service) beat(ctx context.Context) error {
	err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		return tx.Beat(now, s.opts.Sweep)
	})
	return fault.While(err, "recording that the server is up")
}

// maxSilences is the number of claims after which a job is abandoned, if the agent of each has stopped
// reporting before it started the job. The job itself may be what stops agents.
const maxSilences = 3

// sweepUnstarted requeues jobs whose agent stopped reporting before it requested the start of the
// job, and abandons those that no agent survives.
func (s *Service) sweepUnstarted(ctx context.Context) error {
	return s.sweepJobs(ctx, silent(workflow.StatusAccepted, s.opts.Lease), func(tx *store.Tx, job store.Job, now time.Time) error {
		job.Silences++
		if job.Silences >= maxSilences {
			text := fmt.Sprintf("%d claims of the deployment ended because the agent stopped reporting before the start, the last one on %s. The deployment is not tried again, because it may be what stops the agents: check their logs, and whether the deployment's secrets or image need more memory than they have.",
				job.Silences, HostName(job.AgentHostname))
			v := verdict{event: workflow.EventAbandon, reason: workflow.ReasonAbandoned, message: text, note: text}
			if err := s.finish(tx, &job, v, now); err != nil {
				return err
			}
			return tx.SaveJob(job)
		}
		text := fmt.Sprintf("The agent on %s stopped reporting before it started the deployment; the deployment was requeued.", HostName(job.AgentHostname))
		addNote(&job, now, text)
		return s.requeue(tx, &job, now)
	})
}

func (s *Service) sweepRunning(ctx context.Context) error {
	return s.sweepJobs(ctx, silent(workflow.StatusRunning, s.opts.Lost), func(tx *store.Tx, job store.Job, now time.Time) error {
		text := fmt.Sprintf("The server received nothing from the deployment on %s for %s, so the deployment was marked as lost: it was killed, the host stopped, or the network is interrupted. Check the host. If the deployment still runs there, it continues, and its result replaces this one. %s",
			HostName(job.AgentHostname), s.opts.Lost, workflow.UnknownEnd)
		v := verdict{event: workflow.EventLose, reason: workflow.ReasonLost, message: text, note: text}
		if err := s.finish(tx, &job, v, now); err != nil {
			return err
		}
		if err := block(tx, job); err != nil {
			return err
		}
		return tx.SaveJob(job)
	})
}

// HostName returns the name of an agent's host for sentences.
func HostName(host string) string {
	if host == "" {
		return "an unknown host"
	}
	return host
}

func (s *Service) sweepQueue(ctx context.Context) error {
	stale := timer{
		list: func(tx *store.Tx, now time.Time) ([]store.Job, error) {
			return tx.StaleQueuedJobs(now.Add(-s.opts.QueueTimeout))
		},
		due: func(tx *store.Tx, job store.Job, now time.Time) (bool, error) {
			if job.Status != workflow.StatusNotStarted || now.Sub(job.QueuedAt) > s.opts.QueueTimeout {
				return job.Status == workflow.StatusNotStarted, nil
			}
			_, err := tx.Stack(job.StackID)
			return errors.Is(err, store.ErrNotFound), store.IgnoreMissing(err)
		},
	}
	return s.sweepJobs(ctx, stale, func(tx *store.Tx, job store.Job, now time.Time) error {
		reason, text := workflow.ReasonCancelled, textDeleted
		if now.Sub(job.QueuedAt) > s.opts.QueueTimeout {
			reason = workflow.ReasonQueueTimeout
			text = fmt.Sprintf("Skipped: no agent claimed the deployment within %s.", s.opts.QueueTimeout)
		}
		return s.skip(tx, job, reason, text, now)
	})
}

// The notes of deployments whose stack was deleted.
const (
	textDeleted     = "Skipped: the stack was deleted."
	textDeletedLate = "Cancelled before its start: the stack was deleted."
)

// StackDeleted skips the queued deployments of a stack, and ends those that an agent has claimed but not started, so that
// none starts, also if the stack is restored. The caller's transaction must hold the stack.
func (s *Service) StackDeleted(tx *store.Tx, st store.Stack) error {
	queued, err := tx.QueuedJobsOfStack(st.ID)
	for _, j := range queued {
		if err == nil {
			err = s.skip(tx, j, workflow.ReasonCancelled, textDeleted, tx.Now())
		}
	}
	if err != nil {
		return err
	}
	active, err := tx.ActiveJobsOfStack(st.ID)
	for _, j := range active {
		if err == nil && j.Status == workflow.StatusAccepted {
			v := verdict{event: workflow.EventFail, reason: workflow.ReasonCancelled, message: textDeletedLate, note: textDeletedLate}
			if err = s.finish(tx, &j, v, tx.Now()); err == nil {
				err = tx.SaveJob(j)
			}
		}
	}
	return err
}

// sweepBlocked releases queues blocked by lost deployments whose updates have ended.
func (s *Service) sweepBlocked(ctx context.Context) error {
	var blocked []store.Stack
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		queues, err := tx.BlockedQueues()
		if err != nil {
			return err
		}
		now := tx.Now()
		blocked = nil
		for _, q := range queues {
			st, err := tx.Stack(q.StackID)
			if err != nil {
				return err
			}
			held, err := updateInProgress(tx, q.BlockedBy, now)
			if err != nil {
				return err
			}
			if !held {
				blocked = append(blocked, st)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, st := range blocked {
		errs = append(errs, s.db.Write(ctx, st.Scope().Remaining(), func(tx *store.Tx) error { return release(tx, st) }))
	}
	return errors.Join(errs...)
}

// release releases a stack's queue if the update of the lost deployment that blocks it has ended.
func release(tx *store.Tx, st store.Stack) error {
	now, err := tx.LeaseTime()
	if err != nil {
		return err
	}
	q, err := tx.StackQueue(st.ID)
	if err != nil || q.BlockedBy == "" {
		return err
	}
	held, err := updateInProgress(tx, q.BlockedBy, now)
	if err != nil || held {
		return err
	}
	tx.Notify(pools.QueueTopic, pools.OrgPayload(st.OrgID))
	queueChanged(tx, st.OrgID, st.ID)
	return unblock(tx, st.ID, q.BlockedBy)
}

// updateInProgress reports whether a deployment has an update that still holds its stack.
func updateInProgress(tx *store.Tx, deploymentID string, now time.Time) (bool, error) {
	list, err := tx.RunningUpdatesOfDeployment(deploymentID)
	if err != nil {
		return false, err
	}
	for _, u := range list {
		if u.LeaseExpiresAt.After(now) {
			return true, nil
		}
	}
	return false, nil
}

// timer selects the jobs that exceeded a time limit.
type timer struct {
	list func(*store.Tx, time.Time) ([]store.Job, error)
	// due reports whether a job of the list, which might have reported since, is still to be listed.
	due func(*store.Tx, store.Job, time.Time) (bool, error)
}

// silent selects the jobs with a status that have not reported for a duration.
func silent(status workflow.Status, d time.Duration) timer {
	return timer{
		list: func(tx *store.Tx, now time.Time) ([]store.Job, error) { return tx.SilentJobs(status, now.Add(-d)) },
		due: func(_ *store.Tx, job store.Job, now time.Time) (bool, error) {
			return job.Status == status && now.Sub(job.LastSeenAt) > d, nil
		},
	}
}

// sweepJobs calls act for every job that a timer selects. It lists the jobs in a read transaction, and
// then decides about the jobs of each stack in a separate write.
func (s *Service) sweepJobs(ctx context.Context, t timer, act func(*store.Tx, store.Job, time.Time) error) error {
	listed, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Job, error) { return t.list(tx, tx.Now()) })
	if err != nil {
		return err
	}
	type stack struct{ org, id string }
	byStack := map[stack][]string{}
	for _, job := range listed {
		st := stack{job.OrgID, job.StackID}
		byStack[st] = append(byStack[st], job.ID)
	}
	var errs []error
	for st, ids := range byStack {
		done, err := store.Write(ctx, s.db, scope.Stack(st.org, st.id), func(tx *store.Tx) ([]store.Job, error) {
			return sweepStack(tx, ids, t, act)
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, job := range done {
			s.log.WithFields(logrus.Fields{"job_id": job.ID, "deployment_id": job.DeploymentID, "was": job.Status}).Warn("a job exceeded its time limit")
		}
	}
	return errors.Join(errs...)
}

// sweepStack calls act for those of a stack's jobs that a timer still selects, and returns them.
func sweepStack(tx *store.Tx, ids []string, t timer, act func(*store.Tx, store.Job, time.Time) error) (done []store.Job, err error) {
	now, err := tx.LeaseTime()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		job, err := tx.Job(id)
		if err != nil {
			return nil, err
		}
		due, err := t.due(tx, job, now)
		if err != nil {
			return nil, err
		}
		if !due {
			continue
		}
		if err := act(tx, job, now); err != nil {
			return nil, err
		}
		done = append(done, job)
	}
	return done, nil
}
