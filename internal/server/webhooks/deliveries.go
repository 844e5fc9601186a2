package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// maxAsked is the maximum number of deliveries that users wait for at the same time, and
	// askedPerOrg that of one organization.
	maxAsked, askedPerOrg = 16, 4
	// listed is the number of newest deliveries that are listed, and kept the number of deliveries of
	// a webhook of which the older ones are removed once they have ended.
	listed, kept = 100, 1000
	// keepFor is the time for which deliveries are kept, and giveUpAfter the time after which no
	// further attempt is made.
	keepFor, giveUpAfter = 30 * 24 * time.Hour, 24 * time.Hour
)

// Delivery is a delivery as users see it. Its payload is the body of the request.
type Delivery = store.WebhookDelivery

// Deliveries returns the newest deliveries of a webhook, the newest first.
func (s *Service) Deliveries(ctx context.Context, o Owner, name string) ([]Delivery, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Delivery, error) {
		h, err := find(tx, o, name)
		if err != nil {
			return nil, err
		}
		return tx.Deliveries(h.ID, listed)
	})
	if err != nil {
		return nil, err
	}
	out := make([]Delivery, 0, len(list))
	for _, d := range list {
		if d, err = shown(d); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func shown(d Delivery) (Delivery, error) {
	body, err := render(d.Format, d.Kind, d.Payload)
	d.Payload = string(body)
	return d, err
}

// Ping sends a test event to a webhook and waits for the outcome.
func (s *Service) Ping(ctx context.Context, o Owner, name string) (Delivery, error) {
	return s.ask(ctx, o, name, func(tx *store.Tx, _ store.Webhook) (string, error) {
		payload, err := json.Marshal(map[string]any{
			"timestamp": tx.Now().Unix(), "message": "\U0001F379 Just a friendly ping from Pulumi \U0001F379",
		})
		if err != nil {
			return "", err
		}
		e := store.WebhookEvent{ID: identity.NewID(), OrgID: o.Org.ID, Kind: kindPing, Payload: string(payload), CreatedAt: tx.Now()}
		return e.ID, tx.InsertWebhookEvent(e)
	})
}

// Redeliver sends the event of an earlier delivery again and waits for the outcome.
func (s *Service) Redeliver(ctx context.Context, o Owner, name, id string) (Delivery, error) {
	return s.ask(ctx, o, name, func(tx *store.Tx, h store.Webhook) (string, error) {
		d, err := tx.Delivery(h.ID, id)
		if errors.Is(err, store.ErrNotFound) {
			return "", fault.NotFound("webhook %q has no delivery with this id; deliveries are kept for %d days", h.Name, int(keepFor.Hours()/24))
		}
		return d.EventID, err
	})
}

// asked counts the deliveries that users wait for, by organization.
type asked struct {
	mu    sync.Mutex
	all   int
	byOrg map[string]int
}

// add reports whether an organization's user may wait for another delivery, and counts it then.
func (a *asked) add(orgID string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= maxAsked || a.byOrg[orgID] >= askedPerOrg {
		return false
	}
	a.all++
	a.byOrg[orgID]++
	return true
}

func (a *asked) remove(orgID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.byOrg[orgID]--; a.byOrg[orgID] == 0 {
		delete(a.byOrg, orgID)
	}
}

// ask makes a delivery of an event and waits for the outcome of its only attempt.
func (s *Service) ask(ctx context.Context, o Owner, name string, event func(*store.Tx, store.Webhook) (eventID string, err error)) (Delivery, error) {
	if !s.asked.add(o.Org.ID) {
		return Delivery{}, fault.New(fault.KindUnavailable, "the server already sends as many requests for which users wait as it may; retry later")
	}
	defer s.asked.remove(o.Org.ID)
	c := claimed{asked: true, final: true}
	before, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Webhook, error) { return find(tx, o, name) })
	if err != nil {
		return Delivery{}, err
	}
	err = s.db.Write(ctx, ownerOf(before), func(tx *store.Tx) (err error) {
		if c.hook, err = find(tx, o, name); err == nil && c.hook.ID != before.ID {
			err = fault.NotFound("webhook %q was deleted", name)
		}
		if err != nil {
			return err
		}
		id, err := event(tx, c.hook)
		if err != nil {
			return err
		}
		now := tx.Now()
		c.delivery = Delivery{
			ID: identity.NewID(), HookID: c.hook.ID, EventID: id, Format: c.hook.Format,
			Status: store.DeliverySending, Attempts: 1, DueAt: now, CreatedAt: now,
		}
		if err := tx.InsertDelivery(c.delivery); err != nil {
			return err
		}
		c.delivery, err = tx.Delivery(c.hook.ID, c.delivery.ID)
		return err
	})
	if err != nil {
		return Delivery{}, err
	}
	ctx = context.WithoutCancel(ctx)
	if _, _, err := s.attempt(ctx, c, false); err != nil {
		return Delivery{}, err
	}
	d, err := store.Read(ctx, s.db, func(tx *store.Tx) (Delivery, error) { return tx.Delivery(c.hook.ID, c.delivery.ID) })
	if err != nil {
		return Delivery{}, store.IfMissing(err, fault.NotFound("webhook %q was deleted", name))
	}
	return shown(d)
}

