package deployments_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// grouped returns a stack whose settings name a concurrency group.
func (p *plant) grouped(name, group string) store.Stack {
	p.t.Helper()
	st := p.stack(name)
	p.must(p.put(st, fmt.Sprintf(`{"concurrencyGroup":%q}`, group)))
	return st
}

// next is the claim of an agent that is free, or nil.
func (p *plant) next(agent string) *deployments.Claim {
	p.t.Helper()
	c := p.poll(agent)
	if c != nil {
		p.must(p.heartbeat(c, protocol.PhaseStarting))
	}
	return c
}

func (p *plant) queuedWhy(id string) string {
	p.t.Helper()
	var d store.DeploymentJob
	p.must(p.db.Read(p.t.Context(), func(tx *store.Tx) (err error) {
		d, err = tx.DeploymentJob(id)
		return err
	}))
	details, err := p.service.GetFor(p.t.Context(), p.user, store.Stack{ID: d.StackID, OrgID: d.OrgID}, id)
	p.must(err)
	return details.Why.Reason
}

// TestConcurrencyGroup checks that stacks of a group run their deployments one by one, and wait for no
// other stacks.
func TestConcurrencyGroup(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b, c, free := p.grouped("a", "network"), p.grouped("b", "network"), p.grouped("c", "Network"), p.stack("free")
		first := p.deploy(a)
		p.deploy(c)
		preview, err := p.service.Create(t.Context(), p.user, b, asked(t, `{"operation":"preview"}`), "api")
		p.must(err)
		p.deploy(free)
		held := p.next("1")
		if held == nil || held.Job.DeploymentID != first {
			t.Fatalf("the first claim is %+v", held)
		}
		var others []string
		for _, agent := range []string{"2", "3", "4"} {
			if got := p.next(agent); got != nil {
				others = append(others, got.Job.StackID)
			}
		}
		if want := []string{c.ID, free.ID}; !slices.Equal(others, want) {
			t.Errorf("while a stack of the group runs, the stacks %v run, want those outside, %v", others, want)
		}
		if got := p.queuedWhy(preview.ID); got != "concurrency-group" {
			t.Errorf("the deployment waits because of %q", got)
		}
		load := p.load(deployments.Options{})
		if load.Claimable != 0 || load.Queued != 1 {
			t.Errorf("of %d queued deployments, %d are claimable", load.Queued, load.Claimable)
		}
		p.must(p.result(held, workflow.StatusFailed))
		if got := p.next("1"); got == nil || got.Job.DeploymentID != preview.ID {
			t.Errorf("after the end of the first deployment, the group claims %+v", got)
		}
		// Queued deployments follow the settings.
		again := p.deploy(a)
		if got := p.next("5"); got != nil {
			t.Errorf("claimed %+v", got.Job)
		}
		p.must(p.patch(a, `{"concurrencyGroup":null}`))
		if got := p.next("5"); got == nil || got.Job.DeploymentID != again {
			t.Errorf("after the stack left the group, the agent gets %+v", got)
		}
	})
}

// TestGroupPosition checks that the jobs of a group, of which one can run, have one place in their pool.
func TestGroupPosition(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		stacks := []store.Stack{p.grouped("a", "g"), p.grouped("b", "g"), p.stack("c"), p.grouped("d", "g"), p.stack("e")}
		var ids []string
		for _, st := range stacks {
			ids = append(ids, p.deploy(st))
		}
		var places []int64
		for i, id := range ids {
			d, err := p.service.GetFor(t.Context(), p.user, stacks[i], id)
			p.must(err)
			places = append(places, d.Why.Position)
		}
		if want := []int64{1, 0, 2, 0, 3}; !slices.Equal(places, want) {
			t.Errorf("the places are %v, want %v", places, want)
		}
	})
}

