package webhooks

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Topic is the notification channel for due deliveries. The payload is the webhook's id.
const Topic = "webhook"

// Event is something that happened to a stack or an environment.
type Event struct {
	Name                          Name
	OrgID, StackID, EnvironmentID string
	// DeploymentID is the id of the deployment to which the event belongs, or "". It is one of the stack with StackID.
	DeploymentID string
	// Describe returns the payload of the event. It is called, in the same transaction, only if a
	// webhook receives the event. org is the name of the organization.
	Describe func(org string) (Description, error)
}

// Description is the payload of an event.
type Description struct {
	Project, Stack, Environment string
	UserID                      string         // id of the user who caused the event; "" if no user did
	Fields                      map[string]any // the members that depend on the kind of the event
}

// Record records an event in the transaction in which it happened, with a delivery for each webhook
// that receives it. If no webhook receives the event, the cost is one query.
func Record(tx *store.Tx, e Event) error {
	kind, inGroup := kindOf(e.Name)
	if kind == "" {
		return nil // such as the end of a rename, which is no event of the public API
	}
	if some, err := tx.HasWebhooks(e.OrgID); err != nil || !some {
		return err
	}
	hooks, err := tx.ActiveWebhooks(e.OrgID, cmp.Or(e.EnvironmentID, e.StackID))
	if err != nil {
		return fmt.Errorf("reading the webhooks that may receive an event: %w", err)
	}
	hooks = slices.DeleteFunc(hooks, func(h store.Webhook) bool { return !receives(h, e.Name, inGroup) })
	if len(hooks) == 0 {
		return nil
	}
	return fault.While(record(tx, e, kind, hooks), "recording the event %s for webhooks", e.Name)
}

// receives reports whether a webhook selects an event. A webhook without filters and groups selects
// everything.
func receives(h store.Webhook, n Name, inGroup string) bool {
	switch {
	case h.OwnerID != "" && slices.Contains(orgOnly, n):
		return false
	case h.Format == FormatDeployments && n == DeploymentQueued:
		// The event is recorded before [store.Tx.EventBehind] knows its origin, so that two stacks
		// could queue each other's deployments forever.
		return false
	}
	return len(h.Filters)+len(h.Groups) == 0 || slices.Contains(h.Groups, inGroup) || slices.Contains(h.Filters, string(n))
}

// chain returns the id of the stack of an event: to which it happened, or whose update caused it.
func (e Event) chain() []string {
	if e.StackID == "" {
		return []string{}
	}
	return []string{e.StackID}
}

func record(tx *store.Tx, e Event, kind string, hooks []store.Webhook) error {
	payload, err := payloadOf(tx, e)
	if err != nil {
		return err
	}
	row := store.WebhookEvent{ID: identity.NewID(), OrgID: e.OrgID, Kind: kind, Payload: payload, Chain: e.chain(), CreatedAt: tx.Now()}
	if e.DeploymentID != "" && slices.ContainsFunc(hooks, func(h store.Webhook) bool { return h.Format == FormatDeployments }) {
		before, err := tx.EventBehind(e.DeploymentID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		row.Chain = append(before.Chain, e.chain()...)
	}
	if err := tx.InsertWebhookEvent(row); err != nil {
		return err
	}
	for _, h := range hooks {
		d := store.WebhookDelivery{
			ID: identity.NewID(), HookID: h.ID, EventID: row.ID, Format: h.Format,
			Status: store.DeliveryPending, DueAt: row.CreatedAt, CreatedAt: row.CreatedAt,
		}
		if err := tx.InsertDelivery(d); err != nil {
			return err
		}
		tx.Notify(Topic, h.ID)
	}
	return nil
}

// person describes a user or an organization. The server has no pictures of them.
type person struct {
	Name        string `json:"name"`
	GithubLogin string `json:"githubLogin"`
	AvatarURL   string `json:"avatarUrl"`
}

func payloadOf(tx *store.Tx, e Event) (string, error) {
	org, err := tx.Organization(e.OrgID)
	if err != nil {
		return "", err
	}
	d, err := e.Describe(org.Name)
	if err != nil {
		return "", err
	}
	u, err := tx.UserOrNone(d.UserID)
	if err != nil {
		return "", err
	}
	owner := person{Name: org.DisplayName, GithubLogin: org.Name}
	by := person{Name: u.Name, GithubLogin: u.Login}
	if u.Login == "" {
		by = owner
	}
	body := map[string]any{"user": by, "organization": owner, "projectName": d.Project}
	if d.Environment != "" {
		body["environmentName"] = d.Environment
	} else {
		body["stackName"] = d.Stack
	}
	maps.Copy(body, d.Fields)
	text, err := json.Marshal(body)
	return string(text), err
}
