package deployments_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestDrainedAgentsGetNoJobs drains an agent while it polls: it learns of that soon, whether its poll
// was held before or after, and other agents get the jobs until the agent is resumed.
func TestDrainedAgentsGetNoJobs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		p.run()
		drain := func(drained bool) {
			t.Helper()
			p.must(p.pools.Drain(t.Context(), p.user, p.org.ID, p.pool, "a", drained))
		}
		// learn polls like an agent until it gets a job or learns whether it is drained.
		learn := func(want bool) <-chan deployments.Answer {
			t.Helper()
			got := make(chan deployments.Answer, 1)
			told := !want
			go func() {
				for {
					r := p.request("a", 50*time.Second)
					r.KnowsDrained = &told
					answer, err := p.service.Poll(t.Context(), r.From(p.agent))
					if err != nil {
						t.Errorf("poll: %v", err)
					}
					if told = answer.Drained; err != nil || told == want || answer.Claim != nil {
						got <- answer
						return
					}
				}
			}()
			p.eventually("the poll", func() bool {
				o, err := p.pools.Get(t.Context(), p.org.ID, p.pool)
				return err == nil && len(o.Agents) > 0 && o.Agents[0].AgentID == "a"
			})
			return got
		}
		began := time.Now()
		learned := learn(true)
		drain(true)
		if first := <-learned; first.Claim != nil || !first.Drained {
			t.Errorf("a drained agent got %+v", first)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the agent learned that it is drained after %s", took)
		}
		id := p.deploy(p.stack("one"))
		answer, err := p.service.Poll(t.Context(), p.request("a", 0).From(p.agent))
		p.must(err)
		if answer.Claim != nil || !answer.Drained {
			t.Errorf("a drained agent got %+v", answer)
		}
		load, err := p.pools.Summary(t.Context(), p.user, p.org.ID, p.pool)
		p.must(err)
		if load.Online != 1 || load.Free() != 0 || load.Slots != 0 {
			t.Errorf("a pool with a drained agent is %+v", load)
		}
		if o, err := p.pools.Get(t.Context(), p.org.ID, p.pool); err != nil || o.Agents[0].Drain == nil || o.Agents[0].Drain.DrainedBy != p.user.Name() {
			t.Errorf("the agent is %+v, %v", o.Agents, err)
		}
		if c := p.poll("b"); c == nil || c.Job.DeploymentID != id {
			t.Errorf("another agent got %+v, want %s", c, id)
		}
		began, learned = time.Now(), learn(false)
		drain(false)
		drain(false) // changes nothing
		id = p.deploy(p.stack("two"))
		c := (<-learned).Claim
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the agent learned that it is resumed after %s", took)
		}
		if c == nil {
			c = p.poll("a")
		}
		if c == nil || c.Job.DeploymentID != id {
			t.Errorf("a resumed agent got %+v, want %s", c, id)
		}
	})
}

// TestClaimsSeeDrains drains an agent while its poll is held, on a server whose notice is lost. The next job
// goes to the agent that began to poll later.
func TestClaimsSeeDrains(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	p.run()
	st := p.stack("one")
	got := make(chan string, 2)
	for i, agent := range []string{"a", "b"} {
		go func() {
			answer, err := p.service.Poll(t.Context(), p.request(agent, time.Minute).From(p.agent))
			if err == nil && answer.Claim != nil {
				got <- agent
			}
		}()
		p.eventually("the held poll", func() bool { return p.service.HeldPolls() == i+1 })
	}
	p.must(p.db.Write(t.Context(), scope.Organization(p.org.ID), func(tx *store.Tx) error {
		return tx.SaveDrain(store.DrainedAgent{PoolID: p.pool, AgentID: "a", DrainedBy: "ada", DrainedAt: tx.Now()})
	}))
	p.deploy(st)
	if agent := <-got; agent != "b" {
		t.Errorf("agent %s got the job, want b", agent)
	}
}

// TestDrainedAgentsGetLostAnswers repeats a poll whose answer was lost, after the agent was drained.
func TestDrainedAgentsGetLostAnswers(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	id := p.deploy(p.stack("one"))
	request := p.request("a", 0)
	for range 2 {
		answer, err := p.service.Poll(t.Context(), request.From(p.agent))
		p.must(err)
		if answer.Claim == nil || answer.Claim.Job.DeploymentID != id {
			t.Fatalf("got %+v, want %s", answer, id)
		}
		p.must(p.pools.Drain(t.Context(), p.user, p.org.ID, p.pool, "a", true))
	}
	if err := p.pools.Drain(t.Context(), p.agent, p.org.ID, p.pool, "a", true); err == nil {
		t.Error("an agent drained itself")
	}
	if err := p.pools.Drain(t.Context(), p.user, p.org.ID, p.pool, "none", true); err == nil {
		t.Error("an unknown agent was drained")
	}
}
