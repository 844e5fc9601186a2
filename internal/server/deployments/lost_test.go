package deployments_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

func (p *plant) lose(st store.Stack) (id string, c *deployments.Claim, pulumi identity.Principal) {
	p.t.Helper()
	id = p.deploy(st)
	c = p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	pulumi = p.pulumi(c)
	p.silence(id)
	return id, c, pulumi
}

func (p *plant) silence(id string) {
	p.t.Helper()
	p.change(id, func(j *store.Job) { j.LastSeenAt = time.Now().Add(-11 * time.Minute) })
	p.must(p.service.Sweep(p.t.Context()))
	if job := p.job(id); job.Reason != workflow.ReasonLost || !strings.Contains(job.Message, workflow.UnknownEnd) {
		p.t.Fatalf("the silent job is %s", job.Status)
	}
}

func (p *plant) pulumi(c *deployments.Claim) identity.Principal {
	p.t.Helper()
	def, err := p.service.Definition(p.t.Context(), runner(c), c.Job.ID)
	p.must(err)
	who, err := identity.New(p.db, storetest.Log()).Authenticate(p.t.Context(), def.Env["PULUMI_ACCESS_TOKEN"])
	p.must(err)
	return who
}

func (p *plant) create(who identity.Principal, st store.Stack, buildID string) (store.Update, error) {
	return p.stacks.CreateUpdate(p.t.Context(), who, st, stacks.KindUpdate,
		stacks.Program{Metadata: stacks.Metadata{Environment: map[string]string{"ci.build.id": buildID}}})
}

func (p *plant) state() *states.State {
	p.t.Helper()
	s, err := states.Parse([]byte(`{"version":3,"deployment":{"manifest":{},"resources":[]}}`), nil)
	p.must(err)
	return s
}

func (p *plant) refused(what string, err error) {
	p.t.Helper()
	if fault.KindOf(err) != fault.KindForbidden {
		p.t.Errorf("%s by a lost deployment that was overtaken: %v", what, err)
	}
}

func TestLostDeploymentStartsNothingAfterItsSuccessor(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("dev")
		id, lost, late := p.lose(st)
		early, err := p.create(late, st, "")
		p.must(err)
		if err := p.heartbeat(lost, protocol.PhaseRunning); err != nil {
			t.Errorf("the heartbeat of a lost job is refused although no newer deployment was claimed: %v", err)
		}
		next := p.deploy(st)
		p.must(p.service.Sweep(t.Context()))
		c := p.poll("b")
		if c == nil || c.Job.DeploymentID != next {
			t.Fatalf("claimed %+v, want %s", c, next)
		}
		_, err = p.stacks.Start(t.Context(), early, nil, 0)
		p.refused("the start of an update", err)
		_, err = p.create(late, st, "")
		p.refused("an update", err)
		_, err = p.create(p.user, st, id)
		p.refused("an update with a user's token", err)
		_, err = p.stacks.Import(t.Context(), late, st, p.state())
		p.refused("an import", err)
		p.refused("replacing the tags", p.stacks.ReplaceTags(t.Context(), late, st, map[string]string{"a": "b"}))
		p.refused("adding a tag", p.stacks.AddTag(t.Context(), late, st, "c", "d"))
		p.refused("changing a tag", p.stacks.ChangeTag(t.Context(), late, st, "a", "e"))
		p.refused("removing a tag", p.stacks.RemoveTag(t.Context(), late, st, "a"))
		p.refused("the removal of the stack", p.stacks.Delete(t.Context(), late, st, false))
		if kind := fault.KindOf(p.heartbeat(lost, protocol.PhaseRunning)); kind != fault.KindGone {
			t.Errorf("a heartbeat after the successor's claim: %q, want gone", kind)
		}
		// Only the successor may use the stack, but the lost job may still report.
		p.must(p.heartbeat(c, protocol.PhaseStarting))
		u, err := p.create(p.pulumi(c), st, "")
		p.must(err)
		_, err = p.stacks.Start(t.Context(), u, nil, 0)
		p.must(err)
		p.must(p.result(lost, workflow.StatusFailed))
		if job := p.job(id); job.Reason == workflow.ReasonLost {
			t.Error("the result of the lost job was not recorded")
		}
	})
}

