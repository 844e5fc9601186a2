package deployments_test

import (
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

func TestHandOverBetweenReplicas(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	p := newPlant(t, first, deployments.Options{})
	p.run()
	other := replica(t, p, second)
	got := make(chan *deployments.Claim, 1)
	go func() {
		answer, err := other.service.Poll(t.Context(), p.request("a", 20*time.Second).From(p.agent))
		c := answer.Claim
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
		t.Errorf("the held poll got the job only after %s", took)
	}
	// The other server also rejects a second session.
	twin := p.request("b", 0)
	if _, err := other.service.Poll(t.Context(), twin.From(p.agent)); err != nil {
		t.Fatal(err)
	}
	twin.Agent.SessionID = "twin"
	if _, err := p.service.Poll(t.Context(), twin.From(p.agent)); err == nil {
		t.Error("a second session was accepted")
	}
}

func replica(t *testing.T, p *plant, db *store.DB) *plant {
	t.Helper()
	r := &plant{t: t, db: db, org: p.org, pool: p.pool, agent: p.agent, user: p.user}
	r.build(deployments.Options{})
	r.run()
	return r
}

func TestRevocationReachesReplicas(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	p := newPlant(t, first, deployments.Options{})
	p.run()
	other := replica(t, p, second)
	done := make(chan error, 1)
	go func() {
		_, err := other.service.Poll(t.Context(), p.request("a", 50*time.Second).From(p.agent))
		done <- err
	}()
	p.eventually("the poll", func() bool {
		o, err := p.pools.Get(t.Context(), p.org.ID, p.pool)
		return err == nil && len(o.Agents) == 1
	})
	began := time.Now()
	p.must(p.pools.RevokeToken(t.Context(), p.user, p.org.ID, p.pool, p.agent.TokenID))
	if err := <-done; fault.KindOf(err) != fault.KindUnauthenticated {
		t.Errorf("the held poll ended with %v", err)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("the held poll ended after %s", took)
	}
}

// TestReplicaWithAFalseClock runs a server whose clock is wrong: it is in the year 2000, when a
// synctest bubble starts. The wrong clock must not affect leases and timers.
func TestReplicaWithAFalseClock(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	p := newPlant(t, openStore(t, dsn), deployments.Options{})
	dead, alive, held := p.stack("dead"), p.stack("alive"), p.stack("held")
	lost, queued := p.deploy(dead), p.deploy(alive)
	c := p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	p.change(lost, func(j *store.Job) { j.LastSeenAt = time.Now().Add(-11 * time.Minute) })
	synctest.Test(t, func(t *testing.T) {
		if now := time.Now(); now.Year() != 2000 {
			t.Fatalf("the bubble begins at %s", now)
		}
		db := openStore(t, dsn)
		other := &plant{t: t, db: db, org: p.org, pool: p.pool, agent: p.agent, user: p.user}
		other.build(deployments.Options{})
		p.must(other.service.Sweep(t.Context()))
		if c := other.poll("b"); c == nil || c.Job.DeploymentID != queued {
			t.Fatalf("claimed %+v, want %s", c, queued)
		}
		u, err := other.stacks.CreateUpdate(t.Context(), p.user, held, stacks.KindUpdate, stacks.Program{})
		other.must(err)
		_, err = other.stacks.Start(t.Context(), u, nil, 0)
		other.must(err)
		if skew, err := db.Skew(t.Context()); err != nil || skew > -20*365*24*time.Hour {
			t.Errorf("the server's clock is ahead of the database's by %s (%v)", skew, err)
		}
	})
	p.must(p.service.Sweep(t.Context()))
	if job := p.job(lost); job.Reason != workflow.ReasonLost {
		t.Errorf("a job that is silent for 11 min is %s", job.Status)
	}
	if job := p.job(queued); job.Status != workflow.StatusAccepted || job.Epoch != 1 {
		t.Errorf("a recent claim became %s, epoch %d", job.Status, job.Epoch)
	}
	u, err := p.stacks.CreateUpdate(t.Context(), p.user, held, stacks.KindUpdate, stacks.Program{})
	p.must(err)
	if _, err := p.stacks.Start(t.Context(), u, nil, 0); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("the lease of an update that just began is not valid: %v", err)
	}
}

func openStore(t *testing.T, dsn string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
