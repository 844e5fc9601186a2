package webhooks

import (
	"context"
	"time"

	"workflowagent/internal/server/due"
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
	// maxDue is the number of due webhooks that are read at once.
	maxDue = 1000
)

// Run sends due deliveries until ctx is canceled. Several servers may run it on one database.
func (s *Service) Run(ctx context.Context) error {
	return (&due.Loop{
		Log: s.log, Name: "deliveries of webhooks", KeyName: "webhook", Notices: s.db, Topic: Topic, Every: poll, Gather: gather,
		Most: maxSenders, PerOwner: []int{perOrg}, Check: s.due, Batch: maxDue,
	}).Run(ctx)
}

// due returns the webhooks with due deliveries, except those of some organizations.
func (s *Service) due(ctx context.Context, withoutOrgs []string) ([]due.Work, error) {
	hooks, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.DueWebhook, error) { return tx.DueWebhooks(tx.Now(), withoutOrgs, maxDue) })
	if err != nil {
		return nil, err
	}
	work := make([]due.Work, len(hooks))
	for n, h := range hooks {
		work[n] = due.Work{Key: h.HookID, Owners: []string{h.OrgID}, Do: func(ctx context.Context) error { return s.send(ctx, h) }}
	}
	return work, nil
}

// send sends the due deliveries of a webhook, one after the other. An attempt that has begun is
// not interrupted, because its outcome would be unknown.
func (s *Service) send(ctx context.Context, h store.DueWebhook) error {
	c, ok, err := s.claim(ctx, h, identity.NewID())
	for n := 1; ok && err == nil; n++ {
		c, ok, err = s.attempt(context.WithoutCancel(ctx), c, n < maxTurn && ctx.Err() == nil)
	}
	return err
}
