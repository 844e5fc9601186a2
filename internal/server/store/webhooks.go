package store

import (
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// Webhook is a receiver of the events of a stack, of an environment, or of all of an organization.
type Webhook struct {
	ID, OrgID   string
	OwnerID     string `db:"stack_id"` // of the stack or the environment that has the webhook; "" if the organization has it
	Name        string
	DisplayName string
	URL         string `db:"url"`
	Format      string
	Active      bool
	Filters     []string // names of events
	Groups      []string `db:"event_groups"`
	Secret      []byte   // encrypted; empty if the webhook has none
	Actor       string   // on whose behalf the webhook acts, in the format of package identity
	CreatedAt   time.Time
	ModifiedAt  time.Time
	// OfEnvironment reports whether an environment has the webhook.
	OfEnvironment bool `db:"-" read:"(SELECT COUNT(*) FROM environment_webhooks w WHERE w.hook_id = h.id)"`
}

// environmentWebhook marks a webhook as that of an environment.
type environmentWebhook struct{ HookID, EnvironmentID string }

// WebhookEvent is an event that at least one webhook receives.
type WebhookEvent struct {
	ID, OrgID string
	Kind      string
	Payload   string   // JSON
	Chain     []string // ids of the stacks whose events led to this one, the newest last
	CreatedAt time.Time
}

// DeliveryStatus is the status of a delivery.
type DeliveryStatus string

// The statuses of a delivery.
const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliverySending   DeliveryStatus = "sending" // the only attempt is in progress
	DeliverySucceeded DeliveryStatus = "succeeded"
	DeliveryFailed    DeliveryStatus = "failed"
)

// WebhookDelivery is the transmission of an event to a webhook. The fields about the request and
// the response describe the last attempt.
type WebhookDelivery struct {
	ID, HookID, EventID string
	Format              string
	Status              DeliveryStatus
	Attempts            int64
	DueAt               time.Time // of the next attempt
	CreatedAt           time.Time
	SentAt              time.Time // zero before the first attempt has ended
	Duration            time.Duration
	RequestURL          string
	RequestHeaders      string // lines
	ResponseCode        int64  // 0 without a response
	ResponseHeaders     string // lines
	ResponseBody        string // the beginning of the body, or the error
	DeploymentID        string // id of the deployment that the delivery started
	Kind                string `db:"-" read:"e.kind"`
	Payload             string `db:"-" read:"e.payload"`
}

// WebhookSender is the right to send a webhook's deliveries.
type WebhookSender struct {
	HookID    string
	Lease     string    // identifies the last holder
	NotBefore time.Time // end of the lease, or of the pause after failures
	Failures  int64     // failed attempts since the last success
}

var (
	webhooks            = database.NewTable[Webhook]("webhooks h")
	environmentWebhooks = database.NewTable[environmentWebhook]("environment_webhooks w")
	webhookEvents       = database.NewTable[WebhookEvent]("webhook_events e")
	webhookDeliveries   = database.NewTable[WebhookDelivery]("webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id")
	webhookSenders      = database.NewTable[WebhookSender]("webhook_senders w")
)

// InsertWebhook adds a webhook, or returns [ErrConflict] if its owner has a webhook of this name.
func (tx *Tx) InsertWebhook(h Webhook) error {
	if err := webhooks.Insert(tx.Tx, h); err != nil {
		return err
	}
	if h.OfEnvironment {
		if err := environmentWebhooks.Insert(tx.Tx, environmentWebhook{h.ID, h.OwnerID}); err != nil {
			return err
		}
	}
	return webhookSenders.Insert(tx.Tx, WebhookSender{HookID: h.ID})
}

// SaveWebhook writes a webhook's fields except its owner.
func (tx *Tx) SaveWebhook(h Webhook) error {
	return webhooks.Update(tx.Tx, h, "name", "display_name", "url", "format", "active", "filters", "event_groups", "secret", "actor", "modified_at")
}

// Webhook returns a webhook by its id.
func (tx *Tx) Webhook(id string) (Webhook, error) { return webhooks.One(tx.Tx, "WHERE h.id = $1", id) }

// WebhookByName returns a webhook of a stack or an environment, or of an organization if ownerID is "".
func (tx *Tx) WebhookByName(orgID, ownerID, name string) (Webhook, error) {
	return webhooks.One(tx.Tx, "WHERE h.org_id = $1 AND h.stack_id = $2 AND h.name = $3", orgID, ownerID, name)
}

// Webhooks returns the webhooks of a stack or an environment, or of an organization if ownerID is "", by name.
func (tx *Tx) Webhooks(orgID, ownerID string) ([]Webhook, error) {
	return webhooks.All(tx.Tx, "WHERE h.org_id = $1 AND h.stack_id = $2 ORDER BY h.name", orgID, ownerID)
}

// HasWebhooks reports whether an organization, or one of its stacks and environments, has an active webhook.
func (tx *Tx) HasWebhooks(orgID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM (SELECT 1 FROM webhooks WHERE org_id = $1 AND active = 1 LIMIT 1) one", orgID)
	return n > 0, err
}

