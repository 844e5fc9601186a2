package dispatch_test

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs/integrations"
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
			a, err := s.queue.Poll(t.Context(), deployments.Poll{Agent: pools.Sighting{AgentID: "agent", SessionID: "session", Slots: 1}, FreeSlots: 1}.From(agent))
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

// TestPreviewPool checks that code that was not reviewed runs in the pool that the integration names,
// and reviewed code in that of the stack.
func TestPreviewPool(t *testing.T) {
	db := storetest.SQLite(t)
	s := newSite(t, db, connected())
	all := pools.New(db, storetest.Log())
	usual, err := all.Create(t.Context(), s.user, s.org, "usual", "")
	s.must(err)
	apart, err := all.Create(t.Context(), s.user, s.org, "apart", "")
	s.must(err)
	_, _, err = s.forges.Update(t.Context(), s.org, s.id, integrations.Change{Settings: func(set *integrations.Settings) error {
		set.PreviewPool = apart.Pool.ID
		return nil
	}})
	s.must(err)
	st := s.stack("dev", commits+","+previews)
	s.poll()
	s.put(open(7, two))
	s.forge.refs["refs/heads/main"] = three
	s.deliver("", push(one, three))
	s.process()
	s.wantDeployed(st, "preview 2", "update 3")
	for version, want := range map[int64]string{1: apart.Pool.ID, 2: usual.Pool.ID} {
		s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
			d, err := tx.DeploymentByVersion(st.ID, version)
			job, err2 := tx.JobOfDeployment(d.ID)
			if job.PoolID != want {
				t.Errorf("the %s waits in the pool %q, want %q", d.Operation, job.PoolID, want)
			}
			return errors.Join(err, err2)
		}))
	}
}