// Sweep ends old deliveries without a successful attempt, removes the records of older ones, and
// removes the webhooks of deleted stacks and environments.
func (s *Service) Sweep(ctx context.Context) error {
	now, err := s.db.Now(ctx)
	if err != nil {
		return fmt.Errorf("reading the time: %w", err)
	}
	if err := s.expire(ctx, now.Add(-giveUpAfter)); err != nil {
		return fmt.Errorf("ending old deliveries of webhooks: %w", err)
	}
	for _, change := range []func(tx *store.Tx, limit int) (int64, error){
		func(tx *store.Tx, limit int) (int64, error) { return tx.DeleteOldDeliveries(now.Add(-keepFor), limit) },
		func(tx *store.Tx, limit int) (int64, error) {
			return tx.DeleteOldWebhookEvents(now.Add(-keepFor), limit)
		},
	} {
		if err := s.db.WriteInPieces(ctx, scope.Free, change); err != nil {
			return fmt.Errorf("removing old deliveries of webhooks: %w", err)
		}
	}
	return s.sweepOrphans(ctx)
}

// expire ends the deliveries from before a time.
func (s *Service) expire(ctx context.Context, before time.Time) error {
	old, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.DueWebhook, error) { return tx.WebhooksWithOldDeliveries(before) })
	for _, h := range old {
		if err == nil {
			err = s.db.WriteInPieces(ctx, scope.Webhook(h.OrgID, h.HookID), func(tx *store.Tx, limit int) (int64, error) {
				return tx.ExpireDeliveries(h.HookID, before, "no attempt succeeded within a day", limit)
			})
		}
	}
	return err
}

func (s *Service) sweepOrphans(ctx context.Context) error {
	const limit = 100
	for n := limit; n == limit; {
		orphans, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.DueWebhook, error) { return tx.OrphanedWebhooks(limit) })
		if n = len(orphans); err != nil {
			return fmt.Errorf("reading the webhooks of deleted stacks and environments: %w", err)
		}
		for _, h := range orphans {
			if err := s.remove(ctx, h.OrgID, h.HookID); err != nil {
				return fmt.Errorf("removing the webhook of a deleted stack or environment: %w", err)
			}
		}
	}
	return nil
}

// Last returns the newest delivery of each webhook of an owner that has one, without its payload, by the ids of webhooks.
func (s *Service) Last(ctx context.Context, list []Webhook) (map[string]Delivery, error) {
	out := map[string]Delivery{}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		for _, h := range list {
			newest, err := tx.Deliveries(h.ID, 1)
			if err != nil {
				return err
			}
			for _, d := range newest {
				d.Payload, d.RequestHeaders, d.ResponseHeaders, d.ResponseBody = "", "", "", ""
				out[h.ID] = d
			}
		}
		return nil
	})
	return out, fault.While(err, "reading the last deliveries of webhooks")
}
