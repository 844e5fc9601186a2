package evaluations

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Run syncs logs to disk and checks all timers until ctx is canceled. Several servers may run it on one database.
func (s *Service) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.logs.Run(ctx) })
	defer wg.Wait()
	ticker := time.NewTicker(s.opts.Sweep)
	defer ticker.Stop()
	tidied := time.Now()
	for {
		if err := s.Check(ctx); err != nil && ctx.Err() == nil {
			s.log.WithError(err).Error("checking the queue of policy evaluations failed; retrying")
		}
		if time.Since(tidied) > time.Minute {
			tidied = time.Now()
			s.logs.Tidy()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// superseded are the logs of earlier claims, which no caller can read. If this server stops before it removes them, they are
// removed with the evaluation.
type superseded struct {
	mu   sync.Mutex
	keys []string
}

func (l *superseded) add(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = append(l.keys, key)
}

func (l *superseded) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := l.keys
	l.keys = nil
	return keys
}

// dropSuperseded removes the logs of earlier claims.
func (s *Service) dropSuperseded(ctx context.Context) {
	for _, key := range s.superseded.take() {
		if err := s.db.Blobs().Delete(ctx, key); err != nil {
			s.log.WithError(err).Warn("removing the log of an earlier claim of a policy evaluation failed; it is removed with the evaluation")
		}
	}
}

// Check requeues the evaluations of silent claims and of those that do not end, ends those that wait for nothing, and removes
// the logs of earlier claims.
func (s *Service) Check(ctx context.Context) error {
	defer s.dropSuperseded(ctx)
	silent := func(tx *store.Tx) ([]store.Evaluation, error) {
		return tx.SilentEvaluations(tx.Now().Add(-s.opts.Lease))
	}
	pointless := func(tx *store.Tx) ([]store.Evaluation, error) {
		return tx.PointlessEvaluations(tx.Now().Add(-s.opts.QueueTimeout))
	}
	overdue := func(tx *store.Tx) ([]store.Evaluation, error) {
		return tx.OverdueEvaluations(tx.Now().Add(-workflow.PolicyJobTimeout - reportTime))
	}
	return errors.Join(s.each(ctx, silent, s.silent), s.each(ctx, overdue, s.overdue), s.each(ctx, pointless, s.pointless))
}

// each decides about each listed evaluation in a separate write.
func (s *Service) each(ctx context.Context, list func(*store.Tx) ([]store.Evaluation, error), act func(*store.Tx, store.Evaluation, time.Time) error) error {
	listed, err := store.Read(ctx, s.db, list)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range listed {
		errs = append(errs, s.db.Write(ctx, scope.Stack(e.OrgID, e.StackID).Remaining(), func(tx *store.Tx) error {
			now, err := tx.LeaseTime()
			if err != nil {
				return err
			}
			found, err := tx.Evaluation(e.ID)
			if err != nil {
				return store.IgnoreMissing(err)
			}
			return act(tx, found, now)
		}))
	}
	return errors.Join(errs...)
}

// silent decides about an evaluation whose agent or runner has stopped reporting.
func (s *Service) silent(tx *store.Tx, e store.Evaluation, now time.Time) error {
	if e.Status != workflow.StatusAccepted && e.Status != workflow.StatusRunning || now.Sub(e.LastSeenAt) <= s.opts.Lease {
		return nil // it has reported since
	}
	s.log.WithField("job_id", e.ID).WithField("was", e.Status).Warn("a policy evaluation stopped reporting")
	return s.interrupted(tx, &e, "stopped reporting", true, now)
}

// overdue decides about an evaluation whose runner reports that it works, for longer than it may.
func (s *Service) overdue(tx *store.Tx, e store.Evaluation, now time.Time) error {
	if e.Status != workflow.StatusRunning || now.Sub(e.StartedAt) <= workflow.PolicyJobTimeout+reportTime {
		return nil
	}
	s.log.WithField("job_id", e.ID).Warn("a policy evaluation does not end")
	return s.interrupted(tx, &e, "did not end in time", true, now)
}

// interrupted decides about an evaluation whose agent or runner has stopped, and saves it. what says how, and suspicious
// that the packs can be the cause.
func (s *Service) interrupted(tx *store.Tx, e *store.Evaluation, what string, suspicious bool, now time.Time) error {
	host := deployments.HostName(e.AgentHostname)
	if !e.ReportedAt.IsZero() {
		note(e, now, fmt.Sprintf("The runner on %s %s after it had delivered the results.", host, what))
		event, reason := workflow.EventSucceed, workflow.ReasonNone
		if e.Message != "" {
			event, reason = workflow.EventFail, workflow.ReasonExitCode
		}
		if err := s.end(tx, e, event, reason, e.Message, now); err != nil {
			return err
		}
		return save(tx, *e)
	}
	if e.CancelRequested {
		if err := s.end(tx, e, workflow.EventFail, workflow.ReasonCancelled, "Cancelled; its runner "+what+".", now); err != nil {
			return err
		}
		return save(tx, *e)
	}
	if suspicious {
		e.Silences++
	}
	if e.Silences >= maxSilences {
		text := fmt.Sprintf("%d claims of the evaluation ended because the agent or the runner stopped, the last one on %s. It is not tried again, because its policy packs may be what stops them: check the agents' logs, and whether the packs need more memory than they have.",
			e.Silences, host)
		note(e, now, text)
		if err := s.end(tx, e, workflow.EventAbandon, workflow.ReasonAbandoned, text, now); err != nil {
			return err
		}
		return save(tx, *e)
	}
	note(e, now, fmt.Sprintf("Claim %d: the agent or the runner on %s %s; the evaluation was requeued.", e.Epoch, host, what))
	return s.requeue(tx, e, now)
}

// pointless skips a waiting evaluation that no agent has claimed for too long, or whose stack or group is gone.
func (s *Service) pointless(tx *store.Tx, e store.Evaluation, now time.Time) error {
	if e.Status != workflow.StatusNotStarted {
		return nil
	}
	reason, text := workflow.ReasonCancelled, "Skipped: the stack or the policy group was deleted, the stack has left the group, or the group has no packs."
	if now.Sub(e.QueuedAt) > s.opts.QueueTimeout {
		reason, text = workflow.ReasonQueueTimeout, fmt.Sprintf("Skipped: no agent claimed the evaluation within %s. Agents of the pool must run policy_evaluation.", s.opts.QueueTimeout)
	}
	note(&e, now, text)
	if err := s.end(tx, &e, workflow.EventSkip, reason, text, now); err != nil {
		return err
	}
	return save(tx, e)
}

// Repeat queues evaluations of the stacks whose last ones are older than the intervals of their groups: packs can depend on
// the time, and the images and registries that they use change.
func (s *Service) Repeat(ctx context.Context) error {
	orgs, err := store.Read(ctx, s.db, (*store.Tx).AuditingOrganizations)
	if err != nil {
		return err
	}
	for _, org := range orgs {
		stale, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) (bool, error) { return tx.HasStale(org) })
		if err != nil {
			return fmt.Errorf("looking for stacks whose policy evaluation is due: %w", err)
		}
		if !stale {
			continue
		}
		err = s.db.Write(ctx, scope.Organization(org).Remaining(), func(tx *store.Tx) error {
			n, err := tx.EvaluateStale(org, added(tx, store.CauseSchedule, ""))
			if err == nil && n > 0 {
				queued(tx, org)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("queueing scheduled policy evaluations: %w", err)
		}
	}
	return nil
}

// removals bounds the evaluations that one read lists for their removal.
const removals = 200

// Remove removes old evaluations with their logs, and those whose stack or group is gone.
func (s *Service) Remove(ctx context.Context) error {
	for {
		ids, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) {
			return tx.RemovableEvaluations(tx.Now().Add(-s.opts.KeepFor), s.opts.Keep, removals)
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			err := retry.Paced(ctx, func() error {
				if err := s.db.Blobs().Delete(ctx, joblog.Blobs(id)); err != nil {
					return err
				}
				return s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.DeleteEvaluation(id) })
			})
			if err != nil {
				return fmt.Errorf("removing an old policy evaluation: %w", err)
			}
		}
	}
}
