package webhooks_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
)

// TestWebhooksOfEnvironments checks which events a webhook of an environment may select, and that it does not exist any
// longer than its environment, except to send what is pending.
func TestWebhooksOfEnvironments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		ctx := t.Context()
		e := store.Environment{ID: "e", OrgID: "o", OrgName: "acme", Project: "p", Name: "prod", SealedKey: []byte{1}}
		write(t, db, func(tx *store.Tx) error { return tx.InsertEnvironment(e) })
		s := newService(t, db, &network{})
		owner := webhooks.Owner{Org: store.Organization{ID: "o", Name: "acme"}, Environment: e}
		p := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "u", Login: "ann"}, Roles: map[string]string{"o": identity.RoleAdmin}}
		change := func(name string, groups, filters []string) webhooks.Change {
			address := "https://example.com/"
			return webhooks.Change{Name: &name, DisplayName: &name, URL: &address, Groups: groups, Filters: filters}
		}
		for _, test := range []struct {
			groups, filters []string
			says            string
		}{
			{groups: []string{"stacks"}, says: `the groups are change_requests, environments`},
			{filters: []string{"update_failed"}, says: `webhooks of this environment do not receive the event "update_failed"`},
			{filters: []string{"environment_created"}, says: `only webhooks of organizations`},
			{groups: []string{"environments"}, filters: []string{"environment_tag_created"}, says: `already part of the group`},
		} {
			if _, err := s.Create(ctx, p, owner, change("refused", test.groups, test.filters)); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("groups %v and events %v: %v, want an error with %q", test.groups, test.filters, err, test.says)
			}
		}
		hook := must.Get(s.Create(ctx, p, owner, change("hook", []string{"environments", "change_requests"}, nil)))(t)
		if list := must.Get(s.List(ctx, webhooks.Owner{Org: owner.Org}))(t); len(list) != 0 {
			t.Errorf("the organization has the webhooks %+v", list)
		}
		must.Get(s.Update(ctx, p, owner, "hook", webhooks.Change{DisplayName: &e.Name}))(t)
		must.OK(t, s.Sweep(ctx))
		must.Get(s.Get(ctx, owner, "hook"))(t)
		write(t, db, func(tx *store.Tx) error {
			return webhooks.Record(tx, webhooks.Event{Name: webhooks.RevisionCreated, OrgID: "o", EnvironmentID: "e", Describe: func(string) (webhooks.Description, error) {
				return webhooks.Description{Project: "p", Environment: "prod"}, nil
			}})
		})
		write(t, db, func(tx *store.Tx) error { return tx.DeleteEnvironment("e") })
		if _, err := s.Create(ctx, p, owner, change("late", nil, nil)); err == nil {
			t.Error("a deleted environment got a webhook")
		}
		exists := func() bool {
			_, err := store.Read(ctx, db, func(tx *store.Tx) (store.Webhook, error) { return tx.Webhook(hook.ID) })
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			return err == nil
		}
		if must.OK(t, s.Sweep(ctx)); !exists() {
			t.Error("a webhook with a pending delivery was removed")
		}
		write(t, db, func(tx *store.Tx) error {
			_, err := tx.ExpireDeliveries(hook.ID, time.Now().Add(time.Hour), "it is too late", 10)
			return err
		})
		if must.OK(t, s.Sweep(ctx)); exists() {
			t.Error("the webhook of a deleted environment remains")
		}
	})
}

// TestOlderProgramsKeepWebhooks makes the changes of a program that does not know webhooks of environments, to which they
// look like those of purged stacks.
func TestOlderProgramsKeepWebhooks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				tx.InsertEnvironment(store.Environment{ID: "e", OrgID: "o", Project: "p", Name: "prod", SealedKey: []byte{1}}),
				tx.InsertWebhook(store.Webhook{ID: "h", OrgID: "o", OwnerID: "e", OfEnvironment: true, Name: "h"}),
			)
		})
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec("DELETE FROM webhooks WHERE id = 'h'")
			return err
		})
		if err == nil {
			t.Error("an older program can remove the webhook of an environment")
		}
		h := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (store.Webhook, error) { return tx.Webhook("h") }))(t)
		if !h.OfEnvironment {
			t.Errorf("the webhook is then %+v", h)
		}
		write(t, db, func(tx *store.Tx) error { return tx.DeleteWebhook("h") })
	})
}