// TestGroupOfHeldPolls claims for the held polls of two servers at once, of which only one may get a job of
// the group.
func TestGroupOfHeldPolls(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	p := newPlant(t, first, deployments.Options{})
	p.run()
	servers := []*plant{p, replica(t, p, second)}
	p.must(p.service.PauseOrg(t.Context(), p.user, p.org.ID, true))
	const stacks, polls = 4, 4
	for i := range stacks {
		p.deploy(p.grouped(fmt.Sprint("s", i), "g"))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	active, ended := 0, 0
	var wg sync.WaitGroup
	for i := range polls {
		on := servers[i%len(servers)]
		wg.Go(func() {
			for ctx.Err() == nil {
				answer, err := on.service.Poll(ctx, p.request(fmt.Sprint("agent", i), 20*time.Second).From(p.agent))
				c := answer.Claim
				if err != nil || c == nil {
					if ctx.Err() == nil && err != nil {
						t.Error("polling:", err)
						stop()
					}
					continue
				}
				mu.Lock()
				if active++; active > 1 {
					t.Errorf("%d jobs of the group are active", active)
				}
				mu.Unlock()
				err = on.heartbeat(c, protocol.PhaseStarting)
				mu.Lock() // before the result lets the next one start
				active--
				ended++
				done := ended == stacks
				mu.Unlock()
				if err == nil {
					err = on.result(c, workflow.StatusFailed)
				}
				if err != nil {
					t.Error("running:", err)
				}
				if done || err != nil {
					stop()
				}
			}
		})
	}
	p.eventually("the polls", func() bool { return servers[0].service.HeldPolls()+servers[1].service.HeldPolls() == polls })
	p.must(p.service.PauseOrg(t.Context(), p.user, p.org.ID, false))
	wg.Wait()
	if ended != stacks {
		t.Errorf("%d of %d deployments ran", ended, stacks)
	}
}

// TestGroupWithLostDeployment checks that a lost deployment, whose update may still be running, holds back the
// other stacks of its group.
func TestGroupWithLostDeployment(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	a, b := p.grouped("a", "g"), p.grouped("b", "g")
	id := p.deploy(a)
	c := p.poll("1")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	pulumi := p.pulumi(c)
	update, err := p.create(pulumi, a, id)
	p.must(err)
	_, err = p.stacks.Start(t.Context(), update, nil, 0)
	p.must(err)
	p.silence(id)
	waits := p.deploy(b)
	if got := p.next("2"); got != nil {
		t.Fatalf("claimed %+v while the update of a lost deployment of the group can run", got.Job)
	}
	if got := p.queuedWhy(waits); got != "concurrency-group" {
		t.Errorf("the deployment waits because of %q", got)
	}
	p.must(p.result(c, workflow.StatusFailed))
	if got := p.next("2"); got == nil || got.Job.DeploymentID != waits {
		t.Errorf("after the result, the agent gets %+v", got)
	}
}

// TestLostDeploymentJoinsGroup checks that the lost deployment of a stack counts in the group that the stack
// joins after the loss.
func TestLostDeploymentJoinsGroup(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b := p.stack("a"), p.grouped("b", "g")
		id := p.deploy(a)
		c := p.poll("1")
		p.must(p.heartbeat(c, protocol.PhaseStarting))
		update, err := p.create(p.pulumi(c), a, id)
		p.must(err)
		_, err = p.stacks.Start(t.Context(), update, nil, 0)
		p.must(err)
		p.silence(id)
		p.must(p.put(a, `{"concurrencyGroup":"g"}`))
		p.deploy(b)
		if got := p.next("2"); got != nil {
			t.Fatalf("claimed %+v while the update of a lost deployment of the group can run", got.Job)
		}
	})
}

// TestLostDeploymentAfterItsGroup checks that a lost deployment starts nothing after another stack of its group
// has, even if it joined the group after the loss.
func TestLostDeploymentAfterItsGroup(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		for _, when := range []string{"early", "late"} {
			settings := fmt.Sprintf(`{"concurrencyGroup":%q}`, when)
			a, b := p.stack("a-"+when), p.grouped("b-"+when, when)
			if when == "early" {
				p.must(p.put(a, settings))
			}
			_, lost, pulumi := p.lose(a)
			if when == "late" {
				p.must(p.put(a, settings))
			}
			update, err := p.create(pulumi, a, "")
			p.must(err)
			p.must(p.heartbeat(lost, protocol.PhaseRunning))
			p.deploy(b)
			p.must(p.service.Sweep(t.Context()))
			c := p.next("b")
			if c == nil || c.Job.StackID != b.ID {
				t.Fatalf("%s: claimed %+v", when, c)
			}
			check := func() {
				t.Helper()
				_, err = p.stacks.Start(t.Context(), update, nil, 0)
				p.refused("the start of an update", err)
				if kind := fault.KindOf(p.heartbeat(lost, protocol.PhaseRunning)); kind != fault.KindGone {
					t.Errorf("%s: a heartbeat after the claim in the group: %q, want gone", when, kind)
				}
			}
			check()
			p.must(p.result(c, workflow.StatusFailed))
			check()
		}
	})
}

