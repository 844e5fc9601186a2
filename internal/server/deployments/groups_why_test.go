package deployments_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// TestWhyGroup checks what a deployment that waits for its concurrency group says about the others.
func TestWhyGroup(t *testing.T) {
	const rule = ` in the concurrency group "g", only one runs a deployment at a time.`
	// start starts the next deployment of the pool.
	start := func(p *plant, agent string, st store.Stack) *deployments.Claim {
		p.t.Helper()
		c := p.next(agent)
		if c == nil || c.Job.StackID != st.ID {
			p.t.Fatalf("%s claimed %+v", agent, c)
		}
		return c
	}
	update := func(p *plant, c *deployments.Claim, st store.Stack) {
		p.t.Helper()
		u, err := p.create(p.pulumi(c), st, c.Job.DeploymentID)
		p.must(err)
		_, err = p.stacks.Start(p.t.Context(), u, nil, 0)
		p.must(err)
	}
	lose := func(p *plant, agent string, st store.Stack) {
		p.t.Helper()
		id := p.deploy(st)
		update(p, start(p, agent, st), st)
		p.silence(id)
	}
	for _, tt := range []struct {
		name  string
		stage func(p *plant, a, b, c store.Stack) (id string) // of a deployment of a
		alien bool
		want  []string // in the text
		not   []string
		about []string // the blockers
		open  string   // the label of the action
	}{
		{name: "another stack runs", stage: func(p *plant, a, b, _ store.Stack) string {
			p.deploy(b)
			start(p, "1", b)
			return p.deploy(a)
		}, want: []string{"Waiting for a deployment of another stack: of the stacks" + rule}, not: []string{"cannot see", "earlier"}, about: []string{"acme/proj/b #1 update on 1"}, open: "Show the running deployments"},
		{name: "another stack runs, which the reader cannot see", alien: true, stage: func(p *plant, a, b, _ store.Stack) string {
			p.deploy(b)
			start(p, "1", b)
			return p.deploy(a)
		}, want: []string{"Waiting for a deployment of another stack", "Stacks that you cannot see: 1."}},
		{name: "others were requested earlier", stage: func(p *plant, a, b, c store.Stack) string {
			p.deploy(b)
			start(p, "1", b)
			p.deploy(c)
			p.deploy(b)
			paused := p.grouped("paused", "g")
			p.deploy(paused)
			p.must(p.service.PauseStack(p.t.Context(), p.user, paused, true))
			id := p.deploy(a)
			p.deploy(p.grouped("late", "g"))
			return id
		}, want: []string{"Requested earlier by other stacks of the group: 2 deployments."}, about: []string{"acme/proj/b #1 update on 1"}, open: "Show the running deployments"},
		{
			name: "behind a deployment of the stack that waits for the group", stage: func(p *plant, a, b, _ store.Stack) string {
				p.deploy(b)
				start(p, "1", b)
				p.deploy(a)
				return p.deploy(a)
			}, want: []string{"Waiting for deployment #1 of the stack, which is queued. Deployment #1 waits: Waiting for a deployment of another stack"},
			not: []string{"agent"}, about: []string{"acme/proj/a #1 queued", "acme/proj/b #1 update on 1"}, open: "Open #1",
		},
		{name: "free agents, but the other stack is first", stage: func(p *plant, a, b, _ store.Stack) string {
			p.capacity("1", 2)
			p.deploy(b)
			return p.deploy(a)
		}, want: []string{"Waiting for a deployment of another stack, which was requested earlier: of the stacks" + rule}, not: []string{"agent"}},
		{name: "free agents, and the stack is first", stage: func(p *plant, a, b, _ store.Stack) string {
			p.capacity("1", 2)
			id := p.deploy(a)
			p.deploy(b)
			return id
		}, want: []string{"is about to claim"}, not: []string{"another stack"}},
		{name: "another stack lost one", stage: func(p *plant, a, b, _ store.Stack) string {
			lose(p, "1", b)
			return p.deploy(a)
		}, want: []string{"Waiting for a deployment of another stack", rule + " It was lost, and its update may still be running."}, about: []string{"acme/proj/b #1 lost"}, open: "Open the lost deployment"},
		{name: "two others, of which one is lost", stage: func(p *plant, a, b, _ store.Stack) string {
			lose(p, "1", b)
			joins := p.stack("joins")
			p.deploy(joins)
			start(p, "2", joins)
			p.must(p.put(joins, `{"concurrencyGroup":"g"}`))
			return p.deploy(a)
		}, want: []string{"Waiting for 2 deployments of other stacks:", "At least one of them was lost"}, about: []string{"acme/proj/joins #1 update on 2", "acme/proj/b #1 lost"}, open: "Open the lost deployment"},
		{
			name: "the stack runs, and joined a group in which another runs", stage: func(p *plant, _, b, _ store.Stack) string {
				a := p.grouped("elsewhere", "other")
				p.deploy(a)
				start(p, "1", a)
				p.deploy(b)
				start(p, "2", b)
				p.must(p.put(a, `{"concurrencyGroup":"g"}`))
				return p.deploy(a)
			}, want: []string{"Waiting for deployment #1 of the stack, which is running", "It also waits for a deployment of another stack: of the stacks" + rule},
			about: []string{"acme/proj/elsewhere #1 running", "acme/proj/b #1 update on 2"}, open: "Open #1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlant(t, storetest.SQLite(t), deployments.Options{})
			id := tt.stage(p, p.grouped("a", "g"), p.grouped("b", "g"), p.grouped("c", "g"))
			who := p.user
			if tt.alien {
				who = identity.Principal{}
			}
			details, err := p.service.GetFor(t.Context(), who, store.Stack{ID: p.job(id).StackID, OrgID: p.org.ID}, id)
			p.must(err)
			why := details.Why
			for _, want := range tt.want {
				if !strings.Contains(why.Text, want) {
					t.Errorf("%q does not contain %q", why.Text, want)
				}
			}
			for _, not := range append(tt.not, "proj/b", "proj/c") {
				if strings.Contains(why.Text, not) {
					t.Errorf("%q contains %q", why.Text, not)
				}
			}
			var about []string
			for _, b := range why.Blockers {
				about = append(about, fmt.Sprint(b.Text, " ", b.Detail))
			}
			if !slices.Equal(about, tt.about) || why.Action.Label != tt.open {
				t.Errorf("the blockers are %q, the action is %q; want %q and %q", about, why.Action.Label, tt.about, tt.open)
			}
		})
	}
}

// capacity polls like an agent that can run a number of jobs, when there is none.
func (p *plant) capacity(agent string, slots int64) {
	p.t.Helper()
	request := p.request(agent, 0)
	request.Agent.Slots = slots
	_, err := p.service.Poll(p.t.Context(), request.From(p.agent))
	p.must(err)
}
