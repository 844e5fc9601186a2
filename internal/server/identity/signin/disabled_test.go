package signin

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// TestDisabledUsers tries every way to sign in, and to continue.
func TestDisabledUsers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		ids := identity.New(db, storetest.Log())
		cookie, _ := h.open(t, h.ada)
		other, _ := h.open(t, h.admin)
		link := must.Get(h.MakeLink(t.Context(), h.ada))(t)
		proof := must.Get(h.Vouch(t.Context(), h.ada.ID, WayPasskey, "key", "192.0.2.1"))(t) // before ada is disabled
		ended := make(chan string, 10)
		defer db.Subscribe(identity.SessionTopic, func(payload string) { ended <- payload })()
		must.Get(ids.DisableUser(t.Context(), identity.Operator(), "ada", ""))(t)
		if got := <-ended; got != h.ada.ID && got != "" {
			t.Errorf("notified of %q", got)
		}
		if h.resumes(t, cookie) || !h.resumes(t, other) {
			t.Error("the session continues, or that of another user ended")
		}
		if _, err := h.UseToken(t.Context(), h.adaToken, "192.0.2.1"); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("the token: %v", err)
		}
		if _, err := h.UseLink(t.Context(), link, "192.0.2.2"); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("the link: %v", err)
		}
		for _, way := range []string{WayPasskey, WayProvider} {
			if _, err := h.Vouch(t.Context(), h.ada.ID, way, "x", "192.0.2.3"); err != errDisabled { //nolint:errorlint // it is returned as it is
				t.Errorf("%s: %v", way, err)
			}
		}
		if _, _, err := h.Open(t.Context(), proof, "192.0.2.4", ""); err != errDisabled { //nolint:errorlint // as above
			t.Errorf("a session for an earlier proof: %v", err)
		}
		if _, err := h.MakeLink(t.Context(), h.ada); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "user enable ada") {
			t.Errorf("a new link: %v", err)
		}
		must.OK(t, ids.EnableUser(t.Context(), "ada"))
		if h.resumes(t, cookie) {
			t.Error("the session returned")
		}
		if _, err := h.UseLink(t.Context(), link, "192.0.2.5"); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("the old link works again: %v", err)
		}
		proof = must.Get(h.UseLink(t.Context(), must.Get(h.MakeLink(t.Context(), h.ada))(t), "192.0.2.6"))(t)
		cookie, _, err := h.Open(t.Context(), proof, "192.0.2.6", "")
		if err != nil || !h.resumes(t, cookie) {
			t.Errorf("after user enable: %v", err)
		}
	})
}

func TestEndAll(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		first, _ := h.open(t, h.ada)
		second, _ := h.open(t, h.ada)
		other, _ := h.open(t, h.admin)
		if n, err := h.EndAll(t.Context(), h.ada); n != 2 || err != nil {
			t.Errorf("ended %d, %v", n, err)
		}
		if h.resumes(t, first) || h.resumes(t, second) || !h.resumes(t, other) {
			t.Error("a session continues, or that of another user ended")
		}
		if log := h.entries(t); !strings.Contains(log[len(log)-1], EndedByHost) {
			t.Errorf("the audit log ends with %q", log[len(log)-1])
		}
		if n, err := h.EndAll(t.Context(), h.ada); n != 0 || err != nil {
			t.Errorf("without sessions: %d, %v", n, err)
		}
	})
}
