package webhooks

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Owner is what has a webhook: a stack, an environment, or the organization if both are zero.
type Owner struct {
	Org         store.Organization
	Stack       store.Stack
	Environment store.Environment
}

func (o Owner) id() string { return cmp.Or(o.Environment.ID, o.Stack.ID) }

// Webhook is a webhook without its secret.
type Webhook struct {
	store.Webhook
	HasSecret bool
	// SecretDigest is the hexadecimal SHA-256 of the secret, by which clients detect changes; "" if
	// the webhook has no secret, or a lost one.
	SecretDigest string
	// SecretLost means that the server cannot decrypt the secret, for example because its master key was lost, and
	// that deliveries fail until a change sets the secret again or removes it.
	SecretLost bool
}

// Change contains the new values of a webhook. A nil member keeps the current value.
type Change struct {
	Name, DisplayName, URL, Format *string
	Active                         *bool
	// Filters and Groups are set together: if one is not nil, the other counts as empty.
	Filters, Groups []string
	Secret          *string // "" removes the secret
}

// Limits of webhooks.
const (
	maxHooks  = 50 // of a stack, an environment or an organization
	maxText   = 200
	maxURL    = 2000
	maxSecret = 1000
)

// removeSecret is the secret with which clients remove a webhook's secret.
const removeSecret = "__remove-secret"

// List returns the webhooks of an owner, by name.
func (s *Service) List(ctx context.Context, o Owner) ([]Webhook, error) {
	rows, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Webhook, error) { return tx.Webhooks(o.Org.ID, o.id()) })
	if err != nil {
		return nil, fmt.Errorf("listing webhooks: %w", err)
	}
	out := make([]Webhook, 0, len(rows))
	for _, row := range rows {
		h, err := s.reveal(ctx, row)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// Get returns a webhook of an owner.
func (s *Service) Get(ctx context.Context, o Owner, name string) (Webhook, error) {
	row, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Webhook, error) { return find(tx, o, name) })
	if err != nil {
		return Webhook{}, err
	}
	return s.reveal(ctx, row)
}

func find(tx *store.Tx, o Owner, name string) (store.Webhook, error) {
	h, err := tx.WebhookByName(o.Org.ID, o.id(), name)
	return h, store.IfMissing(err, fault.NotFound("webhook %q does not exist; use the ID that the list of webhooks shows", name))
}

// secretOf returns a webhook's secret, or "".
func (s *Service) secretOf(ctx context.Context, row store.Webhook) (string, error) {
	if len(row.Secret) == 0 {
		return "", nil
	}
	plain, err := s.opts.Secrets.Decrypt(ctx, sealedFor(row.ID), row.Secret)
	return string(plain), fault.While(err, "decrypting the secret of a webhook")
}

func (s *Service) reveal(ctx context.Context, row store.Webhook) (Webhook, error) {
	h := Webhook{Webhook: row}
	secret, err := s.secretOf(ctx, row)
	switch {
	case fault.KindOf(err) == fault.KindInvalid:
		h.HasSecret, h.SecretLost = true, true
		return h, nil
	case err == nil && secret != "":
		sum := sha256.Sum256([]byte(secret))
		h.HasSecret, h.SecretDigest = true, hex.EncodeToString(sum[:])
	}
	return h, err
}

// Create adds a webhook. It generates a name if the change has none.
func (s *Service) Create(ctx context.Context, p identity.Principal, o Owner, c Change) (Webhook, error) {
	if c.Name == nil || *c.Name == "" {
		var raw [4]byte
		rand.Read(raw[:])
		name := hex.EncodeToString(raw[:])
		c.Name = &name
	}
	now := time.Now().UTC()
	row := store.Webhook{
		ID: identity.NewID(), OrgID: o.Org.ID, OwnerID: o.id(), OfEnvironment: o.Environment.ID != "", Format: FormatRaw, Active: true, CreatedAt: now,
	}
	if err := s.apply(ctx, p, o, &row, c, now); err != nil {
		return Webhook{}, err
	}
	owners := scope.Organization(o.Org.ID)
	if o.Stack.ID != "" {
		owners = owners.And(o.Stack.Scope().Shared())
	}
	err := s.db.Write(ctx, owners, func(tx *store.Tx) error {
		if row.OfEnvironment {
			if _, err := tx.Environment(row.OwnerID); err != nil {
				return store.IfMissing(err, p.NoEnvironment(o.Org.Name, o.Environment.Project, o.Environment.Name))
			}
		}
		list, err := tx.Webhooks(o.Org.ID, o.id())
		if err != nil {
			return err
		}
		if len(list) >= maxHooks {
			return fault.Invalid("at most %d webhooks are possible here; delete one first", maxHooks)
		}
		if err := s.checkTarget(tx, p, o, row); err != nil {
			return err
		}
		if err := tx.InsertWebhook(row); err != nil {
			return err
		}
		return recordChange(ctx, tx, audit.WebhookCreated, row, c)
	})
	if err != nil {
		return Webhook{}, conflict(err, row.Name)
	}
	return s.reveal(ctx, row)
}

