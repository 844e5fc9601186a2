package deployments_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestClaimPassesHeldStacks claims jobs while another write holds the stack of the first one. The claim
// must not wait for that write, and must take the job when the write has ended, without a notification.
func TestClaimPassesHeldStacks(t *testing.T) {
	db := storetest.Postgres(t)
	p := newPlant(t, db, deployments.Options{Sweep: time.Hour})
	held, free := p.stack("held"), p.stack("free")
	first, second := p.deploy(held), p.deploy(free)
	holding, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := db.Write(t.Context(), scope.Stack(held.OrgID, held.ID), func(*store.Tx) error {
			close(holding)
			<-release
			return nil
		})
		if err != nil {
			t.Errorf("the other write: %v", err)
		}
	})
	<-holding
	if c := p.poll("a"); c == nil || c.Job.DeploymentID != second {
		t.Errorf("claimed %+v while the stack of the first job was held, want the second job", c)
	}
	got := make(chan *deployments.Claim, 1)
	wg.Go(func() {
		answer, err := p.service.Poll(t.Context(), p.request("b", time.Minute).From(p.agent))
		if err != nil {
			t.Errorf("the held poll: %v", err)
		}
		got <- answer.Claim
	})
	p.eventually("the held poll", func() bool { return p.service.HeldPolls() == 1 })
	close(release)
	began := time.Now()
	if c := <-got; c == nil || c.Job.DeploymentID != first {
		t.Errorf("claimed %+v after the other write, want the first job", c)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the held poll got the job only after %s", took)
	}
	wg.Wait()
}

// TestServersRespectTheLimit has the agents of two servers claim and end jobs of one organization at the
// same time.
func TestServersRespectTheLimit(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	const limit, jobs = 2, 24
	p := newPlant(t, first, deployments.Options{Cap: limit})
	other := &plant{t: t, db: second, org: p.org, pool: p.pool, agent: p.agent, user: p.user}
	other.build(deployments.Options{Cap: limit})
	for i := range jobs {
		p.deploy(p.stack(fmt.Sprint("s", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	taken := map[string]bool{}
	var wg sync.WaitGroup
	for i, server := range []*plant{p, other, p, other, p, other} {
		wg.Go(func() {
			for ctx.Err() == nil {
				answer, err := server.service.Poll(ctx, server.request(fmt.Sprint("agent", i), 0).From(p.agent))
				if err != nil && ctx.Err() == nil {
					t.Errorf("poll: %v", err)
					cancel()
				}
				if answer.Claim == nil || ctx.Err() != nil {
					continue
				}
				active, err := store.Read(ctx, first, func(tx *store.Tx) (int64, error) {
					n, _, err := tx.CountActiveJobs(p.org.ID)
					return n, err
				})
				if err != nil || active > limit {
					t.Errorf("%d jobs are active (%v), and the limit is %d", active, err, limit)
				}
				c := answer.Claim
				if err := server.heartbeat(c, protocol.PhaseStarting); err != nil {
					t.Errorf("permission to start: %v", err)
				}
				if err := server.result(c, workflow.StatusSucceeded); err != nil {
					t.Errorf("result: %v", err)
				}
				mu.Lock()
				if taken[c.Job.ID] {
					t.Errorf("the job %s was claimed twice", c.Job.ID)
				}
				if taken[c.Job.ID] = true; len(taken) == jobs {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(taken) != jobs {
		t.Errorf("%d jobs were claimed, want %d", len(taken), jobs)
	}
}
