package deployments

import (
	"context"
	"errors"
	"slices"
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
	Agent     pools.Sighting // PoolID is taken from the token
	PollID    string
	FreeSlots int             // 0: presence only
	Types     []workflow.Type // empty: all
	Wait      time.Duration   // 0: respond immediately
	Stock     bool            // the agent uses only the stock API
}

// goneTimeout bounds the cleanup after a client has disconnected.
const goneTimeout = 10 * time.Second

// Poll claims a job. It returns nil if no job becomes claimable within r.Wait.
func (s *Service) Poll(ctx context.Context, p identity.Principal, r Poll) (*Claim, error) {
	r.Agent.OrgID, r.Agent.PoolID = p.Org.ID, p.PoolID
	r.Agent.Hold = r.Wait
	if err := s.opts.Pools.Seen(ctx, r.Agent); err != nil {
		return nil, err
	}
	claim, err := s.poll(ctx, p, r)
	if claim != nil {
		claim.IdentityToken = s.firstIdentityToken(ctx, claim)
	}
	if ctx.Err() != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneTimeout)
		defer cancel()
		if claim != nil {
			s.handBack(after, claim)
		}
		s.opts.Pools.Gone(after, r.Agent)
		return nil, ctx.Err()
	}
	if fault.KindOf(err) == fault.KindUnauthenticated {
		s.opts.Pools.Gone(ctx, r.Agent)
		return nil, err
	}
	s.opts.Pools.Answered(r.Agent)
	if errors.Is(err, errNothing) {
		return nil, nil
	}
	return claim, err
}

func (s *Service) poll(ctx context.Context, p identity.Principal, r Poll) (*Claim, error) {
	c := claimant{OrgID: p.Org.ID, TokenID: p.TokenID, Agent: r.Agent, PollID: r.PollID, Stock: r.Stock}
	wanted := r.FreeSlots > 0 && (len(r.Types) == 0 || slices.Contains(r.Types, workflow.TypeDeployment))
	wake, forget := s.held.join(c.OrgID)
	defer forget()
	repeated, err := s.look(ctx, c)
	if err != nil {
		return nil, err
	}
	if wanted && (r.Wait <= 0 || repeated) {
		o := s.claim(ctx, []claimant{c})[0]
		if r.Wait <= 0 || !errors.Is(o.err, errNothing) {
			return o.claim, o.err
		}
	}
	if !wanted {
		o, _ := s.hold(ctx, r.Wait, c.TokenID, wake, nil)
		return nil, o.err
	}
	w := s.dispatcher.join(c)
	o, done := s.hold(ctx, r.Wait, c.TokenID, wake, w.got)
	if done {
		return o.claim, o.err
	}
	ended := o.err
	if o = s.dispatcher.leave(w); o.claim == nil && ended != nil {
		o.err = ended // only without a claim: a claim made before the token became invalid is still delivered
	}
	return o.claim, o.err
}

// look returns an error if a poll's token became invalid between the request's authentication and
// the start of the poll. It also reports whether an earlier response to the same poll had a job that
// the agent might not have received. It ignores database errors, because a claim repeats the checks.
func (s *Service) look(ctx context.Context, c claimant) (repeated bool, err error) {
	err = s.db.ReadOne(ctx, func(tx *store.Tx) (err error) {
		repeated, err = identity.CheckPoll(tx, c.TokenID, c.Agent.PoolID, c.PollID)
		return err
	})
	if fault.KindOf(err) == fault.KindUnauthenticated {
		return false, err
	}
	return repeated, nil
}

// hold waits for an outcome. If none arrives, done is false. In that case, o.err is set if the
// poll's token has become invalid.
func (s *Service) hold(ctx context.Context, wait time.Duration, tokenID string, wake <-chan struct{}, got <-chan outcome) (o outcome, done bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case o = <-got:
			return o, true
		case <-wake:
			if o.err = s.revoked(ctx, tokenID); o.err != nil {
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

// StatusForAgent returns the public status of a deployment that belongs to the agent's pool.
func (s *Service) StatusForAgent(ctx context.Context, p identity.Principal, deploymentID string) (workflow.Status, error) {
	job, err := s.jobOfDeployment(ctx, deploymentID)
	if err != nil {
		return "", err
	}
	if job.OrgID != p.Org.ID || job.PoolID != p.PoolID {
		return "", fault.NotFound("Not Found: Deployment '%s' not found", termtext.OneLine(deploymentID, maxMessage))
	}
	return job.Status, nil
}

// PoolOf returns an agent's pool.
func (s *Service) PoolOf(ctx context.Context, p identity.Principal) (pools.Overview, error) {
	return s.opts.Pools.Get(ctx, p.Org.ID, p.PoolID)
}

// revoked returns the error for a poll whose token has become invalid, or nil. It ignores database
// errors, because a claim checks the token again.
func (s *Service) revoked(ctx context.Context, tokenID string) error {
	err := s.db.Read(ctx, func(tx *store.Tx) error { return identity.CheckLive(tx, tokenID, tx.Now()) })
	if fault.KindOf(err) == fault.KindUnauthenticated {
		return err
	}
	return nil
}
