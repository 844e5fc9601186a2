package deployments_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestWhyQueued checks that the API and the log show every reason for waiting together with its
// remedy, and that the log shows each reason only once.
func TestWhyQueued(t *testing.T) {
	newWaiting := func(t *testing.T) (*plant, store.Stack) {
		p := newPlant(t, storetest.SQLite(t), deployments.Options{Cap: 2})
		st := p.stack("dev")
		_, err := p.service.ReplaceSettings(t.Context(), p.user, st, []byte(`{}`), "api")
		p.must(err)
		return p, st
	}
	for _, c := range []struct {
		name  string
		stage func(p *plant, st store.Stack)
		want  []string
	}{
		{"no agent", func(*plant, store.Stack) {}, []string{`No agent of the pool "p" is connected`, "customer-managed-workflow-agent service start"}},
		{"no default pool", func(p *plant, _ store.Stack) { p.must(p.pools.SetDefault(t.Context(), p.org.ID, "")) }, []string{
			"No agent pool is chosen", "connected agents: ", "pulumi deployment settings edit --runner-pool ", " --stack acme/proj/dev",
			`-X PATCH -d '{"setDefaultAgentPoolID":"`, "http://server.test/api/orgs/acme",
		}},
		{"no pool", func(p *plant, _ store.Stack) {
			p.must(p.pools.Delete(t.Context(), p.org.ID, p.pool, true, deployments.ForgetPool))
		}, []string{"No agent pool exists", `-d '{"name":"default"}' http://server.test/api/orgs/acme/agent-pools`}},
		{"stack paused", func(p *plant, st store.Stack) { p.must(p.service.PauseStack(t.Context(), p.user, st, true)) }, []string{
			"of the stack are paused", "-X POST http://server.test/api/stacks/acme/proj/dev/deployments/resume",
		}},
		{"organization paused", func(p *plant, _ store.Stack) { p.must(p.service.PauseOrg(t.Context(), p.user, p.org.ID, true)) }, []string{
			"of the organization are paused", "-X POST http://server.test/api/orgs/acme/deployments/resume",
		}},
		{"behind a queued one", func(p *plant, st store.Stack) { p.deploy(st) }, []string{
			"Waiting for deployment #1 of the stack, which is queued", "Deployment #1 waits: No agent of the pool",
			"pulumi deployment cancel ", " --stack acme/proj/dev",
		}},
		{"behind a running one", func(p *plant, st store.Stack) { p.deploy(st); p.poll("a") }, []string{
			"Waiting for deployment #1 of the stack, which is running",
		}},
		{"the cap", func(p *plant, _ store.Stack) {
			for _, name := range []string{"b", "c"} {
				p.deploy(p.stack(name))
				p.poll("a")
			}
		}, []string{"has reached its limit of 2 active deployments"}},
		{"agents that cannot start jobs", func(p *plant, _ store.Stack) { p.unready("a") }, []string{
			`The connected agents of the pool "p" report that they cannot start deployments, for example because Docker is not available or their disk is full.`, "doctor",
		}},
		{"agents that cannot start jobs, and drained ones", func(p *plant, _ store.Stack) {
			p.unready("a")
			p.unready("b")
			p.must(p.pools.Drain(t.Context(), p.user, p.org.ID, p.pool, "a", true))
		}, []string{"cannot start deployments, for example because Docker is not available or their disk is full, or they are drained."}},
		{"busy agents", func(p *plant, _ store.Stack) {
			p.deploy(p.stack("other"))
			p.poll("a")
		}, []string{`All agents of the pool "p" are busy`, "max_concurrent_jobs"}},
		{"drained agents", func(p *plant, _ store.Stack) {
			_, err := p.service.Poll(t.Context(), p.request("a", 0).From(p.agent))
			p.must(err)
			p.must(p.pools.Drain(t.Context(), p.user, p.org.ID, p.pool, "a", true))
		}, []string{`The connected agents of the pool "p" are drained`, "resume an agent"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, st := newWaiting(t)
			c.stage(p, st)
			id := p.deploy(st)
			p.change(id, func(j *store.Job) { j.QueuedAt = j.QueuedAt.Add(-time.Minute) })
			d, err := p.service.Get(t.Context(), st, id)
			p.must(err)
			page, err := p.service.Log(t.Context(), st, id, "", 0)
			p.must(err)
			if len(page.Lines) != 2 || page.Lines[0].Header != "Queued" || page.Lines[1].Text != d.Message+"\n" {
				t.Fatalf("the log shows %+v, want the header Queued and %q", page.Lines, d.Message)
			}
			for _, want := range c.want {
				if !strings.Contains(d.Message, want) {
					t.Errorf("the message %q does not contain %q", d.Message, want)
				}
			}
			if page, err = p.service.Log(t.Context(), st, id, page.Next, 0); err != nil || len(page.Lines) > 0 {
				t.Errorf("reading further shows %+v, %v: want nothing while the reason is the same", page.Lines, err)
			}
		})
	}
	t.Run("a new reason", func(t *testing.T) {
		p, st := newWaiting(t)
		id := p.deploy(st)
		page, err := p.service.Log(t.Context(), st, id, "", 0)
		p.must(err)
		p.must(p.service.PauseStack(t.Context(), p.user, st, true))
		page, err = p.service.Log(t.Context(), st, id, page.Next, 0)
		if err != nil || len(page.Lines) != 1 || !strings.Contains(page.Lines[0].Text, "paused") {
			t.Errorf("the log after a pause shows %+v, %v", page.Lines, err)
		}
	})
}

