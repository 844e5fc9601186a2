package deployments

import (
	"context"
	"errors"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Poll is an agent's request for work.
type Poll struct {
	TokenID      string         // of the pool token that authenticated the poll; see [Poll.From]
	Agent        pools.Sighting // OrgID and PoolID are those of the token
	PollID       string
	FreeSlots    int             // 0: presence only
	Types        []workflow.Type // empty: only deployments
	Wait         time.Duration   // 0: respond immediately
	Stock        bool            // the agent uses only the stock API
	KnowsDrained *bool           // whether the agent knows that it is drained; nil if it does not say
}

// From returns the poll as that of an authenticated agent.
func (r Poll) From(p identity.Principal) *Poll {
	r.TokenID, r.Agent.OrgID, r.Agent.PoolID = p.TokenID, p.Org.ID, p.PoolID
	r.Agent.Hold = r.Wait
	return &r
}

// goneTimeout bounds the cleanup after a client has disconnected.
const goneTimeout = 10 * time.Second

// Answer is the answer to a poll.
type Answer struct {
	Claim *Claim // nil: no job
	// Drained reports whether the agent gets no jobs because an administrator has drained it.
	Drained bool
}

// Poll claims a job. The answer has no claim if no job becomes claimable within r.Wait.
func (s *Service) Poll(ctx context.Context, r *Poll) (Answer, error) {
	// For a moment after its token is revoked, a poll can still mark its agent as seen. It gets no job.
	if err := s.opts.Pools.Seen(ctx, &r.Agent); err != nil {
		return Answer{}, err
	}
	a, err := s.poll(ctx, r)
	if a.Claim != nil && a.Claim.Type == workflow.TypeDeployment {
		a.Claim.IdentityToken = s.firstIdentityToken(ctx, a.Claim.Job)
	}
	if ctx.Err() != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneTimeout)
		defer cancel()
		if a.Claim != nil {
			s.handBack(after, a.Claim)
		}
		s.opts.Pools.Gone(after, &r.Agent)
		return Answer{}, ctx.Err()
	}
	if fault.KindOf(err) == fault.KindUnauthenticated {
		s.opts.Pools.Gone(ctx, &r.Agent)
		return Answer{}, err
	}
	s.opts.Pools.Answered(&r.Agent)
	if errors.Is(err, errNothing) {
		err = nil
	}
	return a, err
}

func (s *Service) poll(ctx context.Context, r *Poll) (Answer, error) {
	wanted := r.FreeSlots > 0 && (r.Accepts(workflow.TypeDeployment) || s.opts.Evaluations != nil && r.Accepts(workflow.TypePolicyEvaluation))
	wake, forget := s.held.join(r.Agent.OrgID)
	defer forget()
	state, err := s.look(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Drained: state.Drained}
	// A drained agent still gets the answer that it has not received.
	if wanted && (state.Repeated || r.Wait <= 0 && !state.Drained) {
		o := s.claimNow(ctx, r)
		if r.Wait <= 0 || !errors.Is(o.err, errNothing) {
			a.Claim = o.claim
			return a, o.err
		}
	}
	if r.KnowsDrained != nil && *r.KnowsDrained != state.Drained && !state.Repeated {
		return a, nil // the agent polls again
	}
	if !wanted || state.Drained {
		o, _ := s.hold(ctx, r, state.Drained, wake, nil)
		return a, o.err
	}
	w := s.dispatcher.join(r)
	o, done := s.hold(ctx, r, false, wake, w.got)
	if !done {
		ended := o.err
		if o = s.dispatcher.leave(w); o.claim == nil && ended != nil {
			o.err = ended // only without a claim: a claim made before the token became invalid is still delivered
		}
	}
	a.Claim = o.claim
	return a, o.err
}

// look returns what must be known to begin a poll, or an error if the poll's token became invalid
// between the request's authentication and the start of the poll. It ignores database errors, because
// a claim repeats the checks.
func (s *Service) look(ctx context.Context, r *Poll) (store.PollState, error) {
	state, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.PollState, error) {
		return identity.CheckPoll(tx, r.TokenID, r.Agent.PoolID, r.Agent.AgentID, r.PollID)
	})
	if fault.KindOf(err) == fault.KindUnauthenticated {
		return state, err
	}
	return state, nil
}

// hold waits for an outcome. If none arrives, done is false. In that case, o.err is set if the
// poll's token has become invalid. hold also ends when the agent is drained, or is no longer, so that
// the agent polls again.
func (s *Service) hold(ctx context.Context, r *Poll, drained bool, wake <-chan struct{}, got <-chan outcome) (o outcome, done bool) {
	timer := time.NewTimer(r.Wait)
	defer timer.Stop()
	for {
		select {
		case o = <-got:
			return o, true
		case <-wake:
			var changed bool
			if changed, o.err = s.ended(ctx, r, drained); changed || o.err != nil {
				return o, false
			}
		case <-timer.C:
			return o, false
		case <-ctx.Done():
			return o, false
		case <-s.stopping:
			return o, false
		}
	}
}

// StatusForAgent returns the public status of a deployment or policy evaluation that belongs to the agent's pool.
func (s *Service) StatusForAgent(ctx context.Context, p identity.Principal, deploymentID string) (workflow.Status, error) {
	job, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Job, error) {
		job, err := tx.JobOfDeployment(deploymentID)
		if errors.Is(err, store.ErrNotFound) && s.opts.Evaluations != nil {
			return s.opts.Evaluations.Find(tx, deploymentID)
		}
		return job, err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	if job.OrgID != p.Org.ID || job.PoolID != p.PoolID {
		return "", fault.NotFound("Deployment '%s' not found", termtext.OneLine(deploymentID, maxMessage))
	}
	return job.Status, nil
}

// PoolOf returns an agent's pool.
func (s *Service) PoolOf(ctx context.Context, p identity.Principal) (pools.Overview, error) {
	return s.opts.Pools.Get(ctx, p.Org.ID, p.PoolID)
}

// ended returns the error for a poll whose token has become invalid, and reports whether the agent is
// now drained, or no longer. It ignores database errors, because a claim checks the token again.
func (s *Service) ended(ctx context.Context, r *Poll, drained bool) (changed bool, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		if err := identity.CheckLive(tx, r.TokenID, tx.Now()); err != nil {
			return err
		}
		now, err := tx.Drained(r.Agent.PoolID, r.Agent.AgentID)
		changed = err == nil && now != drained
		return err
	})
	if fault.KindOf(err) == fault.KindUnauthenticated {
		return false, err
	}
	return changed, nil
}
