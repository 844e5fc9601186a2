package pools

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestAgentsOfAPoolAreBounded checks that the holder of a pool's token cannot make the server remember any
// number of agents, and that agents which come and go do not fill a pool.
func TestAgentsOfAPoolAreBounded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ids := identity.New(db, storetest.Log())
		var token string
		must(t, ids.Bootstrap(t.Context(), "acme", func(text string) error { token = text; return nil }))
		user, err := ids.Authenticate(t.Context(), token)
		must(t, err)
		org, err := ids.Organization(t.Context(), user, "acme")
		must(t, err)
		s := New(db, storetest.Log())
		made, err := s.Create(t.Context(), user, org, "p", "")
		must(t, err)
		s.maxAgents = 3
		agent := func(id string) *Sighting {
			return &Sighting{OrgID: org.ID, PoolID: made.Pool.ID, AgentID: id, SessionID: "of " + id, Hostname: id}
		}
		seen := func(id string) {
			t.Helper()
			if err := s.Seen(t.Context(), agent(id)); err != nil {
				t.Errorf("agent %s: %v", id, err)
			}
		}
		refused := func(id string) {
			t.Helper()
			err := s.Seen(t.Context(), agent(id))
			if fault.KindOf(err) != fault.KindUnavailable || !strings.Contains(err.Error(), "3 connected agents") {
				t.Errorf("agent %s: %v, want a refusal that names the limit", id, err)
			}
		}
		rows := func() (names []string) {
			t.Helper()
			list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.PoolAgent, error) { return tx.Agents(made.Pool.ID) })
			must(t, err)
			for _, a := range list {
				names = append(names, a.AgentID)
			}
			return names
		}
		for i := range 20 { // autoscaled agents run for a moment
			id := fmt.Sprint("gone", i)
			seen(id)
			s.Gone(t.Context(), agent(id))
		}
		if n := len(rows()); n > 3 {
			t.Errorf("the pool has %d agents, want at most 3", n)
		}
		for _, id := range []string{"a", "b", "c"} {
			seen(id)
		}
		refused("d")
		s.Answered(agent("a"))
		seen("a") // agents of the pool are not concerned
		s.Gone(t.Context(), agent("c"))
		seen("d")
		refused("c") // which the server has forgotten meanwhile
		if got := fmt.Sprint(rows()); got != "[a b d]" {
			t.Errorf("the pool has the agents %s, want [a b d]", got)
		}
	})
}

// TestSilentAgentsMakeRoom checks that agents whose connections broke unnoticed do not fill a pool.
func TestSilentAgentsMakeRoom(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write := func(change func(tx *store.Tx) error) {
			t.Helper()
			must(t, db.Write(t.Context(), scope.Server(), change))
		}
		write(func(tx *store.Tx) error {
			if err := tx.InsertOrganization(store.Organization{ID: "o", Name: "acme"}); err != nil {
				return err
			}
			if err := tx.InsertPool(store.AgentPool{ID: "p", OrgID: "o", Name: "p"}); err != nil {
				return err
			}
			for _, a := range []store.PoolAgent{
				{AgentID: "online", LastSeenAt: tx.Now().Add(-Silence / 2)},
				{AgentID: "pausing", LastSeenAt: tx.Now().Add(-4 * Silence), Every: 3 * Silence},
				{AgentID: "silent", LastSeenAt: tx.Now().Add(-2 * Silence)},
				{AgentID: "longer silent", LastSeenAt: tx.Now().Add(-3 * Silence)},
			} {
				a.PoolID, a.LiveUntil = "p", a.LastSeenAt
				if err := tx.SaveAgent(a); err != nil {
					return err
				}
			}
			return nil
		})
		for _, want := range []string{"[online pausing silent]", "[online pausing]", "[online pausing]"} {
			var got []string
			write(func(tx *store.Tx) error {
				got = nil
				if _, err := tx.ForgetOffline("p", Silence, 1); err != nil {
					return err
				}
				list, err := tx.Agents("p")
				for _, a := range list {
					got = append(got, a.AgentID)
				}
				return err
			})
			if fmt.Sprint(got) != want {
				t.Errorf("the pool has the agents %v, want %s", got, want)
			}
		}
	})
}
