package deployments_test

import (
	"testing"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/storetest"
)

// TestHandOverBetweenReplicas lets a poll wait at one server and a deployment
// arrive at another.
func TestHandOverBetweenReplicas(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	p := newPlant(t, first, deployments.Options{})
	p.run()
	other := replica(t, p, second)
	got := make(chan *deployments.Claim, 1)
	go func() {
		c, err := other.service.Poll(t.Context(), p.agent, p.request("a", 20*time.Second))
		if err != nil {
			t.Errorf("poll: %v", err)
		}
		got <- c
	}()
	p.eventually("the poll", func() bool {
		o, err := p.pools.Get(t.Context(), p.org.ID, p.pool)
		return err == nil && len(o.Agents) == 1
	})
	began := time.Now()
	id := p.deploy(p.stack("dev"))
	if c := <-got; c == nil || c.Job.DeploymentID != id {
		t.Errorf("claimed %+v, want %s", c, id)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the hand-over took %s", took)
	}
	// A second session is refused by the other server too.
	twin := p.request("b", 0)
	if _, err := other.service.Poll(t.Context(), p.agent, twin); err != nil {
		t.Fatal(err)
	}
	twin.Agent.SessionID = "twin"
	if _, err := p.service.Poll(t.Context(), p.agent, twin); err == nil {
		t.Error("a second session was taken")
	}
}

// replica is a second server on the same database.
func replica(t *testing.T, p *plant, db *store.DB) *plant {
	t.Helper()
	r := &plant{t: t, db: db, org: p.org, pool: p.pool, agent: p.agent, user: p.user}
	r.build(deployments.Options{})
	r.run()
	return r
}
