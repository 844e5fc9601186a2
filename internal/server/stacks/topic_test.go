package stacks_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// TestStacksAreAnnounced announces each change of the stacks of an organization, so that open pages follow it.
func TestStacksAreAnnounced(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		ids := identity.New(db, storetest.Log())
		acme, err := ids.Organization(t.Context(), s.user, "acme")
		s.must(err)
		heard := make(chan string, 100)
		defer db.Subscribe(stacks.Topic, func(payload string) { heard <- payload })()
		waiting := map[string]bool{} // one transaction announces in any order
		announced := func(what string, st store.Stack) {
			t.Helper()
			want := st.OrgID + "/" + st.ID
			for patience := time.After(time.Minute); !waiting[want]; {
				select {
				case got := <-heard:
					waiting[got] = true
				case <-patience:
					t.Fatalf("nothing announces the %s stack", what)
				}
			}
			delete(waiting, want)
		}
		made, err := s.service.Create(t.Context(), s.user, stacks.NewStack{Org: acme, Project: "proj", Name: "two"})
		s.must(err)
		announced("created", made)
		_, err = s.service.Rename(t.Context(), s.user, made, "three", "")
		s.must(err)
		announced("renamed", made)
		s.joinOther()
		other, err := ids.Organization(t.Context(), s.user, "other")
		s.must(err)
		made.Name, made.Version = "three", 1
		s.must(s.service.Transfer(t.Context(), s.user, made, other))
		announced("leaving", made)
		made.OrgID, made.OrgName, made.Version = other.ID, other.Name, 2
		announced("arriving", made)
		s.must(s.service.Delete(t.Context(), s.user, made, true))
		announced("deleted", made)
	})
}