func TestLostDeploymentThatStartsHoldsTheStack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("dev")
		id, lost, late := p.lose(st)
		u, err := p.create(late, st, "")
		p.must(err)
		_, err = p.stacks.Start(t.Context(), u, nil, 0)
		p.must(err)
		next := p.deploy(st)
		p.must(p.service.Sweep(t.Context()))
		if c := p.poll("b"); c != nil {
			t.Fatal("the successor was claimed during an update")
		}
		p.must(p.stacks.Checkpoint(t.Context(), u, p.state()))
		p.must(p.heartbeat(lost, protocol.PhaseRunning))
		// Cancel also applies to a lost deployment that still runs.
		p.must(p.service.Cancel(t.Context(), st, id, "operator", false))
		out, err := p.service.Heartbeat(t.Context(), runner(lost), lost.Job.ID, protocol.HeartbeatRequest{Phase: protocol.PhaseRunning})
		if err != nil || !out.CancelRequested || out.ForceRequested {
			t.Errorf("a heartbeat after the cancellation: %+v, %v", out, err)
		}
		p.must(p.stacks.Complete(t.Context(), u, stacks.Cancelled))
		p.must(p.service.Sweep(t.Context()))
		if c := p.poll("b"); c == nil || c.Job.DeploymentID != next {
			t.Fatalf("claimed %+v, want %s", c, next)
		}
		_, err = p.create(late, st, "")
		p.refused("a second update", err)
	})
}

// TestRepeatedResultReadsNoLog checks that a repeated result does not cause the server to read the
// log again, which can be a gigabyte.
func TestRepeatedResultReadsNoLog(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	p.deploy(p.stack("dev"))
	c := p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	p.must(p.result(c, workflow.StatusSucceeded))
	again := protocol.ResultRequest{Status: workflow.StatusSucceeded, Steps: []protocol.StepResult{{Step: 0, Bytes: 1000}}}
	if err := p.service.Result(t.Context(), runner(c), c.Job.ID, again); err != nil {
		t.Errorf("a repeated result is compared with the log: %v", err)
	}
}

