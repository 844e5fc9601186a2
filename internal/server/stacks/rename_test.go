package stacks_test

import (
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

// TestRenameKeepsTheEndOfAnUpdate ends an update that runs when a rename or a transfer begins, before the
// first write of that. What the update has stored last must remain.
func TestRenameKeepsTheEndOfAnUpdate(t *testing.T) {
	for name, move := range map[string]func(s *stackTest, st store.Stack) error{
		"rename": func(s *stackTest, st store.Stack) error {
			_, err := s.service.Rename(t.Context(), s.user, st, "prod", "")
			return err
		},
		"transfer": func(s *stackTest, st store.Stack) error {
			ids := identity.New(s.db, storetest.Log())
			to, err := ids.Organization(t.Context(), s.user, "other")
			s.must(err)
			return s.service.Transfer(t.Context(), s.user, st, to)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var once func()
			dsn := storetest.PostgresDSN(t)
			db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), Before: func(statement string) {
				mu.Lock()
				run := once
				if run != nil && statement == "BEGIN" {
					once = nil
				}
				mu.Unlock()
				if run != nil && statement == "BEGIN" {
					run()
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
			s := newStackTest(t, db)
			s.joinOther()
			other := s.replica(storetest.PostgresAt(t, dsn, store.Timeouts{}))
			u := s.start(stacks.KindUpdate, 0)
			put := func(names ...string) {
				var resources []string
				for _, name := range names {
					resources = append(resources, resource(name))
				}
				state, err := states.Parse([]byte(`{"version":3,"deployment":{"resources":[`+strings.Join(resources, ",")+`]}}`), nil)
				s.must(err)
				s.must(other.Checkpoint(t.Context(), u, state))
			}
			put("a")
			st := s.reloaded()
			mu.Lock()
			once = func() {
				put("a", "b")
				s.must(other.Complete(t.Context(), u, stacks.Succeeded))
			}
			mu.Unlock()
			if err := move(s, st); err != nil {
				t.Logf("refused: %v", err)
			}
			s.shows(0, "a= b=")
		})
	}
}

// joinOther makes the user an administrator of a second organization, "other".
func (s *stackTest) joinOther() {
	s.t.Helper()
	ids := identity.New(s.db, storetest.Log())
	_, err := ids.CreateOrganization(s.t.Context(), "other", identity.AdminLogin)
	s.must(err)
	token, _, err := ids.CreateToken(s.t.Context(), identity.NewTokenSpec{Kind: store.PersonalToken, Description: "d", UserID: s.user.User.ID})
	s.must(err)
	s.user, err = ids.Authenticate(s.t.Context(), token)
	s.must(err)
}
