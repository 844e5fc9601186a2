package deployments

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
	r.Agent.PoolID = p.PoolID
	r.Agent.Hold = r.Wait
	if err := s.opts.Pools.Seen(ctx, r.Agent); err != nil {
		return nil, err
	}
	claim, err := s.poll(ctx, p, r)
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
	wanted := len(r.Types) == 0 || slices.Contains(r.Types, workflow.TypeDeployment)
	wake, forget := s.held.join(c.OrgID)
	defer forget()
	var got chan outcome // a nil channel never receives
	if r.FreeSlots > 0 && wanted {
		if r.Wait <= 0 {
			return s.claim(ctx, c)
		}
		w := s.dispatcher.join(c)
		got = w.got
		o, done := s.hold(ctx, r.Wait, c.TokenID, wake, got)
		if done {
			return o.claim, o.err
		}
		ended := o.err
		if o = s.dispatcher.leave(w); o.claim == nil && ended != nil {
			o.err = ended // only without a claim: a claim made before the token became invalid is still delivered
		}
		return o.claim, o.err
	}
	o, _ := s.hold(ctx, r.Wait, c.TokenID, wake, got)
	return nil, o.err
}

// hold waits for an outcome. If none arrives, done is false. In that case, o.err is set if the
// poll's token has become invalid.
func (s *Service) hold(ctx context.Context, wait time.Duration, tokenID string, wake <-chan struct{}, got <-chan outcome) (o outcome, done bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	// The token might have become invalid between the request's authentication and the join.
	if o.err = s.revoked(ctx, tokenID); o.err != nil {
		return o, false
	}
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

// PoolName returns the name of an agent's pool.
func (s *Service) PoolName(ctx context.Context, p identity.Principal) (string, error) {
	pool, err := s.opts.Pools.Get(ctx, p.Org.ID, p.PoolID)
	return pool.Name, err
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

// claimTimeout bounds one attempt to claim a job for a waiter.
const claimTimeout = 30 * time.Second

// dispatcher assigns jobs to held polls without polling the database. When it is notified of a
// claimable job, it claims the job for the poll that has waited longest. At most one goroutine
// serves each pool, and only while polls wait.
type dispatcher struct {
	claim    func(context.Context, claimant) (*Claim, error)
	handBack func(context.Context, *Claim)

	mu     sync.Mutex
	lines  map[string]*line
	closed bool
	wg     sync.WaitGroup
}

type line struct {
	orgID   string
	waiters []*waiter
	dirty   bool // a job might be claimable
	running bool // a goroutine serves the line
}

// waiter is a held poll. It receives one outcome, unless it leaves before a claim for it begins.
type waiter struct {
	claimant
	leaving bool
	got     chan outcome // capacity 1
}

type outcome struct {
	claim *Claim // nil: no job
	err   error
}

func newDispatcher(claim func(context.Context, claimant) (*Claim, error), handBack func(context.Context, *Claim)) *dispatcher {
	return &dispatcher{claim: claim, handBack: handBack, lines: map[string]*line{}}
}

// close makes the dispatcher reject new polls, and waits for its goroutines. The caller must end
// the waiting polls.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wg.Wait()
}

// join adds a poll to its pool's line and starts an attempt to claim a job.
func (d *dispatcher) join(c claimant) *waiter {
	w := &waiter{claimant: c, got: make(chan outcome, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		w.got <- outcome{}
		return w
	}
	l := d.lines[c.Agent.PoolID]
	if l == nil {
		l = &line{orgID: c.OrgID}
		d.lines[c.Agent.PoolID] = l
	}
	l.waiters = append(l.waiters, w)
	d.serve(c.Agent.PoolID, l)
	return w
}

// leave removes a poll. If a claim for the poll is in progress, leave waits for the outcome, which
// can be a job.
func (d *dispatcher) leave(w *waiter) outcome {
	pool := w.Agent.PoolID
	d.mu.Lock()
	if l := d.lines[pool]; l != nil {
		for i, other := range l.waiters {
			if other == w {
				l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
				d.tidy(pool, l)
				d.mu.Unlock()
				return outcome{}
			}
		}
	}
	w.leaving = true
	d.mu.Unlock()
	return <-w.got
}

func (d *dispatcher) note(payload string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	org, isOrg := strings.CutPrefix(payload, "org:")
	for pool, l := range d.lines {
		if payload == "" || pool == payload || isOrg && l.orgID == org {
			d.serve(pool, l)
		}
	}
}

// serve ensures that a goroutine serves the line. The caller must hold d.mu.
func (d *dispatcher) serve(pool string, l *line) {
	l.dirty = true
	if l.running || d.closed || len(l.waiters) == 0 {
		return
	}
	l.running = true
	d.wg.Go(func() { d.run(pool, l) })
}

// tidy removes a line that has no polls. The caller must hold d.mu.
func (d *dispatcher) tidy(pool string, l *line) {
	if len(l.waiters) == 0 && !l.running {
		delete(d.lines, pool)
	}
}

// run claims jobs for the waiters of a line until no job is claimable or no poll waits.
func (d *dispatcher) run(pool string, l *line) {
	for {
		d.mu.Lock()
		if len(l.waiters) == 0 || !l.dirty || d.closed {
			l.running = false
			d.tidy(pool, l)
			d.mu.Unlock()
			return
		}
		l.dirty = false
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		d.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
		claim, err := d.claim(ctx, w.claimant)
		cancel()

		d.mu.Lock()
		switch {
		case errors.Is(err, errNothing) && !w.leaving:
			l.waiters = append([]*waiter{w}, l.waiters...)
		case errors.Is(err, errNothing):
			w.got <- outcome{}
			l.dirty = true // a job might have become claimable for the polls behind this one
		default:
			w.got <- outcome{claim, err}
			l.dirty = true
		}
		d.mu.Unlock()
	}
}
