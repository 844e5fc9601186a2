package deployments_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// load returns the load of the plant's pool, as a new service reads it.
func (p *plant) load(o deployments.Options) deployments.Load {
	p.t.Helper()
	p.build(o)
	l, err := p.service.PoolLoad(p.t.Context(), p.org.ID, p.pool)
	p.must(err)
	if l.OldestWait > 0 {
		l.OldestWait = max(time.Second, l.OldestWait.Truncate(time.Hour))
	}
	return l
}

func TestPoolLoad(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		o := deployments.Options{Cap: 3}
		p := newPlant(t, db, o)
		want := func(step string, want deployments.Load) {
			t.Helper()
			if got := p.load(o); got != want {
				t.Errorf("%s: %+v, want %+v", step, got, want)
			}
		}
		want("empty", deployments.Load{})

		seen := p.request("a", 0)
		seen.FreeSlots, seen.Agent.Slots = 0, 2
		_, err := p.service.Poll(t.Context(), seen.From(p.agent))
		p.must(err)
		want("one agent", deployments.Load{Agents: 1, IdleSlots: 2})

		one, two := p.stack("one"), p.stack("two")
		_, err = p.service.ReplaceSettings(t.Context(), p.user, two, []byte(`{}`), "api")
		p.must(err)
		first := p.deploy(one)
		p.deploy(one) // behind the first
		p.deploy(two)
		p.change(first, func(j *store.Job) { j.QueuedAt = j.QueuedAt.Add(-2 * time.Hour) })
		want("queued", deployments.Load{Queued: 3, Claimable: 2, OldestWait: 2 * time.Hour, Agents: 1, IdleSlots: 2})

		take := p.request("a", 0)
		take.Agent.Slots = 2
		answer, err := p.service.Poll(t.Context(), take.From(p.agent))
		claim := answer.Claim
		p.must(err)
		want("claimed", deployments.Load{Queued: 2, Claimable: 1, OldestWait: time.Second, Running: 1, Agents: 1, BusySlots: 1, IdleSlots: 1})

		broken := p.request("a", 0)
		broken.FreeSlots, broken.Agent.Slots = 0, 0 // the engine is down
		_, err = p.service.Poll(t.Context(), broken.From(p.agent))
		p.must(err)
		want("engine down", deployments.Load{Queued: 2, Claimable: 1, OldestWait: time.Second, Running: 1, Agents: 1, BusySlots: 1})

		p.must(p.service.PauseStack(t.Context(), p.user, two, true))
		want("paused", deployments.Load{Queued: 2, Running: 1, Agents: 1, BusySlots: 1})
		p.must(p.service.PauseStack(t.Context(), p.user, two, false))

		o.Cap = 1
		want("at the organization's limit", deployments.Load{Queued: 2, Running: 1, Agents: 1, BusySlots: 1})
		o.Cap = 3

		p.must(p.heartbeat(claim, "starting"))
		p.must(p.result(claim, workflow.StatusSucceeded))
		want("finished", deployments.Load{Queued: 2, Claimable: 2, OldestWait: time.Second, Agents: 1})
	})
}

// TestPoolLoadIsCached checks that many requests cost one read per second.
func TestPoolLoadIsCached(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	read := func() int64 {
		l, err := p.service.PoolLoad(t.Context(), p.org.ID, p.pool)
		p.must(err)
		return l.Queued
	}
	if n := read(); n != 0 {
		t.Fatalf("%d deployments wait, want none", n)
	}
	began := time.Now()
	p.deploy(p.stack("dev"))
	n := read()
	if n != 0 && time.Since(began) < time.Second/2 {
		t.Errorf("%d deployments wait: the load was read again within a second", n)
	}
	p.eventually("a new read", func() bool { return read() == 1 })
}

func TestLoadMetrics(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	p.deploy(p.stack("dev"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.service.LoadMetrics())
	families, err := registry.Gather()
	p.must(err)
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := ""
			for _, label := range metric.GetLabel() {
				labels += fmt.Sprintf("%s=%s ", label.GetName(), label.GetValue())
			}
			if want := "organization=acme pool=p pool_id=" + p.pool + " "; labels != want {
				t.Errorf("%s has the labels %q, want %q", family.GetName(), labels, want)
			}
			got[family.GetName()] = metric.GetGauge().GetValue()
		}
	}
	if got["workflow_server_pool_queued"] != 1 || got["workflow_server_pool_claimable"] != 1 || len(got) != 7 {
		text, _ := json.Marshal(got)
		t.Errorf("the metrics are %s", text)
	}
}
