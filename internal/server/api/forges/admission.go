package forges

import (
	"context"
	"sync"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/attempts"
)

const (
	// maxBodies is the number of deliveries that are read at the same time, which bounds the memory
	// that they use. perIntegration is the number of those to one integration from known networks, and
	// forStrangers of those from networks that have sent no authentic delivery recently, of which at most
	// strangersEach are to one integration. So neither an integration nor networks that only send something
	// keep the other deliveries out, nor those to the same integration.
	maxBodies, perIntegration, forStrangers, strangersEach = 8, 4, 4, 2
	// knownFor is the time for which a network is known after an authentic delivery, and maxKnown
	// bounds the memory of them.
	knownFor, maxKnown = 24 * time.Hour, 10000
	// maxWait is the time for which a delivery waits for others.
	maxWait = 5 * time.Second
)

// admission bounds the deliveries that can be read at the same time.
type admission struct {
	all, strangers chan struct{}

	mu     sync.Mutex
	shares map[string]*share    // by integration
	known  map[string]time.Time // the last authentic delivery, by network
}

// share is the slots of one integration.
type share struct {
	known, strangers chan struct{}
	users            int // deliveries that use the share or wait for it
}

func newAdmission() *admission {
	return &admission{
		all: make(chan struct{}, maxBodies), strangers: make(chan struct{}, forStrangers), shares: map[string]*share{}, known: map[string]time.Time{},
	}
}

// acquire takes a slot for a delivery to an integration, and returns a function that releases it.
func (a *admission) acquire(ctx context.Context, integration, address string) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxWait, fault.New(fault.KindUnavailable, "the server reads too many deliveries at once"))
	defer cancel()
	mine := a.join(integration)
	taken := []chan struct{}{}
	release = func() {
		for _, c := range taken {
			<-c
		}
		a.leave(integration)
	}
	wanted := []chan struct{}{mine.strangers, a.strangers, a.all}
	if a.isKnown(address, time.Now()) {
		wanted = []chan struct{}{mine.known, a.all}
	}
	for _, c := range wanted {
		select {
		case c <- struct{}{}:
			taken = append(taken, c)
		case <-ctx.Done():
			release()
			return nil, context.Cause(ctx)
		}
	}
	return release, nil
}

func (a *admission) join(integration string) *share {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shares[integration]
	if s == nil {
		s = &share{known: make(chan struct{}, perIntegration), strangers: make(chan struct{}, strangersEach)}
		a.shares[integration] = s
	}
	s.users++
	return s
}

func (a *admission) leave(integration string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shares[integration]
	if s.users--; s.users == 0 {
		delete(a.shares, integration)
	}
}

// remember records an authentic delivery from an address.
func (a *admission) remember(address string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxKnown {
		clear(a.known) // the networks become known again with their next deliveries
	}
	a.known[attempts.Source(address)] = now
}

func (a *admission) isKnown(address string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.known[attempts.Source(address)]
	return ok && now.Sub(at) < knownFor
}
