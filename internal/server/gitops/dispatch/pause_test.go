package dispatch_test

import (
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// TestRow30Paused pushes while the stack is paused: the deployment is queued, and no agent gets it
// before the stack is resumed.
func TestRow30Paused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, connected())
		st := s.stack("dev", commits)
		s.poll()
		pool, err := pools.New(db, storetest.Log()).Create(t.Context(), s.user, s.org, "pool", "")
		s.must(err)
		agent, err := identity.New(db, storetest.Log()).Authenticate(t.Context(), pool.Token)
		s.must(err)
		claims := func() bool {
			t.Helper()
			a, err := s.queue.Poll(t.Context(), agent, deployments.Poll{Agent: pools.Sighting{AgentID: "agent", SessionID: "session", Slots: 1}, FreeSlots: 1})
			s.must(err)
			return a.Claim != nil
		}
		pause := func(paused bool) {
			t.Helper()
			p, err := s.on(st)
			s.must(err)
			s.must(s.queue.PauseStack(t.Context(), p, st, paused))
		}
		pause(true)
		s.forge.refs["refs/heads/main"] = two
		s.deliver("", push(one, two))
		s.process()
		s.wantDeployed(st, "update 2")
		if claims() {
			t.Fatal("an agent got the deployment of a paused stack")
		}
		s.wantDeployed(st, "update 2")
		pause(false)
		if !claims() {
			t.Error("the deployment does not start after the stack was resumed")
		}
		s.wantDeployed(st, "update 2 accepted")
	})
}
