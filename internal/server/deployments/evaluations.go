package deployments

import (
	"context"
	"errors"
	"slices"
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Evaluations is the queue of policy evaluations. A poll that announces their type gets one if it can claim no
// deployment, because a user may wait for the deployment. The methods are called in transactions; those that change an
// evaluation hold its stack.
type Evaluations interface {
	// Ready reports whether the pool of an agent may start an evaluation now.
	Ready(tx *store.Tx, agent pools.Sighting) (bool, error)
	// Next returns up to limit evaluations that the pool of an agent may start now, and acquires their stacks without
	// waiting for them: busy reports that it has left some out.
	Next(tx *store.Tx, agent pools.Sighting, limit int) (jobs []store.Job, busy bool, err error)
	// Take records the claim of an evaluation by an agent.
	Take(tx *store.Tx, job *store.Job, r *Poll, now time.Time) error
	// ByPolls returns the claimed and running evaluations that polls of a pool have received.
	ByPolls(tx *store.Tx, poolID string, pollIDs []string) ([]store.Job, error)
	// Touch extends the lease of a claim that has not started, and returns its job. If the evaluation is no longer that
	// of the poll, current is false.
	Touch(tx *store.Tx, id string, r *Poll, now time.Time) (job store.Job, current bool, err error)
	// Find returns the job of an evaluation.
	Find(tx *store.Tx, id string) (store.Job, error)
	// HandBack requeues the evaluation of a claim that was not delivered, unless the agent has since been heard of.
	HandBack(tx *store.Tx, claimed store.Job) error
	// Load returns the load of a pool's queue, of which it counts at most limit evaluations.
	Load(tx *store.Tx, orgID, poolID string, limit int) (store.QueueLoad, error)
}

// Accepts reports whether a poll may receive a job of a type. Agents that announce no types know only deployments.
func (r *Poll) Accepts(t workflow.Type) bool {
	if len(r.Types) == 0 {
		return t == workflow.TypeDeployment
	}
	return slices.Contains(r.Types, t)
}

func anyAccepts(polls []*Poll, t workflow.Type) bool {
	return slices.ContainsFunc(polls, func(r *Poll) bool { return r.Accepts(t) })
}

// accepting returns those of the polls with the given indexes that accept a type.
func accepting(polls []*Poll, indexes []int, t workflow.Type) []int {
	return slices.DeleteFunc(slices.Clone(indexes), func(i int) bool { return !polls[i].Accepts(t) })
}

// assignEvaluations claims up to room evaluations for those of the free polls that accept them and have no claim yet.
func (s *Service) assignEvaluations(tx *store.Tx, polls []*Poll, free []int, room int, out []outcome, now time.Time) error {
	takers := slices.DeleteFunc(accepting(polls, free, workflow.TypePolicyEvaluation), func(i int) bool { return out[i].claim != nil })
	room = min(room, len(takers))
	if room <= 0 {
		return nil
	}
	jobs, busy, err := s.opts.Evaluations.Next(tx, polls[0].Agent, room)
	if err != nil {
		return err
	}
	for n, i := range takers {
		if n >= len(jobs) {
			if busy {
				out[i].err = errBusy
			}
			continue
		}
		c := &Claim{Type: workflow.TypePolicyEvaluation, Job: jobs[n]}
		if err := s.opts.Evaluations.Take(tx, &c.Job, polls[i], now); err != nil {
			return err
		}
		if err := grant(tx, c, now); err != nil {
			return err
		}
		out[i] = outcome{claim: c}
	}
	return nil
}

// repeatEvaluation is repeat for an evaluation.
func (s *Service) repeatEvaluation(ctx context.Context, r *Poll, earlier store.Job) outcome {
	var o outcome
	err := s.db.Write(ctx, scope.Stack(earlier.OrgID, earlier.StackID), func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		if err := identity.CheckLive(tx, r.TokenID, now); err != nil {
			return err
		}
		job, current, err := s.opts.Evaluations.Touch(tx, earlier.ID, r, now)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && !current:
			o = outcome{err: errBusy} // requeued since: the poll may take any job
			return nil
		case err != nil:
			return err
		}
		if o = (outcome{}); job.Status != workflow.StatusAccepted {
			return nil
		}
		o.claim = &Claim{Type: workflow.TypePolicyEvaluation, Job: job}
		return grant(tx, o.claim, now)
	})
	if err != nil {
		return outcome{err: err}
	}
	return o
}

func (s *Service) handBackEvaluation(ctx context.Context, c *Claim) {
	err := s.db.Write(ctx, scope.Stack(c.Job.OrgID, c.Job.StackID), func(tx *store.Tx) error {
		return s.opts.Evaluations.HandBack(tx, c.Job)
	})
	if err != nil {
		s.log.WithError(err).WithField("job_id", c.Job.ID).Warn("requeueing an undelivered policy evaluation failed; it is requeued when its lease expires")
	}
}
