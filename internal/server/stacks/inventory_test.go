package stacks_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// TestInventory lists the resources of a state before, while and after an update changes it.
func TestInventory(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		listed := func() string {
			t.Helper()
			st, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(s.stack.ID) })
			s.must(err)
			l, err := s.service.Inventory(t.Context(), s.user, st)
			s.must(err)
			var names []string
			for _, r := range l.All {
				names = append(names, r.Name)
				raw, err := s.service.Resource(t.Context(), s.user, st, r)
				s.must(err)
				if !strings.Contains(string(raw), r.URN) {
					t.Errorf("the resource %s is %s", r.URN, raw)
				}
			}
			return sorted(strings.Join(names, ", "))
		}
		if got := listed(); got != "" {
			t.Errorf("a stack without a state has %s", got)
		}
		s.importState("a=1", "b=1")
		u := s.start(stacks.KindUpdate, 1)
		for i, want := range []string{"a, b, c", "a, b, c, d"} {
			s.record(u, creates(int64(2*i+1), int64(i+1), string(rune('c'+i))+"=1"))
			if got := listed(); got != want {
				t.Errorf("the running update has %s, want %s", got, want)
			}
		}
		s.finish(u)
		for range 2 {
			if got := listed(); got != "a, b, c, d" {
				t.Errorf("the update has left %s", got)
			}
		}
		if _, err := s.service.Inventory(t.Context(), identity.Principal{}, s.stack); err == nil {
			t.Error("a stranger lists resources")
		}
	})
}
