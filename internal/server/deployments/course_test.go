package deployments_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// ran deploys, and ends the deployment after the given time.
func (p *plant) ran(st store.Stack, status workflow.Status, took time.Duration) string {
	p.t.Helper()
	id := p.deploy(st)
	c := p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseRunning))
	p.must(p.result(c, status))
	p.change(id, func(j *store.Job) { j.StartedAt = j.EndedAt.Add(-took) })
	return id
}

func (p *plant) course(st store.Stack, id string) (deployments.Course, deployments.Details) {
	p.t.Helper()
	d, err := p.service.GetFor(p.t.Context(), p.user, st, id)
	p.must(err)
	c, err := p.service.Course(p.t.Context(), st, d)
	p.must(err)
	return c, d
}

// TestCourse compares deployments with those before them.
func TestCourse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("a")
		for n := range 4 {
			p.ran(st, workflow.StatusSucceeded, time.Duration(n+1)*time.Minute)
		}
		failed := p.ran(st, workflow.StatusFailed, time.Hour)
		if c, _ := p.course(st, failed); c.Usual.Runs != 0 || c.Good == nil || c.Good.Deployment != 4 || c.Goods != 4 || c.Failures != 0 || c.Previous != 4 || c.Next != 0 {
			t.Errorf("the first failure after 4 good runs: %+v, good %+v", c, c.Good)
		}
		p.ran(st, workflow.StatusSucceeded, 10*time.Minute)
		again := p.ran(st, workflow.StatusFailed, time.Hour)
		last := p.ran(st, workflow.StatusFailed, time.Hour)
		if c, _ := p.course(st, again); c.Usual.Runs != 5 || c.Usual.Median != 3*time.Minute || c.Usual.Low != time.Minute || c.Usual.High != 4*time.Minute || c.Goods != 1 || c.Next != 8 {
			t.Errorf("with 5 good runs: %+v", c)
		}
		if c, _ := p.course(st, last); c.Good == nil || c.Good.Deployment != 6 || c.Failures != 1 {
			t.Errorf("the second failure: %+v, good %+v", c, c.Good)
		}
		if c, _ := p.course(st, failed); c.Next != 6 {
			t.Errorf("the run after the first failure: %d", c.Next)
		}
		queued := p.deploy(st)
		p.deploy(st)
		if c, d := p.course(st, queued); c.Behind != 1 || c.Good != nil || d.Job.Cause != nil {
			t.Errorf("a queued deployment: %+v", c)
		}
		other := p.stack("b")
		if c, _ := p.course(other, p.ran(other, workflow.StatusFailed, time.Hour)); c.Good != nil || c.Usual.Runs != 0 || c.Previous != 0 {
			t.Errorf("the first deployment of a stack: %+v", c)
		}
	})
}

// TestCauseIsKept checks that the cause of a failure is stored when a deployment ends, that later evidence replaces it, and that
// deployments which earlier versions have ended get one from their log.
func TestCauseIsKept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("a")
		fail := func() (string, *deployments.Claim) {
			id := p.deploy(st)
			c := p.poll("a")
			p.must(p.heartbeat(c, protocol.PhaseRunning))
			step := len(p.job(id).Steps) - 1
			framed := protocol.AppendFrame(nil, time.Now(), false, []byte("begins"))
			framed = protocol.AppendFrame(framed, time.Now(), false, []byte("error: \x1b[31mthe lock\u202e is held"))
			_, err := p.service.Logs().Put(t.Context(), joblog.Key(c.Job.ID, c.Job.Epoch, step), 0, framed)
			p.must(err)
			p.must(p.service.StepStatus(t.Context(), runner(c), c.Job.ID, step, protocol.StepStatusRequest{Status: workflow.StepFailed}))
			return id, c
		}
		causeOf := func(id string) *store.Cause {
			t.Helper()
			d, err := p.service.GetFor(t.Context(), p.user, st, id)
			p.must(err)
			c, err := p.service.Cause(t.Context(), d)
			p.must(err)
			return c
		}
		const headline = "pulumi update failed: the lock is held"
		id, c := fail()
		p.must(p.result(c, workflow.StatusFailed))
		kept := p.job(id).Cause
		if kept == nil || kept.Kind != cause.Command || kept.Headline != headline || kept.Line != 2 {
			t.Fatalf("the stored cause is %+v", kept)
		}
		if list, err := p.service.Page(t.Context(), p.user, p.org.ID, deployments.Query{Stage: deployments.StageFinished}); err != nil || len(list.Items) != 1 || list.Items[0].Job.Cause == nil || list.Items[0].Job.Cause.Headline != headline {
			t.Errorf("a list does not have the cause: %+v, %v", list.Items, err)
		}
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE jobs SET cause = '' WHERE deployment_id = $1", id)
			return err
		}))
		if p.job(id).Cause != nil {
			t.Error("the cause was not removed")
		}
		if c := causeOf(id); c == nil || c.Headline != headline || c.Line != 2 {
			t.Errorf("the cause of an old deployment is %+v", c)
		}

		id, c = fail()
		p.silence(id)
		if kept := p.job(id).Cause; kept == nil || kept.Kind != cause.Agent || causeOf(id).Headline != kept.Headline {
			t.Fatalf("the cause of a lost deployment is %+v", kept)
		}
		p.must(p.result(c, workflow.StatusFailed))
		if kept := p.job(id).Cause; kept == nil || kept.Headline != headline {
			t.Errorf("after the result, the cause is %+v", kept)
		}
		id, _, _ = p.lose(p.stack("b"))
		if p.job(id).Cause == nil {
			t.Error("a lost deployment has no cause")
		}
	})
}