// Update changes a webhook. From then on, the webhook acts on behalf of p.
func (s *Service) Update(ctx context.Context, p identity.Principal, o Owner, name string, c Change) (Webhook, error) {
	var row store.Webhook
	err := s.db.Write(ctx, scope.Organization(o.Org.ID), func(tx *store.Tx) (err error) {
		if row, err = find(tx, o, name); err != nil {
			return err
		}
		if err := s.apply(ctx, p, o, &row, c, tx.Now()); err != nil {
			return err
		}
		if err := s.checkTarget(tx, p, o, row); err != nil {
			return err
		}
		tx.Notify(Topic, row.ID)
		if err := tx.SaveWebhook(row); err != nil {
			return err
		}
		return recordChange(ctx, tx, audit.WebhookChanged, row, c)
	})
	if err != nil {
		return Webhook{}, conflict(err, row.Name)
	}
	return s.reveal(ctx, row)
}

// recordChange records a change of a webhook. URLs often contain secrets, so only the host counts.
func recordChange(ctx context.Context, tx *store.Tx, action audit.Action, row store.Webhook, c Change) error {
	detail := map[string]any{"format": row.Format, "active": row.Active}
	if row.OwnerID != "" {
		detail[string(ownerKindOf(row))] = row.OwnerID
	}
	if u, err := url.Parse(row.URL); err == nil {
		detail["host"] = u.Host
	}
	if c.Secret != nil {
		detail["secret"] = audit.Changed
	}
	return audit.Record(ctx, tx, audit.Entry{OrgID: row.OrgID, Action: action, Subject: audit.Subject{Kind: "webhook", ID: row.ID, Name: row.Name}, Detail: detail})
}

func conflict(err error, name string) error {
	return store.IfConflict(err, fault.Conflict("Webhook with name %s already exists.", name))
}

// Delete removes a webhook and its deliveries.
func (s *Service) Delete(ctx context.Context, o Owner, name string) error {
	var row store.Webhook
	err := s.db.Write(ctx, scope.Organization(o.Org.ID), func(tx *store.Tx) (err error) {
		if row, err = find(tx, o, name); err != nil {
			return err
		}
		row.Active = false
		if err := tx.SaveWebhook(row); err != nil {
			return err
		}
		return recordChange(ctx, tx, audit.WebhookDeleted, row, Change{})
	})
	if err != nil {
		return err
	}
	return s.remove(ctx, o.Org.ID, row.ID)
}

// remove removes a webhook, if it exists, and before it its deliveries, which can be many.
func (s *Service) remove(ctx context.Context, orgID, id string) error {
	err := s.db.WriteInPieces(ctx, scope.Webhook(orgID, id), func(tx *store.Tx, limit int) (int64, error) { return tx.DeleteDeliveries(id, limit) })
	if err != nil {
		return err
	}
	owners := scope.Organization(orgID).And(scope.Webhook(orgID, id))
	err = s.db.Write(ctx, owners, func(tx *store.Tx) error { return tx.DeleteWebhook(id) })
	return store.IgnoreMissing(err)
}

