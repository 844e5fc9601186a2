package deployments_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

func TestOneHolderReceivesLeave(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, patient)
		id := p.deploy(p.stack("dev"))
		c := p.poll("a")
		if out, err := p.beat(c, protocol.PhasePreparing, ""); err != nil || out.Started {
			t.Fatalf("before leave: %+v, %v", out, err)
		}
		for range 2 { // the answer to the first request can be lost
			if out, err := p.beat(c, protocol.PhaseStarting, "pod-1"); err != nil || !out.Started {
				t.Fatalf("leave for the first holder: %+v, %v", out, err)
			}
		}
		for _, holder := range []string{"pod-2", ""} {
			if kind := fault.KindOf(p.held(c, protocol.PhaseStarting, holder)); kind != fault.KindGone {
				t.Errorf("leave for the holder %q: %q", holder, kind)
			}
		}
		if kind := fault.KindOf(p.held(c, protocol.PhaseRunning, "pod-2")); kind != fault.KindGone {
			t.Errorf("a heartbeat of another holder: %q", kind)
		}
		if job := p.job(id); job.Holder != "pod-1" || job.Status != workflow.StatusRunning {
			t.Errorf("job = %+v", job)
		}
		// The agent's heartbeats still receive answers, but only the holder's extend the lease.
		past := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
		p.change(id, func(job *store.Job) { job.LastSeenAt = past })
		if out, err := p.beat(c, protocol.PhasePreparing, ""); err != nil || !out.Started {
			t.Errorf("the agent's heartbeat: %+v, %v", out, err)
		}
		if seen := p.job(id).LastSeenAt; !seen.Equal(past) {
			t.Errorf("the agent's heartbeat extended the lease to %s", seen)
		}
		p.must(p.held(c, protocol.PhaseRunning, "pod-1"))
		if seen := p.job(id).LastSeenAt; !seen.After(past) {
			t.Error("the holder's heartbeat did not extend the lease")
		}
		p.must(p.result(c, workflow.StatusSucceeded))
		if kind := fault.KindOf(p.held(c, protocol.PhaseStarting, "pod-1")); kind != fault.KindGone {
			t.Errorf("leave after the result: %q", kind)
		}
	})
}

func TestHoldersCompete(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, patient)
		p.deploy(p.stack("dev"))
		c := p.poll("a")
		var wg sync.WaitGroup
		granted := make(chan string, 8)
		for holder := range strings.FieldsSeq("a b c d e f g h") {
			wg.Go(func() {
				switch err := p.held(c, protocol.PhaseStarting, holder); {
				case err == nil:
					granted <- holder
				case fault.KindOf(err) != fault.KindGone:
					t.Errorf("holder %s: %v", holder, err)
				}
			})
		}
		wg.Wait()
		if len(granted) != 1 {
			t.Errorf("%d holders received leave", len(granted))
		}
	})
}

func TestRequeueForgetsTheHolder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, patient)
		id := p.deploy(p.stack("dev"))
		first := p.poll("a")
		p.run()
		p.eventually("requeueing", func() bool { return p.job(id).Epoch == 2 })
		second := p.poll("b")
		p.must(p.held(second, protocol.PhaseStarting, "pod-of-b"))
		if kind := fault.KindOf(p.held(first, protocol.PhaseStarting, "pod-of-a")); kind != fault.KindGone {
			t.Errorf("leave for the first claim: %q", kind)
		}
	})
}

func TestUnnamedLeave(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), patient)
	p.deploy(p.stack("dev"))
	c := p.poll("a")
	for range 2 {
		p.must(p.held(c, protocol.PhaseStarting, "")) // an agent that starts containers itself repeats its request
	}
	if kind := fault.KindOf(p.held(c, protocol.PhaseStarting, "pod")); kind != fault.KindGone {
		t.Errorf("leave for a named holder: %q", kind)
	}
	for _, holder := range []string{strings.Repeat("x", 129), "two\nlines"} {
		if kind := fault.KindOf(p.held(c, protocol.PhaseRunning, holder)); kind != fault.KindInvalid {
			t.Errorf("holder %q: %q", holder, kind)
		}
	}
}

// TestNotStarted checks that an agent cannot report that a job was not started once a runner has
// permission, and that no runner gets permission after such a report.
func TestNotStarted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, patient)
		report := protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonImage, FinishedAt: time.Now(), NotStarted: true}

		id := p.deploy(p.stack("dev"))
		c := p.poll("a")
		p.must(p.held(c, protocol.PhaseStarting, "pod"))
		if kind := fault.KindOf(p.service.Result(t.Context(), runner(c), c.Job.ID, report)); kind != fault.KindConflict {
			t.Errorf("the report after leave: %q", kind)
		}
		if job := p.job(id); job.Status != workflow.StatusRunning {
			t.Errorf("job = %+v", job)
		}
		p.must(p.result(c, workflow.StatusSucceeded))

		id = p.deploy(p.stack("prod"))
		c = p.poll("a")
		p.must(p.service.Result(t.Context(), runner(c), c.Job.ID, report))
		if kind := fault.KindOf(p.held(c, protocol.PhaseStarting, "pod")); kind != fault.KindGone {
			t.Errorf("leave after the report: %q", kind)
		}
		if job := p.job(id); job.Status != workflow.StatusFailed || job.Reason != workflow.ReasonImage || !job.StartedAt.IsZero() {
			t.Errorf("job = %+v", job)
		}
		p.must(p.service.Result(t.Context(), runner(c), c.Job.ID, report)) // a repeated report
	})
}
