package deployments_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestBuiltInPool checks the pool and the tokens of the built-in runners, and that a stack moves
// between pools in both directions while its deployments run.
func TestBuiltInPool(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		ids := identity.New(db, storetest.Log())
		theirs, mine := p.pool, p.agent
		p.must(p.pools.SetDefault(t.Context(), p.org.ID, ""))
		st := p.stack("dev")
		waiting := p.deploy(st) // has no pool yet

		first, err := p.pools.BuiltIn(t.Context(), p.org.ID, "host", "1")
		p.must(err)
		other, err := p.pools.BuiltIn(t.Context(), p.org.ID, "host", "2")
		p.must(err)
		again, err := p.pools.BuiltIn(t.Context(), p.org.ID, "host", "1")
		p.must(err)
		if other.Pool.ID != first.Pool.ID || again.Pool.ID != first.Pool.ID || first.Pool.Name != "built-in" {
			t.Errorf("the pools are %+v, %+v, %+v", first.Pool, other.Pool, again.Pool)
		}
		if _, err := ids.Authenticate(t.Context(), first.Token); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("the first token is still valid: %v", err)
		}
		_, err = ids.Authenticate(t.Context(), other.Token)
		p.must(err)
		builtIn, err := ids.Authenticate(t.Context(), again.Token)
		p.must(err)
		if _, def, err := p.pools.List(t.Context(), p.org.ID); err != nil || def != first.Pool.ID {
			t.Errorf("the default pool is %q, %v, want the built-in pool", def, err)
		}

		take := func(as identity.Principal, agent, want string) *deployments.Claim {
			t.Helper()
			answer, err := p.service.Poll(t.Context(), p.request(agent, 0).From(as))
			c := answer.Claim
			p.must(err)
			if c == nil || c.Job.DeploymentID != want {
				t.Fatalf("%s got %+v, want deployment %s", agent, c, want)
			}
			p.must(p.heartbeat(c, "starting"))
			return c
		}
		jobs := func(host string, want int64) {
			t.Helper()
			if n, err := p.pools.BuiltInJobs(t.Context(), host); err != nil || n != want {
				t.Errorf("%s runs %d jobs of the built-in pool, %v, want %d", host, n, err, want)
			}
		}
		jobs("built-in", 0)
		one := take(builtIn, "built-in", waiting)
		jobs("built-in", 1)
		jobs("other", 0)
		_, err = p.service.ReplaceSettings(t.Context(), p.user, st, []byte(`{"agentPoolID":"`+theirs+`"}`), "api")
		p.must(err)
		second := p.deploy(st)
		p.must(p.result(one, workflow.StatusSucceeded))
		jobs("built-in", 0)
		two := take(mine, "mine", second)
		jobs("mine", 0) // another pool
		_, err = p.service.ReplaceSettings(t.Context(), p.user, st, []byte(`{"agentPoolID":""}`), "api")
		p.must(err)
		third := p.deploy(st)
		p.must(p.result(two, workflow.StatusSucceeded))
		take(builtIn, "built-in", third)

		p.must(p.pools.SetDefault(t.Context(), p.org.ID, theirs))
		_, err = p.pools.BuiltIn(t.Context(), p.org.ID, "host", "1")
		p.must(err)
		if _, def, err := p.pools.List(t.Context(), p.org.ID); err != nil || def != theirs {
			t.Errorf("the default pool is %q, %v, want it unchanged", def, err)
		}
	})
}

// TestBuiltInRestart checks that the agent of a restarted server can poll at once, although the
// stopped server did not record the end of its agent's session, and that agents of other hosts keep
// their sessions.
func TestBuiltInRestart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		made, err := p.pools.BuiltIn(t.Context(), p.org.ID, "host", "1")
		p.must(err)
		sighting := func(host, session string) *pools.Sighting {
			return &pools.Sighting{PoolID: made.Pool.ID, AgentID: "agent of " + host, SessionID: session, Hostname: host, PID: "1", Hold: time.Minute}
		}
		p.must(p.pools.Seen(t.Context(), sighting("host", "old")))
		p.must(p.pools.Seen(t.Context(), sighting("other", "old")))

		restarted := pools.New(db, storetest.Log())
		if err := restarted.Seen(t.Context(), sighting("host", "new")); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("before the restart of the runners: %v, want a conflict", err)
		}
		_, err = restarted.BuiltIn(t.Context(), p.org.ID, "host", "1")
		p.must(err)
		p.must(restarted.Seen(t.Context(), sighting("host", "new")))
		if err := restarted.Seen(t.Context(), sighting("other", "new")); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("the agent of another host: %v, want a conflict", err)
		}
	})
}