// apply changes a webhook in memory and checks the result.
func (s *Service) apply(ctx context.Context, p identity.Principal, o Owner, row *store.Webhook, c Change, now time.Time) error {
	set := func(field, value *string) {
		if value != nil {
			*field = *value
		}
	}
	before := *row
	set(&row.Name, c.Name)
	set(&row.DisplayName, c.DisplayName)
	set(&row.URL, c.URL)
	set(&row.Format, c.Format)
	if c.Active != nil {
		row.Active = *c.Active
	}
	if c.Filters != nil || c.Groups != nil {
		row.Filters, row.Groups = compact(c.Filters), compact(c.Groups)
	}
	if err := check(o, *row); err != nil {
		return err
	}
	// The administrator can forbid an address later. Other fields of its webhooks can still change.
	if row.Format != FormatDeployments && (row.URL != before.URL || before.Format == FormatDeployments) {
		if err := s.opts.Receivers.CheckReceiver(row.URL); err != nil {
			return fault.Invalid("'payloadUrl' %s", err)
		}
	}
	row.Actor, row.ModifiedAt = string(p.Actor()), now
	if c.Secret == nil {
		if len(row.Secret) > 0 && row.URL != before.URL {
			return fault.Invalid("'payloadUrl' changes: enter the secret again, because the stored one is only for the previous receiver")
		}
		return nil
	}
	if len(*c.Secret) > maxSecret {
		return fault.Invalid("the secret is longer than %d bytes", maxSecret)
	}
	if row.Secret = nil; *c.Secret == "" || *c.Secret == removeSecret {
		return nil
	}
	var err error
	row.Secret, err = s.opts.Secrets.Encrypt(ctx, sealedFor(row.ID), []byte(*c.Secret))
	return err
}

// compact returns a list without repetitions, in its order: clients compare what they read with what
// they wrote.
func compact(list []string) []string {
	out := []string{}
	for _, name := range list {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// check returns an error if a webhook's fields are invalid, except for the address of a receiver.
func check(o Owner, h store.Webhook) error {
	switch {
	case !workflow.IsName(h.Name) || h.Name == "." || h.Name == "..":
		return fault.Invalid("the name of a webhook has 1 to 100 letters, digits, '-', '_' and '.'; the display name may have others")
	case h.DisplayName == "" || len(h.DisplayName) > maxText:
		return fault.Invalid("'displayName' must have 1 to %d bytes", maxText)
	case h.URL == "" || len(h.URL) > maxURL:
		return fault.Invalid("'payloadUrl' must have 1 to %d bytes", maxURL)
	}
	switch h.Format {
	case FormatRaw, FormatSlack, FormatTeams:
	case FormatDeployments:
		if h.OwnerID == "" {
			return fault.Invalid("'pulumi_deployments' format can only be used on stack or environment webhooks")
		}
		if project, stack, ok := target(h); !ok {
			return fault.Invalid("with the format pulumi_deployments, 'payloadUrl' names a stack of the same organization, as in project/stack")
		} else if project == o.Stack.Project && stack == o.Stack.Name {
			return fault.Invalid("a webhook cannot deploy the stack whose events it receives: each update would start the next")
		}
	default:
		return fault.Invalid("'format' must be raw, slack, ms_teams or pulumi_deployments")
	}
	return checkEvents(h)
}

// checkEvents returns an error if a webhook's filters or groups are invalid.
func checkEvents(h store.Webhook) error {
	owner := ownerKindOf(h)
	for _, name := range h.Groups {
		if g, ok := groups[name]; !ok || !owner.mayHave(g) {
			return fault.Invalid("%q is not a group of events here; the groups are %s", name, strings.Join(groupNames(owner), ", "))
		}
	}
	for _, name := range h.Filters {
		kind, inGroup := kindOf(Name(name))
		switch {
		case kind == "":
			return fault.Invalid("%q is not an event", name)
		case owner != ofOrganization && slices.Contains(orgOnly, Name(name)):
			return fault.Invalid("only webhooks of organizations receive the event %q", name)
		case !owner.mayHave(groups[inGroup]):
			return fault.Invalid("the webhooks of this %s do not receive the event %q", owner, name)
		case slices.Contains(h.Groups, inGroup):
			return fault.Invalid("the event %q is already part of the group %q; remove one of them", name, inGroup)
		}
	}
	return nil
}

// target returns the stack that a webhook deploys.
func target(h store.Webhook) (project, stack string, ok bool) {
	project, stack, ok = strings.Cut(h.URL, "/")
	return project, stack, ok && workflow.IsName(project) && workflow.IsName(stack)
}

// checkTarget returns an error unless p may deploy the stack that a webhook deploys, if it does.
func (s *Service) checkTarget(tx *store.Tx, p identity.Principal, o Owner, h store.Webhook) error {
	if h.Format != FormatDeployments {
		return nil
	}
	project, name, _ := target(h)
	st, err := tx.StackByName(o.Org.Name, project, name)
	if err != nil {
		return store.IfMissing(err, p.NoStack(o.Org.Name, project, name))
	}
	if p, err = p.On(tx, st); err != nil {
		return err
	}
	return p.Check(st, identity.Operate)
}
