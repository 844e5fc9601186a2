package webhooks_test

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

// TestEditOfForbiddenReceiver checks that a webhook whose receiver the administrator no longer
// permits can be switched off, but not given another such receiver.
func TestEditOfForbiddenReceiver(t *testing.T) {
	db := storetest.SQLite(t)
	fixture(t, db)
	n := &network{}
	s := newService(t, db, n)
	o := webhooks.Owner{Org: store.Organization{ID: "o", Name: "acme"}, Stack: store.Stack{ID: "s", OrgID: "o", Project: "p", Name: "s"}}
	p := identity.Principal{User: store.User{ID: "u", Login: "ann"}}
	name, address, other, off := "hook", "http://10.1.2.3/", "http://10.1.2.4/", false
	if _, err := s.Create(t.Context(), p, o, webhooks.Change{Name: &name, DisplayName: &name, URL: &address}); err != nil {
		t.Fatal(err)
	}

	n.forbidden = errors.New("is forbidden")
	second := "second"
	if _, err := s.Create(t.Context(), p, o, webhooks.Change{Name: &second, DisplayName: &second, URL: &address}); err == nil {
		t.Error("a new webhook has a forbidden receiver")
	}
	if _, err := s.Update(t.Context(), p, o, name, webhooks.Change{URL: &other}); err == nil {
		t.Error("an edit chose a forbidden receiver")
	}
	slack := webhooks.FormatSlack
	got, err := s.Update(t.Context(), p, o, name, webhooks.Change{URL: &address, Format: &slack, Active: &off})
	if err != nil || got.Active || got.URL != address {
		t.Errorf("switching the webhook off: %+v, %v", got, err)
	}

	row := store.Webhook{ID: "d", OrgID: "o", OwnerID: "s", Name: "d", DisplayName: "d", URL: "p/s2", Format: webhooks.FormatDeployments}
	write(t, db, func(tx *store.Tx) error { return tx.InsertWebhook(row) })
	if _, err := s.Update(t.Context(), p, o, "d", webhooks.Change{Format: &slack}); err == nil {
		t.Error("the name of a stack became a receiver's URL unchecked")
	}
}

// TestSecretStaysWithItsReceiver checks that an edit does not sign deliveries to another receiver with
// the stored secret.
func TestSecretStaysWithItsReceiver(t *testing.T) {
	db := storetest.SQLite(t)
	fixture(t, db)
	s := newService(t, db, &network{})
	o := webhooks.Owner{Org: store.Organization{ID: "o", Name: "acme"}, Stack: store.Stack{ID: "s", OrgID: "o", Project: "p", Name: "s"}}
	p := identity.Principal{User: store.User{ID: "u", Login: "ann"}}
	name, address, other, secret := "hook", "https://a.example/", "https://b.example/", "hunter2"
	if _, err := s.Create(t.Context(), p, o, webhooks.Change{Name: &name, DisplayName: &name, URL: &address, Secret: &secret}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), p, o, name, webhooks.Change{URL: &other}); err == nil {
		t.Error("the stored secret was kept for another receiver")
	}
	if got, err := s.Update(t.Context(), p, o, name, webhooks.Change{URL: &address, DisplayName: &secret}); err != nil || !got.HasSecret {
		t.Errorf("an edit with the same address = %+v, %v", got, err)
	}
	if got, err := s.Update(t.Context(), p, o, name, webhooks.Change{URL: &other, Secret: &secret}); err != nil || got.URL != other {
		t.Errorf("an edit with the secret = %+v, %v", got, err)
	}
}

// TestLostSecret checks that a webhook whose secret the server cannot decrypt is listed, and can be changed.
func TestLostSecret(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		s := newService(t, db, &network{})
		o := webhooks.Owner{Org: store.Organization{ID: "o", Name: "acme"}}
		p := identity.Principal{User: store.User{ID: "u", Login: "ann"}}
		lost := store.Webhook{ID: "h", OrgID: "o", Name: "lost", DisplayName: "lost", URL: "https://a.example/", Format: webhooks.FormatRaw, Secret: []byte("of another key")}
		write(t, db, func(tx *store.Tx) error { return tx.InsertWebhook(lost) })
		check := func(what string, h webhooks.Webhook, err error, want bool) {
			t.Helper()
			if err != nil || !h.HasSecret || h.SecretLost != want || (h.SecretDigest == "") != want {
				t.Errorf("%s: %+v, %v", what, h, err)
			}
		}
		list, err := s.List(t.Context(), o)
		if err != nil || len(list) != 1 {
			t.Fatalf("the list: %+v, %v", list, err)
		}
		check("the list", list[0], nil, true)
		h, err := s.Get(t.Context(), o, "lost")
		check("the webhook", h, err, true)
		name, secret := "renamed", "hunter2"
		h, err = s.Update(t.Context(), p, o, "lost", webhooks.Change{DisplayName: &name})
		check("a change of another field", h, err, true)
		h, err = s.Update(t.Context(), p, o, "lost", webhooks.Change{Secret: &secret})
		check("a new secret", h, err, false)
	})
}
