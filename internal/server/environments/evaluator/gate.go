package evaluator

import (
	"context"
	"slices"
	"sync"
	"time"

	"workflowagent/internal/server/fault"
)

// queueTimeout limits the time for which a request waits for others.
const queueTimeout = 30 * time.Second

// mostWaiting is the maximum number of waiting requests of a caller.
const mostWaiting = 32

var errBusy = fault.New(fault.KindUnavailable, "the server evaluates too many environments at the same time; try again")

// Owner is the organization and the caller that a request belongs to. The number of requests at the same time is limited for
// each of them.
type Owner struct {
	Organization string // its id
	Caller       string // the id of the user, or of a token without a user; a user may belong to several organizations
}

// gate limits the number of requests at the same time: in all, for each organization and for each caller, so that none of
// them blocks the others.
type gate struct {
	all, each, caller int

	mu      sync.Mutex
	inside  int
	of      map[string]int // by organization
	by      map[string]int // by caller
	waiting []*waiter      // in order of arrival
}

type waiter struct {
	owner Owner
	in    chan struct{} // closed when the request may begin
}

// newGate returns a gate for a number of requests: half of them for one organization, and a quarter for one caller.
func newGate(all int) *gate {
	return &gate{all: all, each: max(1, all/2), caller: max(1, all/4), of: map[string]int{}, by: map[string]int{}}
}

// enter waits until a request of an owner may begin. The caller must call leave afterwards.
func (g *gate) enter(ctx context.Context, owner Owner) (leave func(), err error) {
	w := &waiter{owner, make(chan struct{})}
	g.mu.Lock()
	mine := 0
	for _, o := range g.waiting {
		if o.owner.Caller == owner.Caller {
			mine++
		}
	}
	if mine >= mostWaiting {
		g.mu.Unlock()
		return nil, errBusy
	}
	g.waiting = append(g.waiting, w)
	g.admit()
	g.mu.Unlock()
	timer := time.NewTimer(queueTimeout)
	defer timer.Stop()
	select {
	case <-w.in:
		return func() { g.leave(owner) }, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errBusy
	}
	g.mu.Lock()
	i := slices.Index(g.waiting, w)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.mu.Unlock()
	if i < 0 { // it was admitted meanwhile
		g.leave(owner)
	}
	return nil, err
}

func (g *gate) leave(owner Owner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.of[owner.Organization]--; g.of[owner.Organization] == 0 {
		delete(g.of, owner.Organization)
	}
	if g.by[owner.Caller]--; g.by[owner.Caller] == 0 {
		delete(g.by, owner.Caller)
	}
	g.admit()
}

// admit lets requests begin. The caller holds the lock.
func (g *gate) admit() {
	g.waiting = slices.DeleteFunc(g.waiting, func(w *waiter) bool {
		if g.inside >= g.all || g.of[w.owner.Organization] >= g.each || g.by[w.owner.Caller] >= g.caller {
			return false
		}
		g.inside++
		g.of[w.owner.Organization]++
		g.by[w.owner.Caller]++
		close(w.in)
		return true
	})
}

// starved reports whether a request waits only because all places are taken.
func (g *gate) starved() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.waiting, func(w *waiter) bool {
		return g.of[w.owner.Organization] < g.each && g.by[w.owner.Caller] < g.caller
	})
}
