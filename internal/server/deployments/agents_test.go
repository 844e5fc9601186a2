package deployments_test

import (
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestWork checks what callers see of the work of a pool's agents: how many jobs all have, but only those jobs whose
// stacks they see.
func TestWork(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b := p.stack("a"), p.stack("b")
		for _, status := range []workflow.Status{workflow.StatusFailed, workflow.StatusSucceeded} {
			p.deploy(a)
			c := p.poll("agent1")
			p.must(p.heartbeat(c, protocol.PhaseRunning))
			p.must(p.result(c, status))
		}
		p.deploy(b)
		p.poll("agent2")
		pool := store.AgentPool{ID: p.pool, OrgID: p.org.ID}
		work, err := p.service.Work(t.Context(), p.user, pool)
		if p.must(err); len(work["agent2"].Running) != 1 || work["agent2"].Active != 1 || work["agent1"].Today != 2 || work["agent1"].Active != 0 {
			t.Errorf("the work of the agents is %+v", work)
		}
		if last := work["agent1"].Last; len(last) != 2 || last[0].Result != store.RunFailed || last[1].Result != store.RunSucceeded || last[1].Number != 2 {
			t.Errorf("the last runs of the agent are %+v, want a failure, then a success", last)
		}
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE organizations SET stack_permission = 0")
			return err
		}))
		blind := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "u", Login: "eve"}, Roles: map[string]string{p.org.ID: identity.RoleMember}}
		work, err = p.service.Work(t.Context(), blind, pool)
		if p.must(err); len(work["agent2"].Running) != 0 || work["agent2"].Active != 1 || len(work["agent1"].Last) != 0 || work["agent1"].Today != 2 {
			t.Errorf("a member without permissions sees the work %+v", work)
		}
	})
}

// TestMoveQueue moves the queue of a pool to another one, where it stays when the default pool changes.
func TestMoveQueue(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b := p.stack("a"), p.stack("b")
		p.deploy(a)
		p.poll("agent1") // the running deployment stays where it is
		p.deploy(a)
		p.deploy(b)
		other, err := p.pools.Create(t.Context(), p.user, p.org, "other", "")
		p.must(err)
		third, err := p.pools.Create(t.Context(), p.user, p.org, "third", "")
		p.must(err)
		list := func(stage store.Stage, pool string) string {
			t.Helper()
			l, err := p.service.Page(t.Context(), p.user, p.org.ID, deployments.Query{Stage: stage, PoolID: pool})
			p.must(err)
			return versions(l)
		}
		member := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "u", Login: "eve"}, Roles: map[string]string{p.org.ID: identity.RoleMember}}
		if err := p.pools.MoveQueue(t.Context(), member, p.org.ID, p.pool, other.Pool.ID); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("a member moves a queue: %v", err)
		}
		for _, to := range []string{p.pool, "missing"} {
			if err := p.pools.MoveQueue(t.Context(), p.user, p.org.ID, p.pool, to); fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("the queue moves to %q: %v", to, err)
			}
		}
		if err := p.pools.MoveQueue(t.Context(), p.user, p.org.ID, "missing", other.Pool.ID); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("the queue of no pool moves: %v", err)
		}
		pulls := p.stack("pulls")
		p.must(p.put(pulls, `{"sourceContext": {"git": {"repoUrl": "https://git.example/a.git", "branch": "main"}}}`))
		p.createFor(pulls, preview(7)) // whose code nobody has reviewed
		first := store.AgentPool{ID: p.pool, OrgID: p.org.ID}
		if n, err := p.pools.QueuedPulls(t.Context(), p.user, first); err != nil || n != 1 {
			t.Errorf("%d deployments of pull requests stay, %v", n, err)
		}
		p.must(p.pools.MoveQueue(t.Context(), p.user, p.org.ID, p.pool, other.Pool.ID))
		if got := list(deployments.StageQueued, p.pool); got != "pulls#1" {
			t.Errorf("the first pool still has the queue %q, want that of pull requests", got)
		}
		p.must(p.pools.SetDefault(t.Context(), p.org.ID, third.Pool.ID))
		if got := list(deployments.StageQueued, other.Pool.ID); got != "a#2 b#1" {
			t.Errorf("the other pool has the queue %q", got)
		}
		if got := list(deployments.StageActive, p.pool); got != "a#1" {
			t.Errorf("the first pool runs %q", got)
		}
	})
}
