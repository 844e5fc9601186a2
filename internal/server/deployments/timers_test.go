package deployments_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// quick contains timers for tests that wait until the timers expire. The sweep interval must stay
// well below a third of the other timers, or the pauses of a slow machine count as server downtime.
var quick = deployments.Options{Lease: time.Second, Lost: time.Second, Sweep: 150 * time.Millisecond}

// patient contains timers for tests in which another event must happen before the timers expire.
var patient = deployments.Options{Lease: 2 * time.Second, Lost: time.Minute, Sweep: 200 * time.Millisecond}

func TestSilenceBeforeLeaveRequeues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, patient)
		id := p.deploy(p.stack("dev"))
		first := p.poll("a")
		p.run()
		p.eventually("requeueing", func() bool { return p.job(id).Epoch == 2 })
		if kind := fault.KindOf(p.heartbeat(first, protocol.PhaseStarting)); kind != fault.KindGone {
			t.Errorf("permission to start for a superseded claim: %q", kind)
		}
		if kind := fault.KindOf(p.result(first, workflow.StatusSucceeded)); kind != fault.KindGone {
			t.Errorf("a result for a superseded claim: %q", kind)
		}
		second := p.poll("b")
		if second == nil || second.Job.Epoch != 2 {
			t.Fatalf("second claim = %+v", second)
		}
		p.must(p.heartbeat(second, protocol.PhaseStarting))
		p.must(p.result(second, workflow.StatusSucceeded))
		if job := p.job(id); job.Status != workflow.StatusSucceeded || len(job.Notes) != 1 || !strings.Contains(job.Notes[0].Text, "stopped reporting") {
			t.Errorf("job = %+v", job)
		}
	})
}

func TestHeartbeatsKeepTheClaim(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), patient)
	id := p.deploy(p.stack("dev"))
	c := p.poll("a")
	p.run()
	for begin := time.Now(); time.Since(begin) < 2*patient.Lease; {
		<-time.After(50 * time.Millisecond)
		p.must(p.heartbeat(c, protocol.PhasePreparing))
	}
	if job := p.job(id); job.Epoch != 1 || job.Status != workflow.StatusAccepted {
		t.Errorf("job = %+v", job)
	}
}

func TestLostAndFound(t *testing.T) {
	for _, truth := range []workflow.Status{workflow.StatusSucceeded, workflow.StatusFailed} {
		t.Run(string(truth), func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, db *store.DB) {
				p := newPlant(t, db, quick)
				st := p.stack("dev")
				id := p.deploy(st)
				c := p.poll("a")
				p.must(p.heartbeat(c, protocol.PhaseStarting))
				// The update is in progress when the runner stops reporting.
				u, err := p.stacks.CreateUpdate(t.Context(), p.user, st, stacks.KindUpdate,
					stacks.Program{Metadata: stacks.Metadata{Environment: map[string]string{"ci.build.id": id}}})
				p.must(err)
				if u.DeploymentID != id {
					t.Fatalf("the update is linked to %q", u.DeploymentID)
				}
				_, err = p.stacks.Start(t.Context(), u, nil, 0)
				p.must(err)
				p.run()
				p.eventually("losing the job", func() bool { return p.job(id).Reason == workflow.ReasonLost })
				if job := p.job(id); job.Status != workflow.StatusFailed {
					t.Errorf("a lost job is %s", job.Status)
				}
				next := p.deploy(st)
				if c := p.poll("b"); c != nil {
					t.Fatal("the next deployment started during an update")
				}
				if kind := fault.KindOf(p.heartbeat(c, protocol.PhaseStarting)); kind != fault.KindGone {
					t.Errorf("requesting to start again after the job was lost: %q", kind)
				}
				// The runner reports again: its calls succeed and its result is recorded.
				p.must(p.heartbeat(c, protocol.PhaseRunning))
				if truth == workflow.StatusSucceeded {
					u, err = p.stacks.FindUpdate(t.Context(), st, u.ID)
					p.must(err)
					p.must(p.stacks.Complete(t.Context(), u, stacks.Succeeded))
				}
				p.must(p.result(c, truth))
				p.must(p.result(c, truth))
				if job := p.job(id); job.Status != truth || job.Reason == workflow.ReasonLost || len(job.Results) != 1 {
					t.Errorf("after the late result: %+v", job)
				}
				if kind := fault.KindOf(p.heartbeat(c, protocol.PhaseRunning)); kind != fault.KindGone {
					t.Errorf("a heartbeat after the result: %q", kind)
				}
				if c := p.poll("b"); c == nil || c.Job.DeploymentID != next {
					t.Errorf("the next deployment did not start: %+v", c)
				}
			})
		})
	}
}

