package deployments_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestEachJobOnce has four agents claim 200 jobs of 20 stacks while the jobs are being created. Each
// job must be claimed exactly once.
func TestEachJobOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const jobs, stackCount, agents = 200, 20, 4
		p := newPlant(t, db, deployments.Options{})
		p.run()
		var mu sync.Mutex
		taken := map[string]int{}
		busy := map[string]bool{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		done := make(chan struct{})
		var wg sync.WaitGroup
		for i := range agents {
			wg.Go(func() {
				for {
					answer, err := p.service.Poll(ctx, p.request(fmt.Sprint("agent", i), 10*time.Second).From(p.agent))
					c := answer.Claim
					select {
					case <-done:
						return
					default:
					}
					if err != nil {
						t.Errorf("poll: %v", err)
						return
					}
					if c == nil {
						continue
					}
					mu.Lock()
					taken[c.Job.DeploymentID]++
					if busy[c.Job.StackID] {
						t.Errorf("two deployments of a stack run at once")
					}
					busy[c.Job.StackID] = true
					all := len(taken) == jobs
					mu.Unlock()
					if err := p.heartbeat(c, protocol.PhaseStarting); err != nil {
						t.Errorf("permission to start: %v", err)
					}
					mu.Lock()
					busy[c.Job.StackID] = false
					mu.Unlock()
					if err := p.result(c, workflow.StatusSucceeded); err != nil {
						t.Errorf("result: %v", err)
					}
					if all {
						close(done)
						cancel()
						return
					}
				}
			})
		}
		stackList := make([]store.Stack, stackCount)
		for i := range stackList {
			stackList[i] = p.stack(fmt.Sprint("s", i))
		}
		for i := range jobs {
			p.deploy(stackList[i%stackCount])
		}
		wg.Wait()
		for id, n := range taken {
			if n != 1 {
				t.Errorf("deployment %s was claimed %d times", id, n)
			}
		}
		if len(taken) != jobs {
			t.Errorf("%d deployments were claimed, want %d", len(taken), jobs)
		}
	})
}

type model struct {
	id      string
	stack   int
	claims  []*deployments.Claim
	left    map[int64]int // permitted starts by epoch
	final   workflow.Status
	lost    bool
	correct bool
}

