package forges

import (
	"context"
	"sync"
	"time"

	"workflowagent/internal/server/attempts"
	"workflowagent/internal/server/fault"
)

const (
	// maxBodies is the number of deliveries that are read at the same time, which bounds the memory
	// that they use. perIntegration is the number of those to one integration, and forStrangers of
	// those from networks that have sent no authentic delivery recently. So neither an integration nor
	// networks that only send something keep the other deliveries out.
	maxBodies, perIntegration, forStrangers = 8, 4, 4
	// knownFor is the time for which a network is known after an authentic delivery, and maxKnown
	// bounds the memory of them.
	knownFor, maxKnown = 24 * time.Hour, 10000
	// maxWait is the time for which a delivery waits for others.
	maxWait = 5 * time.Second
)

// places are the deliveries that can be read at the same time.
type places struct {
	all, strangers chan struct{}

	mu     sync.Mutex
	shares map[string]*share    // by integration
	known  map[string]time.Time // the last authentic delivery, by network
}

// share is what an integration can use of the places.
type share struct {
	places chan struct{}
	users  int // deliveries that use the share or wait for it
}

func newPlaces() *places {
	return &places{
		all: make(chan struct{}, maxBodies), strangers: make(chan struct{}, forStrangers), shares: map[string]*share{}, known: map[string]time.Time{},
	}
}

// take takes a place for a delivery to an integration, and returns a function that releases it.
func (p *places) take(ctx context.Context, integration, address string) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxWait, fault.New(fault.KindUnavailable, "Service Unavailable: the server reads too many deliveries at once"))
	defer cancel()
	mine := p.join(integration)
	taken := []chan struct{}{}
	release = func() {
		for _, c := range taken {
			<-c
		}
		p.leave(integration)
	}
	wanted := []chan struct{}{mine, p.strangers, p.all}
	if p.isKnown(address, time.Now()) {
		wanted = []chan struct{}{mine, p.all}
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

func (p *places) join(integration string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shares[integration]
	if s == nil {
		s = &share{places: make(chan struct{}, perIntegration)}
		p.shares[integration] = s
	}
	s.users++
	return s.places
}

func (p *places) leave(integration string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shares[integration]
	if s.users--; s.users == 0 {
		delete(p.shares, integration)
	}
}

// know records an authentic delivery from an address.
func (p *places) know(address string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxKnown {
		clear(p.known) // the networks become known again with their next deliveries
	}
	p.known[attempts.Source(address)] = now
}

func (p *places) isKnown(address string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.known[attempts.Source(address)]
	return ok && now.Sub(at) < knownFor
}