func TestQueueGoesOnWhenTheLostUpdateEnds(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), quick)
	st := p.stack("dev")
	id := p.deploy(st)
	c := p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	u, err := p.stacks.CreateUpdate(t.Context(), p.user, st, stacks.KindUpdate,
		stacks.Program{Metadata: stacks.Metadata{Environment: map[string]string{"ci.build.id": id}}})
	p.must(err)
	_, err = p.stacks.Start(t.Context(), u, nil, 0)
	p.must(err)
	p.run()
	p.eventually("losing the job", func() bool { return p.job(id).Reason == workflow.ReasonLost })
	next := p.deploy(st)
	got := make(chan *deployments.Claim, 1)
	go func() {
		answer, err := p.service.Poll(t.Context(), p.request("b", 20*time.Second).From(p.agent))
		c := answer.Claim
		if err != nil {
			t.Errorf("poll: %v", err)
		}
		got <- c
	}()
	select {
	case c := <-got:
		t.Fatalf("claimed %+v during an update", c)
	case <-time.After(200 * time.Millisecond):
	}
	u, err = p.stacks.FindUpdate(t.Context(), st, u.ID)
	p.must(err)
	p.must(p.stacks.Cancel(t.Context(), u, "operator"))
	if c := <-got; c == nil || c.Job.DeploymentID != next {
		t.Errorf("claimed %+v", c)
	}
}

func TestSilenceWhileTheServerWasAwayDoesNotCount(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{Sweep: 20 * time.Millisecond})
		id := p.deploy(p.stack("dev"))
		c := p.poll("a")
		p.must(p.heartbeat(c, protocol.PhaseStarting))
		// The server was last up an hour ago, when the job last reported.
		hourAgo := time.Now().Add(-time.Hour)
		p.change(id, func(j *store.Job) { j.LastSeenAt = hourAgo })
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return tx.Beat(hourAgo.Add(time.Minute), time.Second)
		}))
		p.run()
		p.eventually("forgiveness", func() bool { return time.Since(p.job(id).LastSeenAt) < 10*time.Minute })
		if job := p.job(id); job.Status != workflow.StatusRunning {
			t.Errorf("job = %s %s", job.Status, job.Reason)
		}
		p.change(id, func(j *store.Job) { j.LastSeenAt = time.Now().Add(-11 * time.Minute) })
		p.eventually("losing the job", func() bool { return p.job(id).Reason == workflow.ReasonLost })
	})
}

func TestClockThatGoesBackLosesNoJob(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{Sweep: 20 * time.Millisecond})
		id := p.deploy(p.stack("dev"))
		c := p.poll("a")
		p.must(p.heartbeat(c, protocol.PhaseStarting))
		// All earlier times were recorded an hour ahead.
		ahead := time.Now().Add(time.Hour)
		p.change(id, func(j *store.Job) { j.LastSeenAt = ahead })
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return tx.Beat(ahead, time.Second)
		}))
		p.run()
		p.must(p.heartbeat(c, protocol.PhaseRunning))
		if job := p.job(id); job.Status != workflow.StatusRunning || time.Until(job.LastSeenAt) > time.Minute {
			t.Errorf("job = %s %s, last report %s from now", job.Status, job.Reason, time.Until(job.LastSeenAt))
		}
		p.change(id, func(j *store.Job) { j.LastSeenAt = time.Now().Add(-11 * time.Minute) })
		p.eventually("losing the job", func() bool { return p.job(id).Reason == workflow.ReasonLost })
	})
}

func TestQueueTimeoutAndDeletedStack(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{Sweep: 20 * time.Millisecond})
	old, gone := p.stack("old"), p.stack("gone")
	one, two := p.deploy(old), p.deploy(gone)
	p.change(one, func(j *store.Job) { j.QueuedAt = time.Now().Add(-8 * 24 * time.Hour) })
	p.must(p.stacks.Delete(t.Context(), p.user, gone, false))
	p.run()
	p.eventually("skipping", func() bool {
		return p.job(one).Status == workflow.StatusSkipped && p.job(two).Status == workflow.StatusSkipped
	})
	if r := p.job(one).Reason; r != workflow.ReasonQueueTimeout {
		t.Errorf("reason = %s", r)
	}
}