// TestLifeOfJobs applies random events to a queue and checks its invariants.
func TestLifeOfJobs(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{Cap: 3, Sweep: 10 * time.Second})
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		var stackList []store.Stack
		for i := range 3 {
			stackList = append(stackList, p.stack(fmt.Sprintf("r%d-%d", round, i)))
		}
		var all []*model
		find := func(id string) *model {
			for _, m := range all {
				if m.id == id {
					return m
				}
			}
			return nil
		}
		pick := func(rt *rapid.T) (*model, *deployments.Claim) {
			var claims []*deployments.Claim
			for _, m := range all {
				claims = append(claims, m.claims...)
			}
			if len(claims) == 0 {
				rt.Skip("nothing is claimed")
			}
			c := rapid.SampledFrom(claims).Draw(rt, "claim")
			return find(c.Job.DeploymentID), c
		}
		ended := func(m *model, s workflow.Status) {
			if m.final != "" && !(m.lost && !m.correct) {
				rt.Fatalf("deployment ended as %s and then as %s", m.final, s)
			}
			m.correct = m.lost
			m.final = s
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": func(rt *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(rt, "stack")
				all = append(all, &model{id: p.deploy(stackList[i]), stack: i, left: map[int64]int{}})
			},
			"claim": func(rt *rapid.T) {
				c := p.poll(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "agent"))
				if c == nil {
					return
				}
				m := find(c.Job.DeploymentID)
				if m == nil {
					rt.Fatalf("claimed an unknown deployment of another round")
				}
				for _, old := range m.claims {
					if old.Job.Epoch >= c.Job.Epoch {
						rt.Fatalf("claimed twice without a new epoch: %d after %d", c.Job.Epoch, old.Job.Epoch)
					}
				}
				for _, o := range all {
					if o.stack == m.stack && o.final == "" && o != m && p.job(o.id).Version < c.Job.Version {
						rt.Fatalf("claimed version %d before an older one of its stack", c.Job.Version)
					}
				}
				m.claims = append(m.claims, c)
			},
			"leave": func(rt *rapid.T) {
				m, c := pick(rt)
				if p.heartbeat(c, protocol.PhaseStarting) == nil {
					m.left[c.Job.Epoch]++
				}
			},
			"result": func(rt *rapid.T) {
				m, c := pick(rt)
				s := rapid.SampledFrom([]workflow.Status{workflow.StatusSucceeded, workflow.StatusFailed}).Draw(rt, "status")
				before := p.job(m.id)
				if p.result(c, s) != nil {
					return
				}
				if before.Status.Final() && before.Reason != workflow.ReasonLost {
					return // a retry
				}
				if before.Reason == workflow.ReasonLost && s == workflow.StatusSucceeded {
					return // no job here makes the update that would prove it
				}
				ended(m, s)
			},
			"cancel": func(rt *rapid.T) {
				if len(all) == 0 {
					rt.Skip("nothing is there")
				}
				m := rapid.SampledFrom(all).Draw(rt, "deployment")
				before := p.job(m.id)
				err := p.service.Cancel(rt.Context(), stackList[m.stack], m.id, "operator", false)
				finished := before.Status.Final() && !before.CancelRequested && before.Reason != workflow.ReasonCancelled && before.Reason != workflow.ReasonLost
				if refused := fault.KindOf(err) == fault.KindConflict; refused != finished || err != nil && !refused {
					rt.Fatalf("cancelling a job that is %s (%q): %v", before.Status, before.Reason, err)
				}
				switch before.Status {
				case workflow.StatusNotStarted:
					ended(m, workflow.StatusSkipped)
				case workflow.StatusAccepted:
					ended(m, workflow.StatusFailed)
				}
			},
			"silence": func(rt *rapid.T) {
				m, _ := pick(rt)
				before := p.job(m.id)
				p.change(m.id, func(j *store.Job) {
					if !j.Status.Final() && j.Status != workflow.StatusNotStarted {
						j.LastSeenAt = time.Now().Add(-time.Hour)
					}
				})
				p.must(p.service.Sweep(rt.Context()))
				switch {
				case before.Status == workflow.StatusRunning:
					ended(m, workflow.StatusFailed)
					m.lost = true
				case before.Status == workflow.StatusAccepted && before.Silences == 2:
					ended(m, workflow.StatusFailed) // the third claim that ended in silence
				}
			},
			"": func(rt *rapid.T) {
				active := map[int]int{}
				total := 0
				for _, m := range all {
					job := p.job(m.id)
					if job.Status == workflow.StatusAccepted || job.Status == workflow.StatusRunning {
						active[m.stack]++
						total++
					}
					if m.final != "" && job.Status != m.final {
						rt.Fatalf("a final %s became %s", m.final, job.Status)
					}
					if m.final == "" && job.Status.Final() {
						rt.Fatalf("ended as %s (%s) without an event", job.Status, job.Reason)
					}
					if len(m.left) > 1 {
						rt.Fatalf("%d epochs were permitted to start: the job ran more than once", len(m.left))
					}
				}
				for _, n := range active {
					if n > 1 {
						rt.Fatalf("%d deployments of a stack are active", n)
					}
				}
				if total > 3 {
					rt.Fatalf("%d deployments are active, the cap is 3", total)
				}
			},
		})
		for _, m := range all {
			if err := p.service.Cancel(rt.Context(), stackList[m.stack], m.id, "the end", false); fault.KindOf(err) != fault.KindConflict {
				p.must(err)
			}
			for _, c := range m.claims {
				p.result(c, workflow.StatusFailed)
			}
			if job := p.job(m.id); !job.Status.Final() {
				rt.Fatalf("still %s at the end", job.Status)
			}
		}
	})
}

// TestFirstComeFirstServedAcrossPools queues a stack's older deployment for a pool without agents.
// The newer deployment must not start first.
func TestFirstComeFirstServedAcrossPools(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		away, err := p.pools.Create(t.Context(), p.user, p.org, "away", "")
		p.must(err)
		st := p.stack("dev")
		older, err := p.service.Create(t.Context(), p.user, st, asked(t, `{"operation":"update","agentPoolID":"`+away.Pool.ID+`"}`), "api")
		p.must(err)
		newer := p.deploy(st)
		if c := p.poll("a"); c != nil {
			t.Fatalf("deployment %d overtook %d", c.Job.Version, older.Version)
		}
		p.must(p.service.Cancel(t.Context(), st, older.ID, "operator", false))
		if c := p.poll("a"); c == nil || c.Job.DeploymentID != newer {
			t.Errorf("claimed %+v, want the newer one", c)
		}
	})
}

func TestStoppingAnswersHeldRequests(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- p.service.Run(ctx) }()
	polled := make(chan error, 1)
	go func() {
		answer, err := p.service.Poll(t.Context(), p.request("a", time.Minute).From(p.agent))
		c := answer.Claim
		if c != nil {
			t.Errorf("claimed %+v", c)
		}
		polled <- err
	}()
	p.eventually("the poll", func() bool {
		o, err := p.pools.Get(t.Context(), p.org.ID, p.pool)
		return err == nil && len(o.Agents) == 1
	})
	cancel()
	if err := <-polled; err != nil {
		t.Errorf("poll: %v", err)
	}
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
	if answer, err := p.service.Poll(t.Context(), p.request("a", time.Minute).From(p.agent)); answer.Claim != nil || err != nil {
		t.Errorf("a poll after the end: %+v, %v", answer.Claim, err)
	}
	st := p.stack("dev")
	id := p.deploy(st)
	page, err := p.service.Log(t.Context(), st, id, "", 0)
	p.must(err)
	began := time.Now()
	if _, err := p.service.Log(t.Context(), st, id, page.Next, time.Minute); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("a request for more log after the end: %v after %s", err, time.Since(began))
	}
}
