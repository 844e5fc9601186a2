package deployments_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// TestEndOfPresence checks that an agent counts as busy only while it polls. When its poll ends
// without a response, the reason for waiting must change at once.
func TestEndOfPresence(t *testing.T) {
	for name, stop := range map[string]func(p *plant, cancel context.CancelFunc){
		"stopped": func(_ *plant, cancel context.CancelFunc) { cancel() },
		"token revoked": func(p *plant, _ context.CancelFunc) {
			tokens, err := p.pools.Tokens(t.Context(), p.org.ID, p.pool)
			p.must(err)
			p.must(p.pools.RevokeToken(t.Context(), p.user, p.org.ID, p.pool, tokens[0].ID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, storetest.SQLite(t), deployments.Options{Cap: 1})
			p.run()
			st := p.stack("dev")
			_, err := p.service.ReplaceSettings(t.Context(), p.user, st, []byte(`{}`), "api")
			p.must(err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			unready := p.request("a", time.Minute)
			unready.FreeSlots, unready.Agent.Slots = 0, 0
			ended := make(chan error, 1)
			go func() {
				_, err := p.service.Poll(ctx, unready.From(p.agent))
				ended <- err
			}()
			p.eventually("the poll", p.online)
			id := p.deploy(st)
			p.change(id, func(j *store.Job) { j.QueuedAt = j.QueuedAt.Add(-time.Minute) })
			page, err := p.service.Log(t.Context(), st, id, "", 0)
			p.must(err)
			if last := page.Lines[len(page.Lines)-1].Text; !strings.Contains(last, "cannot start") {
				t.Fatalf("with an agent that cannot start jobs, the log ends with %q", last)
			}
			stop(p, cancel)
			if err := <-ended; err == nil {
				t.Error("the poll ended without an error")
			}
			if p.online() {
				t.Error("the pool is still online")
			}
			page, err = p.service.Log(t.Context(), st, id, page.Next, 0)
			p.must(err)
			if len(page.Lines) != 1 || !strings.Contains(page.Lines[0].Text, "No agent of the pool") {
				t.Errorf("the log continues with %+v, want that no agent is connected", page.Lines)
			}
		})
	}
}

// TestOverlappingPolls checks that an agent stays online if the end of its poll is noticed only
// after its next poll has begun, on the same server or on another.
func TestOverlappingPolls(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	for name, next := range map[string]*pools.Service{"the same server": p.pools, "another server": pools.New(p.db, storetest.Log())} {
		g := p.request("a", time.Minute).Agent
		g.PoolID, g.Hold, g.AgentID = p.pool, time.Minute, name
		p.must(p.pools.Seen(t.Context(), &g))
		time.Sleep(time.Millisecond)
		p.must(next.Seen(t.Context(), &g))
		p.pools.Gone(t.Context(), &g)
		if !p.online() {
			t.Errorf("the end of a poll ended the presence of an agent whose next poll is at %s", name)
		}
		next.Gone(t.Context(), &g)
		if p.online() {
			t.Errorf("the agent is online after its last poll, at %s", name)
		}
	}
}

func (p *plant) online() bool {
	o, err := p.pools.Get(p.t.Context(), p.org.ID, p.pool)
	return err == nil && o.Online
}