func TestEvidenceComesTooLate(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{Sweep: 20 * time.Millisecond})
	id := p.deploy(p.stack("dev"))
	c := p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	p.change(id, func(j *store.Job) { j.LastSeenAt = time.Now().Add(-time.Hour) })
	p.run()
	p.eventually("losing the job", func() bool { return p.job(id).Reason == workflow.ReasonLost })
	st, err := store.Read(t.Context(), p.db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(p.job(id).StackID) })
	p.must(err)
	linked := func(want string) {
		t.Helper()
		got, err := store.Read(t.Context(), p.db, func(tx *store.Tx) (string, error) { return p.service.LinkUpdate(tx, st, id) })
		if err != nil || got != want {
			t.Errorf("the update belongs to deployment %q (%v), want %q", got, err, want)
		}
	}
	linked(id)
	p.change(id, func(j *store.Job) { j.EndedAt = time.Now().Add(-25 * time.Hour) })
	linked("")
	p.result(c, workflow.StatusSucceeded)
	if job := p.job(id); job.Status != workflow.StatusFailed || job.Reason != workflow.ReasonLost {
		t.Errorf("job = %s %s", job.Status, job.Reason)
	}
}

// TestSilenceAndTheMachinesClock stops the only server and sets its clock while a job runs. Only
// the silence of the job while the server is up may count.
func TestSilenceAndTheMachinesClock(t *testing.T) {
	for name, what := range map[string]func(c *storetest.Clock){
		"stopped for an hour":                          func(c *storetest.Clock) { c.Pass(time.Hour) },
		"machine off for three days":                   func(c *storetest.Clock) { c.Pass(72 * time.Hour); c.Reboot() },
		"clock set an hour ahead":                      func(c *storetest.Clock) { c.Set(time.Hour) },
		"clock set an hour back":                       func(c *storetest.Clock) { c.Set(-time.Hour) },
		"machine restarts with its clock an hour slow": func(c *storetest.Clock) { c.Set(-time.Hour); c.Reboot() },
	} {
		t.Run(name, func(t *testing.T) {
			var clock storetest.Clock
			p := newPlant(t, storetest.SQLiteAt(t, &clock), deployments.Options{})
			id := p.deploy(p.stack("dev"))
			c := p.poll("a")
			p.must(p.heartbeat(c, protocol.PhaseStarting))
			up := func(d time.Duration) {
				for ; d > 0; d -= 5 * time.Second {
					p.must(p.service.Sweep(t.Context()))
					clock.Pass(5 * time.Second)
				}
				p.must(p.service.Sweep(t.Context()))
			}
			up(5 * time.Minute)
			what(&clock)
			up(4 * time.Minute)
			if job := p.job(id); job.Status != workflow.StatusRunning {
				t.Fatalf("a job that was silent for 9 min became %s %s", job.Status, job.Reason)
			}
			up(2 * time.Minute)
			if job := p.job(id); job.Reason != workflow.ReasonLost {
				t.Errorf("a job that was silent for 11 min is %s", job.Status)
			}
		})
	}
}

// TestCallsRightAfterTheClockWasSet sends a job's request before the server notices that the clock
// was set. The server must shift the earlier times, but not the time that it records with the new
// clock.
func TestCallsRightAfterTheClockWasSet(t *testing.T) {
	for name, call := range map[string]func(p *plant, c *deployments.Claim) error{
		"heartbeat": func(p *plant, c *deployments.Claim) error { return p.heartbeat(c, protocol.PhaseRunning) },
		"step status": func(p *plant, c *deployments.Claim) error {
			return p.service.StepStatus(p.t.Context(), runner(c), c.Job.ID, 0, protocol.StepStatusRequest{Status: workflow.StepRunning})
		},
		"definition": func(p *plant, c *deployments.Claim) error {
			_, err := p.service.Definition(p.t.Context(), runner(c), c.Job.ID)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var clock storetest.Clock
			p := newPlant(t, storetest.SQLiteAt(t, &clock), deployments.Options{})
			id := p.deploy(p.stack("dev"))
			c := p.poll("a")
			p.must(p.heartbeat(c, protocol.PhaseStarting))
			p.must(p.service.Sweep(t.Context()))
			clock.Set(-time.Hour)
			p.must(call(p, c))
			p.must(p.service.Sweep(t.Context()))
			if job := p.job(id); job.Status != workflow.StatusRunning {
				t.Errorf("a job that just reported became %s %s", job.Status, job.Reason)
			}
		})
	}
	t.Run("claim", func(t *testing.T) {
		var clock storetest.Clock
		p := newPlant(t, storetest.SQLiteAt(t, &clock), deployments.Options{})
		id := p.deploy(p.stack("dev"))
		p.must(p.service.Sweep(t.Context()))
		clock.Set(-time.Hour)
		p.poll("a")
		p.must(p.service.Sweep(t.Context()))
		if job := p.job(id); job.Status != workflow.StatusAccepted || job.Epoch != 1 {
			t.Errorf("a job that was just claimed is %s in epoch %d", job.Status, job.Epoch)
		}
	})
}