// HasEnvironmentWebhooks reports whether an organization, or one of its environments, has an active webhook.
func (tx *Tx) HasEnvironmentWebhooks(orgID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM (SELECT 1 FROM webhooks h WHERE h.org_id = $1 AND h.active = 1
		AND (h.stack_id = '' OR h.id IN (SELECT w.hook_id FROM environment_webhooks w)) LIMIT 1) one`, orgID)
	return n > 0, err
}

// ActiveWebhooks returns the active webhooks of a stack or an environment, and of its organization.
func (tx *Tx) ActiveWebhooks(orgID, ownerID string) ([]Webhook, error) {
	return webhooks.All(tx.Tx, "WHERE h.org_id = $1 AND h.stack_id IN ('', $2) AND h.active = 1 ORDER BY h.id", orgID, ownerID)
}

// DeleteWebhook removes a webhook and its deliveries.
func (tx *Tx) DeleteWebhook(id string) error {
	if _, err := tx.Exec("DELETE FROM environment_webhooks WHERE hook_id = $1", id); err != nil {
		return err
	}
	return tx.ExecOne("DELETE FROM webhooks WHERE id = $1", id)
}

// DeleteDeliveries removes up to limit deliveries of a webhook and returns their number.
func (tx *Tx) DeleteDeliveries(hookID string, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf("DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries WHERE hook_id = $1 LIMIT %d)", limit), hookID)
}

// InsertWebhookEvent adds an event.
func (tx *Tx) InsertWebhookEvent(e WebhookEvent) error { return webhookEvents.Insert(tx.Tx, e) }

// WebhookEvent returns an event by its id.
func (tx *Tx) WebhookEvent(id string) (WebhookEvent, error) {
	return webhookEvents.One(tx.Tx, "WHERE e.id = $1", id)
}

// EventBehind returns the event whose delivery started a deployment, or [ErrNotFound].
func (tx *Tx) EventBehind(deploymentID string) (WebhookEvent, error) {
	return webhookEvents.One(tx.Tx, "JOIN webhook_deliveries d ON d.event_id = e.id WHERE d.deployment_id = $1 AND d.deployment_id <> ''", deploymentID)
}

// QueuedByWebhook returns the version of a queued deployment of a stack that a webhook started, or
// [ErrNotFound].
func (tx *Tx) QueuedByWebhook(stackID, hookID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT j.version FROM jobs j JOIN webhook_deliveries d ON d.deployment_id = j.deployment_id AND d.deployment_id <> ''
		WHERE j.stack_id = $1 AND j.status = 'not-started' AND d.hook_id = $2 ORDER BY j.version LIMIT 1`, stackID, hookID)
}

// InsertDelivery adds a delivery.
func (tx *Tx) InsertDelivery(d WebhookDelivery) error { return webhookDeliveries.Insert(tx.Tx, d) }

// Delivery returns a webhook's delivery by its id.
func (tx *Tx) Delivery(hookID, id string) (WebhookDelivery, error) {
	return webhookDeliveries.One(tx.Tx, "WHERE d.id = $1 AND d.hook_id = $2", id, hookID)
}

// Deliveries returns a webhook's newest deliveries, the newest first.
func (tx *Tx) Deliveries(hookID string, limit int) ([]WebhookDelivery, error) {
	return webhookDeliveries.All(tx.Tx, fmt.Sprintf("WHERE d.hook_id = $1 ORDER BY d.created_at DESC, d.id LIMIT %d", limit), hookID)
}

// SaveDelivery writes a delivery's status and last attempt.
func (tx *Tx) SaveDelivery(d WebhookDelivery) error {
	return webhookDeliveries.Update(tx.Tx, d, "format", "status", "attempts", "due_at", "sent_at", "duration", "request_url", "request_headers",
		"response_code", "response_headers", "response_body", "deployment_id")
}

// TrimDeliveries removes up to 10 ended deliveries of a webhook that precede its newest keep
// deliveries, and their events. It keeps those that started deployments, because [Tx.EventBehind]
// needs them.
func (tx *Tx) TrimDeliveries(hookID string, keep int) error {
	old, err := webhookDeliveries.All(tx.Tx, fmt.Sprintf(`WHERE d.hook_id = $1 AND d.status IN ('succeeded', 'failed') AND d.deployment_id = ''
		AND d.created_at < (SELECT created_at FROM webhook_deliveries WHERE hook_id = $1 ORDER BY created_at DESC LIMIT 1 OFFSET %d) ORDER BY d.created_at LIMIT 10`, keep-1), hookID)
	if err != nil {
		return err
	}
	for _, d := range old {
		if _, err := tx.Exec("DELETE FROM webhook_deliveries WHERE id = $1", d.ID); err != nil { // or [Tx.DeleteOldDeliveries] has
			return err
		}
		if _, err := tx.Exec("DELETE FROM webhook_events WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries WHERE event_id = $1)", d.EventID); err != nil {
			return err
		}
	}
	return nil
}

