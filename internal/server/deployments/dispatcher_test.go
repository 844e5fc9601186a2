package deployments_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestHeldPollsRespectTheLimit has more polls wait than the organization may run jobs, so that one
// claim serves several polls, but not all.
func TestHeldPollsRespectTheLimit(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const limit, agents, jobs = 3, 6, 12
		p := newPlant(t, db, deployments.Options{Cap: limit})
		p.run()
		for i := range jobs {
			p.deploy(p.stack(fmt.Sprint("s", i)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var active, ended atomic.Int64
		var wg sync.WaitGroup
		for i := range agents {
			wg.Go(func() {
				for ctx.Err() == nil {
					answer, err := p.service.Poll(ctx, p.request(fmt.Sprint("agent", i), 20*time.Second).From(p.agent))
					c := answer.Claim
					if ctx.Err() != nil || c == nil {
						continue
					}
					if err != nil {
						t.Errorf("poll: %v", err)
						cancel()
						return
					}
					if n := active.Add(1); n > limit {
						t.Errorf("%d jobs are active, and the limit is %d", n, limit)
					}
					if err := p.heartbeat(c, protocol.PhaseStarting); err != nil {
						t.Errorf("permission to start: %v", err)
					}
					active.Add(-1)
					if err := p.result(c, workflow.StatusSucceeded); err != nil {
						t.Errorf("result: %v", err)
					}
					if ended.Add(1) == jobs {
						cancel()
					}
				}
			})
		}
		wg.Wait()
		if n := ended.Load(); n != jobs {
			t.Errorf("%d jobs have ended, want %d", n, jobs)
		}
	})
}

// TestPollsThatArriveTwice holds each poll of an agent twice, as a proxy does that keeps a poll whose
// client has repeated it, or that doubles requests. The job must reach both, and a copy that arrives
// later must not take another job, which nobody would run.
func TestPollsThatArriveTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		first, second := p.stack("first"), p.stack("second")
		r := p.request("a", 50*time.Second)
		claims := make(chan *deployments.Claim, 2)
		for range 2 {
			go func() {
				answer, err := p.service.Poll(t.Context(), r.From(p.agent))
				if err != nil {
					t.Errorf("a held poll: %v", err)
				}
				claims <- answer.Claim
			}()
		}
		p.eventually("two held polls", func() bool { return p.service.HeldPolls() == 2 })
		began := time.Now()
		id := p.deploy(first)
		one, two := <-claims, <-claims
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the second copy got its answer after %s", took)
		}
		for _, c := range []*deployments.Claim{one, two} {
			if c == nil || c.Job.DeploymentID != id || c.Job.Epoch != 1 || c.Token == "" {
				t.Fatalf("the copies got %+v and %+v", one, two)
			}
		}
		p.must(p.heartbeat(two, protocol.PhaseStarting))
		p.deploy(second)
		answer, err := p.service.Poll(t.Context(), r.From(p.agent))
		if err != nil || answer.Claim != nil {
			t.Errorf("a copy that arrives after the start got %+v, %v", answer.Claim, err)
		}
		if p.poll("b") == nil {
			t.Error("another agent gets no job")
		}
	})
}

// TestRepeatedPollBehindAnother repeats a poll whose response was lost while another agent's poll
// waits.
func TestRepeatedPollBehindAnother(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		id := p.deploy(p.stack("dev"))
		r := p.request("b", 0)
		answer, err := p.service.Poll(t.Context(), r.From(p.agent))
		lost := answer.Claim
		p.must(err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.service.Poll(ctx, p.request("a", 50*time.Second).From(p.agent)); ctx.Err() == nil {
				t.Errorf("the first poll ended: %v", err)
			}
		})
		p.eventually("the first poll", func() bool {
			o, err := p.pools.Get(t.Context(), p.org.ID, p.pool)
			return err == nil && len(o.Agents) == 2
		})
		r.Wait = 50 * time.Second
		began := time.Now()
		repeated, err := p.service.Poll(t.Context(), r.From(p.agent))
		again := repeated.Claim
		p.must(err)
		if again == nil || again.Job.DeploymentID != id || again.Job.Epoch != lost.Job.Epoch {
			t.Errorf("the repeated poll got %+v, want the job of %s", again, id)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the repeated poll got its job after %s", took)
		}
		cancel()
		wg.Wait()
	})
}
