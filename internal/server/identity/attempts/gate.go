package attempts

import (
	"context"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/recent"
)

const (
	// gateFailures is the number of failures per minute that a network has before its calls wait for a slot.
	gateFailures = 100
	// gateSlots is the number of credentials that are checked at the same time for networks with more failures.
	gateSlots = 4
	// gateWait is the longest time that a call waits for a slot.
	gateWait = 2 * time.Second
	// gateKnown is the time for which a credential is known to be valid. It only decides who waits.
	gateKnown = 30 * time.Minute
)

// errCrowded ends no client: clients repeat calls that fail with it.
var errCrowded = fault.New(fault.KindUnavailable, "too many calls with invalid credentials come from your network; retry later")

// Gate bounds the work that calls without valid credentials cause. Calls from a network with many failures wait
// for one of a few slots before their credential is checked. Other calls never wait, and neither do those with a
// credential that was valid recently, whatever their network does.
type Gate struct {
	failures *Counter
	slots    chan struct{}
	valid    recent.Map[struct{}] // by credential
}

// NewGate returns an open gate.
func NewGate() *Gate {
	return &Gate{
		failures: New(gateFailures), slots: make(chan struct{}, gateSlots), valid: recent.Map[struct{}]{Age: gateKnown},
	}
}

// Know makes a credential known as valid.
func (g *Gate) Know(key string) { g.valid.Put(key, struct{}{}, time.Now()) }

// Check calls check, which returns an error of the kind unauthenticated, forbidden or not found if the credential is
// not valid. address is the client's, and key identifies the credential. Check returns an error of the kind [fault.KindUnavailable]
// without a call if too many others wait.
func (g *Gate) Check(ctx context.Context, address, key string, check func() error) error {
	source := Source(address)
	if _, known := g.valid.Get(key); !known && !g.failures.Allowed(source, time.Now()) {
		if err := g.wait(ctx); err != nil {
			return err
		}
		defer func() { <-g.slots }()
	}
	err := check()
	switch kind := fault.KindOf(err); {
	case err == nil:
		g.Know(key)
	case kind == fault.KindUnauthenticated, kind == fault.KindForbidden, kind == fault.KindNotFound:
		g.valid.Forget(key)
		g.failures.Fail(source, 1, time.Now())
	}
	return err
}

func (g *Gate) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, gateWait, errCrowded)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