// TestResultsReadTheLogOnce checks that a result with missing log causes no read of the log, which
// can be a gigabyte, and that concurrent results cause one read.
func TestResultsReadTheLogOnce(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	p.deploy(p.stack("dev"))
	c := p.poll("a")
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	log := protocol.AppendFrame(nil, time.Now(), false, []byte("line"))
	_, _, err := p.service.PutLog(t.Context(), runner(c), c.Job.ID, 1, 0, log)
	p.must(err)
	sum := sha256.Sum256(log)
	complete := protocol.StepResult{Step: 1, Bytes: int64(len(log)), SHA256: hex.EncodeToString(sum[:])}
	send := func(steps ...protocol.StepResult) error {
		return p.service.Result(t.Context(), runner(c), c.Job.ID, protocol.ResultRequest{Status: workflow.StatusSucceeded, FinishedAt: time.Now(), Steps: steps})
	}
	reads := p.service.CountLogReads()
	var missing *joblog.Missing
	if err := send(complete, protocol.StepResult{Step: 2, Bytes: 1}); !errors.As(err, &missing) {
		t.Fatalf("a result with missing log: %v", err)
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("a result with missing log read the log %d times", n)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := send(complete); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := reads.Load(); n != 2 { // one chunk and the end
		t.Errorf("8 concurrent results read the log %d times, want 2", n)
	}
}

func TestSetupEndsWithTheFirstStepOfTheRunner(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	id := p.deploy(p.stack("dev"))
	c := p.poll("a")
	report := func(step int, status workflow.StepStatus) {
		t.Helper()
		p.must(p.service.StepStatus(t.Context(), runner(c), c.Job.ID, step, protocol.StepStatusRequest{Status: status}))
	}
	report(0, workflow.StepRunning)
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	// The agent is stopped before it reports the end of the set-up.
	report(1, workflow.StepRunning)
	if setup := p.job(id).Steps[0]; setup.Status != workflow.StepSucceeded || setup.FinishedAt.IsZero() {
		t.Errorf("the set-up is %+v", setup)
	}
}

// TestSuccessAfterLostNeedsAnUpdate checks that a lost deployment becomes succeeded only if the newest
// update of its operation ended well.
func TestSuccessAfterLostNeedsAnUpdate(t *testing.T) {
	type update struct {
		kind stacks.Kind
		ends stacks.Status
	}
	for _, tt := range []struct {
		name    string
		updates []update
		removed workflow.Operation // of the deployment whose stack is removed
		want    workflow.Status
	}{
		{name: "refused", want: workflow.StatusFailed},
		{name: "still running", updates: []update{{stacks.KindUpdate, stacks.Running}}, want: workflow.StatusFailed},
		{name: "failed", updates: []update{{stacks.KindUpdate, stacks.Failed}}, want: workflow.StatusFailed},
		{name: "another operation", updates: []update{{stacks.KindRefresh, stacks.Succeeded}}, want: workflow.StatusFailed},
		{name: "failed later", updates: []update{{stacks.KindUpdate, stacks.Succeeded}, {stacks.KindUpdate, stacks.Failed}}, want: workflow.StatusFailed},
		{name: "succeeded", updates: []update{{stacks.KindUpdate, stacks.Succeeded}}, want: workflow.StatusSucceeded},
		{name: "repeated", updates: []update{{stacks.KindUpdate, stacks.Failed}, {stacks.KindUpdate, stacks.Succeeded}}, want: workflow.StatusSucceeded},
		{name: "destroyed its stack", removed: workflow.OperationDestroy, want: workflow.StatusSucceeded},
		{name: "stack removed by others", removed: workflow.OperationUpdate, want: workflow.StatusFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlant(t, storetest.SQLite(t), deployments.Options{})
			st := p.stack("dev")
			id, lost, late := p.lose(st)
			for _, next := range tt.updates {
				u, err := p.stacks.CreateUpdate(t.Context(), late, st, next.kind, stacks.Program{})
				p.must(err)
				_, err = p.stacks.Start(t.Context(), u, nil, 0)
				p.must(err)
				if next.ends != stacks.Running {
					u, err = p.stacks.FindUpdate(t.Context(), st, u.ID)
					p.must(err)
					p.must(p.stacks.Complete(t.Context(), u, next.ends))
				}
			}
			switch {
			case tt.removed != "":
				p.change(id, func(j *store.Job) { j.Operation = tt.removed })
				p.must(p.stacks.Delete(t.Context(), late, st, true))
			case tt.updates == nil:
				next := p.deploy(st)
				p.must(p.service.Sweep(t.Context()))
				if c := p.poll("b"); c == nil || c.Job.DeploymentID != next {
					t.Fatalf("claimed %+v, want %s", c, next)
				}
				_, err := p.create(late, st, "")
				p.refused("an update", err)
			}
			// The second report is a repetition after a lost answer.
			p.must(p.result(lost, workflow.StatusSucceeded))
			p.must(p.result(lost, workflow.StatusSucceeded))
			job := p.job(id)
			if stillLost := job.Reason == workflow.ReasonLost; job.Status != tt.want || stillLost == (tt.want == workflow.StatusSucceeded) {
				t.Errorf("the deployment is %s (%s), want %s", job.Status, job.Reason, tt.want)
			}
			if len(job.Results) != 1 || job.Results[0].Result.Status != workflow.StatusSucceeded {
				t.Errorf("the results are %+v, want one", job.Results)
			}
		})
	}
}

// TestUpdateOfAnEndedDeployment ends a deployment whose update is in progress. The update must end with it, in
// the same write, and the deployment must not change the stack any more.
func TestUpdateOfAnEndedDeployment(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("s")
		p.deploy(st)
		c := p.poll("a")
		p.must(p.heartbeat(c, protocol.PhaseStarting))
		pulumi := p.pulumi(c)
		running, err := p.create(pulumi, st, "")
		p.must(err)
		other, err := p.create(pulumi, st, "")
		p.must(err)
		_, err = p.stacks.Start(t.Context(), running, nil, 0)
		p.must(err)
		p.must(p.result(c, workflow.StatusFailed))
		u, err := p.stacks.FindUpdate(t.Context(), st, running.ID)
		if p.must(err); stacks.Status(u.Status) != stacks.Failed {
			t.Errorf("the update is %s, want failed", u.Status)
		}
		if _, err := p.stacks.Start(t.Context(), other, nil, 0); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("the start of another update of the deployment: %v", err)
		}
	})
}