// DueWebhook identifies a webhook that has a delivery to send, or that can be removed.
type DueWebhook struct {
	HookID string `read:"h.id"`
	OrgID  string
}

var dueWebhooks = database.NewTable[DueWebhook]("webhooks h")

// DueWebhooks returns up to limit webhooks with a due delivery that no server sends, without those of
// some organizations. It returns those first whose receivers work.
func (tx *Tx) DueWebhooks(now time.Time, withoutOrgs []string, limit int) ([]DueWebhook, error) {
	args, without := []any{now}, ""
	for _, id := range withoutOrgs {
		args = append(args, id)
		without += fmt.Sprintf(" AND h.org_id <> $%d", len(args))
	}
	return dueWebhooks.All(tx.Tx, fmt.Sprintf(`JOIN webhook_senders w ON w.hook_id = h.id
		WHERE h.active = 1 AND w.not_before <= $1 AND w.hook_id IN (SELECT d.hook_id FROM webhook_deliveries d WHERE d.status = 'pending' AND d.due_at <= $1)%s
		ORDER BY w.failures, w.not_before LIMIT %d`, without, limit), args...)
}

// DueDelivery returns the pending delivery of a webhook that is due first, or [ErrNotFound] if none
// is due.
func (tx *Tx) DueDelivery(hookID string, now time.Time) (WebhookDelivery, error) {
	return webhookDeliveries.One(tx.Tx, "WHERE d.hook_id = $1 AND d.status = 'pending' AND d.due_at <= $2 ORDER BY d.due_at, d.created_at LIMIT 1", hookID, now)
}

// WebhookSender returns the sender of a webhook.
func (tx *Tx) WebhookSender(hookID string) (WebhookSender, error) {
	return webhookSenders.One(tx.Tx, "WHERE w.hook_id = $1", hookID)
}

// SaveWebhookSender writes the sender of a webhook.
func (tx *Tx) SaveWebhookSender(w WebhookSender) error { return webhookSenders.Update(tx.Tx, w) }

// WebhooksWithOldDeliveries returns the webhooks of deliveries that have not ended and were created before
// a time.
func (tx *Tx) WebhooksWithOldDeliveries(before time.Time) ([]DueWebhook, error) {
	return dueWebhooks.All(tx.Tx, "WHERE h.id IN (SELECT d.hook_id FROM webhook_deliveries d WHERE d.status IN ('pending', 'sending') AND d.created_at < $1)", before)
}

// ExpireDeliveries ends up to limit deliveries of a webhook that have not ended and were created before a
// time, and returns their number.
func (tx *Tx) ExpireDeliveries(hookID string, before time.Time, reason string, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`UPDATE webhook_deliveries SET status = 'failed', response_body = CASE WHEN response_body = '' THEN $1 ELSE response_body END
		WHERE id IN (SELECT id FROM webhook_deliveries WHERE hook_id = $3 AND status IN ('pending', 'sending') AND created_at < $2 LIMIT %d)`, limit), reason, before, hookID)
}

// DeleteOldDeliveries removes up to limit ended deliveries that were created before a time, and
// returns their number.
func (tx *Tx) DeleteOldDeliveries(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries
		WHERE created_at < $1 AND status IN ('succeeded', 'failed') LIMIT %d%s)`, limit, tx.SkipLocked()), before)
}

// DeleteOldWebhookEvents removes up to limit events without deliveries that were recorded before a
// time, and returns their number.
func (tx *Tx) DeleteOldWebhookEvents(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM webhook_events WHERE id IN (SELECT e.id FROM webhook_events e
		WHERE e.created_at < $1 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.event_id = e.id) LIMIT %d%s)`, limit, tx.SkipLocked()), before)
}

// OrphanedWebhooks returns up to limit webhooks of purged stacks and deleted environments that no longer have anything
// to send: no delivery is pending and no deployment of the stack is running.
func (tx *Tx) OrphanedWebhooks(limit int) ([]DueWebhook, error) {
	return dueWebhooks.All(tx.Tx, fmt.Sprintf(`WHERE h.stack_id <> ''
		AND NOT EXISTS (SELECT 1 FROM stacks s WHERE s.id = h.stack_id)
		AND NOT EXISTS (SELECT 1 FROM environment_webhooks w WHERE w.hook_id = h.id)
		AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.stack_id = h.stack_id AND j.status IN ('accepted', 'running'))
		AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.hook_id = h.id AND d.status = 'pending') LIMIT %d`, limit))
}

// UserOrNone returns a user by its id, or the zero user if the id is empty or unknown.
func (tx *Tx) UserOrNone(id string) (User, error) {
	if id == "" {
		return User{}, nil
	}
	u, err := tx.User(id)
	if errors.Is(err, ErrNotFound) {
		return User{}, nil
	}
	return u, err
}
