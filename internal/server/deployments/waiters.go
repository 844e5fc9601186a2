package deployments

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// claimTimeout bounds one attempt to claim for a waiter.
const claimTimeout = 30 * time.Second

// dispatcher assigns jobs to held polls without polling the database: when it is notified of a
// claimable job, it claims for the poll that has waited longest. At most one goroutine serves each
// pool, and only while polls wait.
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
	dirty   bool // a job may be claimable
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

// close refuses new polls and waits for the goroutines. The caller must end the waiting polls.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wg.Wait()
}

// join adds a poll to its pool's line and tries to claim for the line.
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
// may be a job.
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

// serve ensures that a goroutine serves the line. The caller must hold mu.
func (d *dispatcher) serve(pool string, l *line) {
	l.dirty = true
	if l.running || d.closed || len(l.waiters) == 0 {
		return
	}
	l.running = true
	d.wg.Go(func() { d.run(pool, l) })
}

// tidy removes a line without polls. The caller must hold mu.
func (d *dispatcher) tidy(pool string, l *line) {
	if len(l.waiters) == 0 && !l.running {
		delete(d.lines, pool)
	}
}

// run claims for the waiters of a line until no job is claimable or none waits.
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
			l.dirty = true // for the polls behind it: a job may have become claimable meanwhile
		default:
			w.got <- outcome{claim, err}
			l.dirty = true
		}
		d.mu.Unlock()
	}
}
