package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

const (
	// maxSenders is the maximum number of webhooks to which a server sends at the same time, and
	// perOrg the maximum number of those that belong to one organization.
	maxSenders, perOrg = 32, 8
	// poll is the interval at which a server checks for due deliveries. New deliveries are
	// notified.
	poll = 5 * time.Second
	// gather is the minimum time between two checks.
	gather = 50 * time.Millisecond
)

// Run sends due deliveries until ctx is canceled. Several servers may run it on one database.
func (s *Service) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	signal := func(string) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	defer s.db.Subscribe(Topic, signal)()
	r := &round{s: s, orgOf: map[string]string{}, busy: map[string]int{}, done: func() { signal("") }}
	defer r.senders.Wait()
	for {
		if err := r.start(ctx); err != nil && ctx.Err() == nil {
			s.log.WithError(err).Error("checking for due deliveries of webhooks failed; retrying")
		}
		timer := time.NewTimer(retry.Spread(poll))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-wake:
			timer.Stop()
		}
		if retry.Sleep(ctx, gather) != nil {
			return nil
		}
	}
}

// round starts senders, at most one for each webhook.
type round struct {
	s       *Service
	done    func() // called when a sender has finished
	senders sync.WaitGroup

	mu    sync.Mutex
	orgOf map[string]string // organizations of the webhooks that have a sender
	busy  map[string]int    // number of senders by organization
}

// maxDue is the number of due webhooks that are read at once.
const maxDue = 1000

func (r *round) start(ctx context.Context) error {
	for more := true; more && r.free() > 0; {
		// The webhooks of an organization must not hide those of the others, however many are due.
		full := r.full()
		due, err := store.Read(ctx, r.s.db, func(tx *store.Tx) ([]store.DueWebhook, error) { return tx.DueWebhooks(tx.Now(), full, maxDue) })
		if err != nil {
			return fmt.Errorf("reading the due webhooks: %w", err)
		}
		r.send(ctx, due)
		more = len(due) == maxDue && len(r.full()) > len(full)
	}
	return nil
}

func (r *round) send(ctx context.Context, due []store.DueWebhook) {
	for _, h := range due {
		if !r.add(h) {
			continue
		}
		r.senders.Go(func() {
			defer r.remove(h)
			if err := r.s.send(ctx, h.HookID); err != nil && ctx.Err() == nil {
				r.s.log.WithError(err).WithField("webhook", h.HookID).Error("sending the deliveries of a webhook failed; retrying")
			}
		})
	}
}

// full returns the organizations that have as many senders as they may.
func (r *round) full() (orgs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, n := range r.busy {
		if n >= perOrg {
			orgs = append(orgs, id)
		}
	}
	return orgs
}

func (r *round) free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maxSenders - len(r.orgOf)
}

func (r *round) add(h store.DueWebhook) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, sending := r.orgOf[h.HookID]; sending || len(r.orgOf) >= maxSenders || r.busy[h.OrgID] >= perOrg {
		return false
	}
	r.orgOf[h.HookID] = h.OrgID
	r.busy[h.OrgID]++
	return true
}

func (r *round) remove(h store.DueWebhook) {
	r.mu.Lock()
	delete(r.orgOf, h.HookID)
	if r.busy[h.OrgID]--; r.busy[h.OrgID] == 0 {
		delete(r.busy, h.OrgID)
	}
	r.mu.Unlock()
	r.done()
}

// send sends the due deliveries of a webhook, one after the other. An attempt that has begun is
// not interrupted, because its outcome would be unknown.
func (s *Service) send(ctx context.Context, hookID string) error {
	c, ok, err := s.claim(ctx, hookID, identity.NewID())
	for n := 1; ok && err == nil; n++ {
		c, ok, err = s.attempt(context.WithoutCancel(ctx), c, n < maxTurn && ctx.Err() == nil)
	}
	return err
}
