package pools

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestReturn checks that a session that was silent for so long that another one has begun on another
// server cannot poll again.
func TestReturn(t *testing.T) {
	db := storetest.SQLite(t)
	here, there := New(db, storetest.Log()), New(db, storetest.Log())
	g := &Sighting{PoolID: "p", AgentID: "a", SessionID: "mine", Hold: 25 * time.Second}
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "o", Name: "o"}); err != nil {
			return err
		}
		return tx.InsertPool(store.AgentPool{ID: "p", OrgID: "o", Name: "p"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := here.Seen(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	here.Answered(g)
	mine := here.presence.agents[agentKey{"p", "a"}]
	mine.written, mine.liveUntil = mine.written.Add(-time.Minute), mine.liveUntil.Add(-time.Minute)
	err = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		a, err := tx.Agent("p", "a")
		if err != nil {
			return err
		}
		a.LiveUntil, a.LastSeenAt = a.LiveUntil.Add(-time.Minute), a.LastSeenAt.Add(-time.Minute)
		return tx.SaveAgent(a)
	})
	if err != nil {
		t.Fatal(err)
	}
	twin := *g
	twin.SessionID = "twin"
	if err := there.Seen(t.Context(), &twin); err != nil {
		t.Fatalf("a new session on another server: %v", err)
	}
	if err := here.Seen(t.Context(), g); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "its session ends at ") {
		t.Errorf("a poll of the earlier session: %v, want a conflict", err)
	}
}

// TestRenewal checks that the presence of a known session is written later, that the end of the
// session is still recorded, and that a session whose row has passed to another one is rejected.
func TestRenewal(t *testing.T) {
	db := storetest.SQLite(t)
	s := New(db, storetest.Log())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "o", Name: "o"}); err != nil {
			return err
		}
		return tx.InsertPool(store.AgentPool{ID: "p", OrgID: "o", Name: "p"})
	}))
	g := &Sighting{PoolID: "p", AgentID: "a", SessionID: "mine", Hold: 25 * time.Second}
	row := func() (a store.PoolAgent) {
		t.Helper()
		must(db.Read(t.Context(), func(tx *store.Tx) (err error) {
			a, err = tx.Agent("p", "a")
			return err
		}))
		return a
	}
	// again makes a poll that begins when the row is old.
	again := func() {
		t.Helper()
		s.Answered(g)
		s.presence.mu.Lock()
		s.presence.agents[agentKey{"p", "a"}].written = time.Now().Add(-writeEvery)
		s.presence.mu.Unlock()
		must(s.Seen(t.Context(), g))
	}
	must(s.Seen(t.Context(), g))
	first := row()
	first.LastSeenAt, first.LiveUntil = first.LastSeenAt.Add(-time.Hour), first.LiveUntil.Add(-time.Hour) // the clock may go back a little
	must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.SaveAgent(first) }))
	first = row()
	again()
	if row() != first {
		t.Error("a poll of a known session has written its row")
	}
	must(s.renew(t.Context()))
	second := row()
	if !second.LastSeenAt.After(first.LastSeenAt) || !second.LiveUntil.After(first.LiveUntil) {
		t.Errorf("after the renewal, the row is %+v, before %+v", second, first)
	}
	must(s.renew(t.Context()))
	if row() != second {
		t.Error("a renewal without a poll has written the row")
	}

	again()
	s.Gone(t.Context(), g)
	must(s.renew(t.Context()))
	if !row().LiveUntil.IsZero() {
		t.Error("the session has ended, but its row is alive")
	}

	must(s.Seen(t.Context(), g))
	again()
	must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.SaveAgent(store.PoolAgent{
			PoolID: "p", AgentID: "a", SessionID: "other", LiveUntil: time.Now().Add(time.Minute), LastSeenAt: time.Now(),
		})
	}))
	must(s.renew(t.Context()))
	if row().SessionID != "other" {
		t.Error("a renewal has taken the row of another session")
	}
	s.Answered(g)
	if err := s.Seen(t.Context(), g); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("a poll of a session without a row: %v, want a conflict", err)
	}
}