// TestGroupIsOfTheStack checks that no deployment leaves the group of its stack, and which stacks share one.
func TestGroupIsOfTheStack(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	a := p.grouped("a", "g")
	for _, request := range []string{`{"operation":"update","inheritSettings":false}`, `{"operation":"update","concurrencyGroup":"g"}`, `{"operation":"update","concurrencyGroup":""}`} {
		d, err := p.service.Create(t.Context(), p.user, a, asked(t, request), "api")
		p.must(err)
		if got := p.job(d.ID).ConcurrencyGroup; got != "g" {
			t.Errorf("%s: the job has the group %q", request, got)
		}
		again, err := p.again(a, d.ID)
		p.must(err)
		if got := p.job(again.ID).ConcurrencyGroup; got != "g" {
			t.Errorf("%s: the repetition has the group %q", request, got)
		}
	}
	if _, err := p.service.Create(t.Context(), p.user, a, asked(t, `{"operation":"update","concurrencyGroup":"other"}`), "api"); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("a request that names another group: %v", err)
	}
	if err := p.put(a, `{"concurrencyGroup":"a\nb"}`); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("settings with an invalid name: %v", err)
	}
	p.must(p.put(a, `{"concurrencyGroup":"h"}`))
	p.must(p.service.DeleteSettings(t.Context(), a))
	if got := p.job(p.deploy(a)).ConcurrencyGroup; got != "" {
		t.Errorf("without settings, the job has the group %q", got)
	}

	// A job that runs when its stack joins a group counts, and one whose stack leaves it still counts.
	b, c := p.stack("b"), p.grouped("c", "late")
	running := p.deploy(b)
	p.change(p.deploy(c), func(j *store.Job) { j.QueuedAt = j.QueuedAt.Add(-time.Hour) })
	first := p.next("1")
	if first == nil || first.Job.StackID != c.ID {
		t.Fatalf("claimed %+v", first)
	}
	p.must(p.put(c, `{"concurrencyGroup":"else"}`))
	if got := p.job(first.Job.DeploymentID).ConcurrencyGroup; got != "late" {
		t.Errorf("the running job has moved to the group %q", got)
	}
	p.must(p.put(b, `{"concurrencyGroup":"late"}`))
	if got := p.job(running).ConcurrencyGroup; got != "late" {
		t.Errorf("the queued job of the stack that joins has the group %q", got)
	}
}

// TestGroupHidesStacks checks that the reason for waiting does not name stacks that a reader cannot see.
func TestGroupHidesStacks(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	a, secret := p.grouped("a", "g"), p.grouped("secret", "g")
	p.deploy(secret)
	p.next("1")
	id := p.deploy(a)
	for name, tt := range map[string]struct {
		who  identity.Principal
		sees int
	}{"an administrator": {p.user, 1}, "a stranger": {identity.Principal{}, 0}} {
		details, err := p.service.GetFor(t.Context(), tt.who, a, id)
		p.must(err)
		why := details.Why
		if strings.Contains(why.Message(), "secret") || len(why.Blockers) != tt.sees || why.Reason != "concurrency-group" {
			t.Errorf("%s reads %q, %v", name, why.Message(), why.Blockers)
		}
	}
	page, err := p.service.Log(t.Context(), a, id, "", 0)
	p.must(err)
	if len(page.Lines) != 2 || !strings.Contains(page.Lines[1].Text, `group "g"`) || strings.Contains(page.Lines[1].Text, "secret") {
		t.Errorf("the log shows %+v", page.Lines)
	}
}
