package deployments_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestThreeSilencesEndAJob checks that a job that stops each of its agents does not travel on for
// ever, and that claims which agents hand back do not count.
func TestThreeSilencesEndAJob(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("dev")
		id, next := p.deploy(st), p.deploy(st)
		for i, agent := range []string{"a", "b", "a"} {
			for range 2 {
				p.must(p.heartbeat(p.poll("c"), protocol.PhaseReturned))
			}
			c := p.poll(agent)
			if c == nil || c.Job.DeploymentID != id {
				t.Fatalf("claim %d: %+v", i, c)
			}
			p.change(id, func(j *store.Job) { j.LastSeenAt = j.LastSeenAt.Add(-2 * time.Minute) })
			p.must(p.service.Sweep(t.Context()))
			if kind := fault.KindOf(p.heartbeat(c, protocol.PhaseStarting)); kind != fault.KindGone {
				t.Errorf("permission to start after the silence: %q", kind)
			}
		}
		job := p.job(id)
		if job.Status != workflow.StatusFailed || job.Reason != workflow.ReasonAbandoned || !strings.Contains(job.Message, "3 claims") {
			t.Errorf("after three silences: %s %s %q", job.Status, job.Reason, job.Message)
		}
		if c := p.poll("a"); c == nil || c.Job.DeploymentID != next {
			t.Errorf("the stack's next deployment is not claimed: %+v", c)
		}
	})
}

func TestReturnAfterLeaveHasNoEffect(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	id := p.deploy(p.stack("dev"))
	c := p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	p.must(p.heartbeat(c, protocol.PhaseReturned))
	if job := p.job(id); job.Status != workflow.StatusRunning || job.Epoch != 1 {
		t.Errorf("the job is %s, epoch %d", job.Status, job.Epoch)
	}
}

func TestServerDowntimeIsNoSilence(t *testing.T) {
	var clock storetest.Clock
	p := newPlant(t, storetest.SQLiteAt(t, &clock), deployments.Options{})
	id := p.deploy(p.stack("dev"))
	p.poll("a")
	for range 4 {
		p.must(p.service.Sweep(t.Context()))
		clock.Pass(time.Hour)
	}
	p.must(p.service.Sweep(t.Context()))
	if job := p.job(id); job.Status != workflow.StatusAccepted || job.Silences != 0 {
		t.Errorf("the job is %s after %d silences", job.Status, job.Silences)
	}
}
