package passkey

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/store"
)

// TestPasskeyOfALeaver answers a question with the passkey of a user who was disabled since, and then deleted.
func TestPasskeyOfALeaver(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h, ids := newHouse(t, db), identity.New(db, storetest.Log())
		sessions := signin.New(db, signin.Options{Log: storetest.Log(), Identity: ids})
		must.OK(t, ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }))
		must.Get(ids.AddMember(t.Context(), must.Get(ids.Organizations(t.Context()))(t)[0], "ada", identity.RoleMember))(t)
		a := h.add(h.ada, "key")
		vouch := func(q Question) error {
			id, used, err := h.SignIn(t.Context(), q.State, a.get(q))
			if err == nil {
				_, err = sessions.Vouch(t.Context(), id, signin.WayPasskey, used.Name, "192.0.2.1")
			}
			return err
		}
		must.OK(t, vouch(h.askToSignIn()))
		before := h.askToSignIn()
		must.Get(ids.DisableUser(t.Context(), identity.Operator(), "ada", ""))(t)
		for _, q := range []Question{before, h.askToSignIn()} {
			if err := vouch(q); fault.KindOf(err) == "" || !strings.Contains(err.Error(), "disabled") {
				t.Errorf("the passkey of a disabled user: %v", err)
			}
		}
		must.OK(t, ids.EnableUser(t.Context(), "ada"))
		must.OK(t, vouch(h.askToSignIn())) // the passkey remains until the user is deleted
		must.Get(ids.DeleteUser(t.Context(), identity.Operator(), "ada", ""))(t)
		if err := vouch(h.askToSignIn()); !isRefused(err) {
			t.Errorf("the passkey of a deleted user: %v", err)
		}
	})
}