// unready polls like an agent that cannot start jobs.
func (p *plant) unready(agent string) {
	p.t.Helper()
	request := p.request(agent, 0)
	request.FreeSlots, request.Agent.Slots = 0, 0
	_, err := p.service.Poll(p.t.Context(), request.From(p.agent))
	p.must(err)
}

// TestConsideredPoolsAndAgents checks which pools and agents the details of a queued deployment
// list, and that lists of deployments do not repeat them.
func TestConsideredPoolsAndAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		p.deploy(p.stack("running"))
		if p.poll("b-busy") == nil {
			t.Fatal("the agent got no job")
		}
		p.poll("d-idle")
		st := p.stack("dev")
		_, err := p.service.ReplaceSettings(t.Context(), p.user, st, []byte(`{}`), "api")
		p.must(err)
		id := p.deploy(st)
		waiting := func() *deployments.Waiting {
			t.Helper()
			d, err := p.service.Get(t.Context(), st, id)
			p.must(err)
			return d.Waiting
		}
		p.change(id, func(j *store.Job) { j.QueuedAt = time.Now().Add(time.Hour) })
		if w := waiting(); w != nil {
			t.Errorf("before an agent had time to claim it, the deployment waits: %+v", w)
		}
		p.change(id, func(j *store.Job) { j.QueuedAt = time.Now().Add(-time.Minute) })
		// An agent with the first name of all is no longer connected.
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return tx.SaveAgent(store.PoolAgent{PoolID: p.pool, AgentID: "a-gone", Hostname: "a-gone", LastSeenAt: time.Now().Add(-time.Minute)})
		}))
		pool := deployments.WaitingPool{ID: p.pool, Name: "p", Agents: 3, Connected: 2}
		// An agent that could start the job is expected to poll soon, such as after the server's restart.
		capacity := func(agent string, slots int64) {
			t.Helper()
			p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				a, err := tx.Agent(p.pool, agent)
				a.Slots = slots
				return errors.Join(err, tx.SaveAgent(a))
			}))
		}
		free := func(want int64) {
			t.Helper()
			summary, err := p.pools.Summary(t.Context(), p.user, p.org.ID, p.pool)
			if err != nil || summary.Free() != want {
				t.Errorf("the pool has %d free agents, want %d; %v", summary.Free(), want, err)
			}
		}
		capacity("d-idle", 2)
		free(1)
		if w := waiting(); w != nil {
			t.Errorf("with a free agent, the deployment waits: %+v", w)
		}
		capacity("d-idle", 0)
		free(0)
		capacity("b-busy", 0)
		if w := waiting(); w == nil || w.Reason != "not-ready" || !slices.Equal(w.Pools, []deployments.WaitingPool{pool}) {
			t.Errorf("waiting for agents that cannot start jobs: %+v, want the pool %+v", w, pool)
		}
		capacity("b-busy", 1)
		w := waiting()
		if w == nil || w.Reason != "busy" || !slices.Equal(w.Pools, []deployments.WaitingPool{pool}) {
			t.Fatalf("waiting for a busy pool: %+v, want the pool %+v", w, pool)
		}
		var got []string
		for _, a := range w.Agents {
			got = append(got, fmt.Sprint(a.Hostname, " ", a.Connected, " ", a.Running))
		}
		if want := []string{"b-busy true 1", "d-idle true 0", "a-gone false 0"}; !slices.Equal(got, want) {
			t.Errorf("the agents are %q, want %q", got, want)
		}
		for i, why := range []string{"running: 1", "cannot start", "not connected"} {
			if !strings.Contains(w.Agents[i].Why, why) {
				t.Errorf("agent %s: %q does not contain %q", w.Agents[i].Hostname, w.Agents[i].Why, why)
			}
		}
		list, _, err := p.service.List(t.Context(), deployments.Filter{OrgID: p.org.ID, StackID: st.ID, Page: 1, PageSize: 10})
		p.must(err)
		if len(list) != 1 || list[0].Waiting != nil || list[0].Message == "" {
			t.Errorf("the list shows %+v", list)
		}

		for i := range 12 {
			p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				name := fmt.Sprintf("c-%02d", i)
				return tx.SaveAgent(store.PoolAgent{PoolID: p.pool, AgentID: name, Hostname: name, LastSeenAt: time.Now()})
			}))
		}
		if w := waiting(); len(w.Agents) != 10 || w.Agents[0].Hostname != "b-busy" || w.Pools[0].Agents != 15 {
			t.Errorf("of a large pool: %+v, want 10 of 15 agents, connected agents first", w)
		}
		p.must(p.pools.SetDefault(t.Context(), p.org.ID, ""))
		if w := waiting(); w.Reason != "no-pool" || len(w.Pools) != 1 || w.Pools[0].Connected != 2 || w.Agents != nil {
			t.Errorf("without a pool: %+v", w)
		}
		p.must(p.service.PauseStack(t.Context(), p.user, st, true))
		if w := waiting(); w.Reason != "stack-paused" || w.Pools != nil || w.Agents != nil {
			t.Errorf("on a paused stack: %+v, want neither pools nor agents", w)
		}
	})
}
