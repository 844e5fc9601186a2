package evaluations_test

import (
	"fmt"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

const (
	deployment = workflow.TypeDeployment
	evaluation = workflow.TypePolicyEvaluation
)

// TestOnlyAgentsThatAnnounceIt tests that an agent which does not announce evaluations gets none, that a dedicated agent
// gets nothing else, and that a deployment comes first.
func TestOnlyAgentsThatAnnounceIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		st := p.stack("dev")
		for _, types := range [][]workflow.Type{nil, {deployment}, {workflow.TypeInsightsScan}} {
			if c := p.poll("old", types...); c != nil {
				t.Fatalf("an agent that announces %q got %s", types, c.Type)
			}
		}
		request, err := deployments.ParseRequest([]byte(`{"operation":"update"}`))
		p.must(err)
		_, err = p.polls.Create(t.Context(), p.user, st, request, "api")
		p.must(err)
		dedicated := p.poll("dedicated", evaluation)
		if dedicated == nil || dedicated.Type != evaluation || dedicated.Job.DeploymentID != "" {
			t.Fatalf("an agent for evaluations got %+v", dedicated)
		}
		p.must(p.heartbeat(dedicated, protocol.PhaseReturned))
		if c := p.poll("both", deployment, evaluation); c == nil || c.Type != deployment {
			t.Errorf("an agent for both got %+v before the deployment", c)
		}
		c := p.poll("both", deployment, evaluation)
		if c == nil || c.Type != evaluation || c.Job.Epoch != 2 {
			t.Fatalf("after the deployment, an agent for both got %+v", c)
		}
		if status, err := p.polls.StatusForAgent(t.Context(), p.agent, c.Job.ID); err != nil || status != workflow.StatusAccepted {
			t.Errorf("the status for its agent is %q, %v", status, err)
		}
		load, err := p.polls.PoolLoad(t.Context(), p.org.ID, p.agent.PoolID)
		if err != nil || load.Running != 2 || load.Queued != 0 {
			t.Errorf("load %+v, %v", load, err)
		}
	})
}

// TestRepeatedPollGetsItsEvaluation tests that a lost answer loses no evaluation.
func TestRepeatedPollGetsItsEvaluation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		p.stack("a")
		p.stack("b")
		first := p.repoll("agent", "poll-1", deployment, evaluation)
		again := p.repoll("agent", "poll-1", deployment, evaluation)
		if first == nil || again == nil || again.Job.ID != first.Job.ID || again.Token == first.Token || again.Type != evaluation {
			t.Fatalf("claims %+v, %+v", first, again)
		}
		p.start(again)
		if c := p.repoll("agent", "poll-1", deployment, evaluation); c != nil {
			t.Errorf("a poll got the running evaluation again: %+v", c)
		}
	})
}

// TestNewerStateSupersedes tests that one evaluation waits for a stack, which evaluates the newest state at its claim, and
// that a state which comes during an evaluation is evaluated after it.
func TestNewerStateSupersedes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		st := p.stack("dev")
		p.updated(st, 2)
		p.updated(st, 3)
		c := p.poll("agent", evaluation)
		def := p.start(c)
		e := def.PolicyEvaluation
		if e.Version != 3 || e.StackName() != "acme/proj/dev" || e.Group != "audit" || def.Architecture != "arm64" {
			t.Fatalf("definition %+v", e)
		}
		pack := e.Packs[0]
		if len(e.Packs) != 1 || pack.Label() != "lab@1.0.0" || pack.SHA256 != "ab" || string(pack.Config) != `{"no-bad-content":{"enforcementLevel":"mandatory","max":3}}` {
			t.Errorf("packs %+v", e.Packs)
		}
		for name, value := range def.Env {
			if value == e.AccessToken {
				t.Errorf("the token is in the variable %s", name)
			}
		}
		p.updated(st, 4)
		if c := p.poll("agent", evaluation); c != nil {
			t.Errorf("two evaluations of the stack run: %+v", c)
		}
		p.must(p.report(c, def, workflow.PolicyResults{Succeeded: true}))
		p.must(p.result(c, workflow.StatusSucceeded))
		c = p.poll("agent", evaluation)
		if def := p.start(c); def.PolicyEvaluation.Version != 4 {
			t.Errorf("the second evaluation has version %d", def.PolicyEvaluation.Version)
		}
		if c := p.poll("agent", evaluation); c != nil {
			t.Errorf("a third evaluation was claimed: %+v", c)
		}
	})
}

// TestPoolOfTheGroup tests that the pool of a group gets its evaluations, also those that wait already.
func TestPoolOfTheGroup(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		p.stack("dev")
		poolService := pools.New(db, storetest.Log())
		made, err := poolService.Create(t.Context(), p.user, p.org, "audits", "")
		p.must(err)
		p.write(func(tx *store.Tx) error {
			p.group.PoolID = made.Pool.ID
			return tx.SavePolicyGroup(p.group)
		})
		if c := p.poll("default", evaluation); c != nil {
			t.Errorf("the default pool got %+v", c)
		}
		p.agent.PoolID = made.Pool.ID
		if c := p.poll("audits", evaluation); c == nil {
			t.Error("the group's pool got nothing")
		}
	})
}

// TestHandedOutAgain tests that an evaluation whose runner is silent is assigned again after its start, that nothing of the
// earlier claim counts, and that it is not tried without end.
func TestHandedOutAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Minute)
		st := p.stack("dev")
		first := p.poll("first", evaluation)
		def := p.start(first)
		p.silence(first.Job.ID)
		p.updated(st, 2)
		second := p.poll("second", evaluation)
		if second == nil || second.Job.ID != first.Job.ID || second.Job.Epoch != 2 {
			t.Fatalf("the second claim is %+v", second)
		}
		for name, err := range map[string]error{
			"heartbeat": p.heartbeat(first, protocol.PhaseRunning), "result": p.result(first, workflow.StatusSucceeded),
			"results": p.report(first, def, workflow.PolicyResults{Succeeded: true}),
		} {
			if fault.KindOf(err) != fault.KindGone {
				t.Errorf("the %s of the first claim: %v", name, err)
			}
		}
		def = p.start(second)
		results := workflow.PolicyResults{Succeeded: true, Violations: []workflow.PolicyViolation{{PolicyPackName: "lab", PolicyName: "no-bad-content", Message: "bad"}}}
		stale := *def.PolicyEvaluation
		stale.ClaimID = first.Job.ID + ".1"
		if err := p.report(second, &workflow.JobDefinition{PolicyEvaluation: &stale}, results); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("results of another claim: %v", err)
		}
		p.must(p.report(second, def, results))
		p.must(p.report(second, def, workflow.PolicyResults{Succeeded: true})) // a repetition, which changes nothing
		if e := p.evaluation(second.Job.ID); e.Violations != 1 || e.Version != 2 {
			t.Errorf("evaluation %+v", e)
		}
		p.must(p.result(second, workflow.StatusSucceeded))
		p.must(p.result(second, workflow.StatusSucceeded))
		if e := p.evaluation(second.Job.ID); e.Status != workflow.StatusSucceeded || e.Silences != 1 || len(e.Notes) != 1 {
			t.Errorf("evaluation %+v", e)
		}

		p.updated(st, 3)
		id := ""
		for i := range 3 {
			c := p.poll(fmt.Sprintf("agent-%d", i), evaluation)
			p.start(c)
			id = c.Job.ID
			p.silence(id)
		}
		if e := p.evaluation(id); e.Status != workflow.StatusFailed || e.Reason != workflow.ReasonAbandoned {
			t.Errorf("after three silences: %s, %s", e.Status, e.Reason)
		}
	})
}

// TestSilentAfterItsResults tests that results are not asked for twice: an evaluation whose runner dies after it has
// reported them has ended.
func TestSilentAfterItsResults(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Minute)
		for name, tt := range map[string]struct {
			packs []workflow.PolicyPackResult
			want  workflow.Status
		}{
			"a": {nil, workflow.StatusSucceeded},
			"b": {[]workflow.PolicyPackResult{{Name: "lab", Error: "no host for the runtime"}}, workflow.StatusFailed},
		} {
			p.stack(name)
			c := p.poll("agent", evaluation)
			p.must(p.report(c, p.start(c), workflow.PolicyResults{Succeeded: tt.packs == nil, Packs: tt.packs}))
			p.silence(c.Job.ID)
			if e := p.evaluation(c.Job.ID); e.Status != tt.want {
				t.Errorf("%s: %s, %s", name, e.Status, e.Message)
			}
		}
		p.stack("c")
		c := p.poll("agent", evaluation)
		p.start(c)
		p.must(p.result(c, workflow.StatusSucceeded))
		if e := p.evaluation(c.Job.ID); e.Status != workflow.StatusFailed {
			t.Errorf("without results: %s", e.Status)
		}
	})
}

// TestThousandStacks tests that 1 000 stacks of a group that are updated twice each are evaluated once each.
func TestThousandStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const n = 1000
		p := newPlant(t, db, time.Hour)
		p.write(func(tx *store.Tx) error {
			for i := range n {
				st := store.Stack{ID: fmt.Sprintf("s%04d", i), OrgID: p.org.ID, Project: "proj", Name: fmt.Sprintf("s%04d", i), StateBlob: "states/x"}
				p.must(tx.InsertStack(st))
				for range 2 {
					p.must(p.queue.StateChanged(tx, st))
				}
			}
			return p.queue.GroupChanged(tx, p.group)
		})
		evaluated := map[string]int{}
		agent := pools.Sighting{OrgID: p.org.ID, PoolID: p.agent.PoolID, AgentID: "a"}
		for more := true; more; {
			p.write(func(tx *store.Tx) error {
				jobs, _, err := p.queue.Next(tx, agent, 200)
				for i := range jobs {
					p.must(p.queue.Take(tx, &jobs[i], (&deployments.Poll{Agent: agent}), tx.Now()))
					evaluated[jobs[i].StackID]++
				}
				more = len(jobs) > 0
				return err
			})
		}
		for id, times := range evaluated {
			if times != 1 {
				t.Errorf("the stack %s was evaluated %d times", id, times)
			}
		}
		if len(evaluated) != n {
			t.Errorf("%d stacks were evaluated", len(evaluated))
		}
	})
}

// TestPointless tests that no agent gets the evaluation of a stack that has left the group or was deleted, or of a group
// without packs.
func TestPointless(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		st := p.stack("left")
		p.write(func(tx *store.Tx) error { return tx.SaveGroupStack(store.GroupStack{GroupID: "g", StackID: st.ID}) })
		if c := p.poll("agent", evaluation); c != nil {
			t.Fatalf("claimed %+v", c)
		}
		p.must(p.queue.Check(t.Context()))
		list, err := p.queue.List(t.Context(), p.user, st)
		if err != nil || len(list) != 1 || list[0].Status != workflow.StatusSkipped {
			t.Errorf("evaluations %+v, %v", list, err)
		}
		p.updated(st, 2)
		if list, err := p.queue.List(t.Context(), p.user, st); err != nil || len(list) != 1 {
			t.Errorf("a stack that has left is evaluated: %+v, %v", list, err)
		}
		p.stack("other")
		p.write(func(tx *store.Tx) error { return tx.DeleteEnabledPack("g", "k") })
		if c := p.poll("agent", evaluation); c != nil {
			t.Errorf("claimed %+v without packs", c)
		}
	})
}

// TestScheduled tests that a stack is evaluated again when its last evaluation is older than the interval of the group, and
// not before.
func TestScheduled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		p.stack("dev")
		c := p.poll("agent", evaluation)
		p.must(p.report(c, p.start(c), workflow.PolicyResults{Succeeded: true}))
		p.must(p.result(c, workflow.StatusSucceeded))
		p.must(p.queue.Repeat(t.Context()))
		if c := p.poll("agent", evaluation); c != nil {
			t.Fatalf("evaluated again at once: %+v", c)
		}
		p.write(func(tx *store.Tx) error {
			e, err := tx.Evaluation(c.Job.ID)
			p.must(err)
			e.QueuedAt = tx.Now().Add(-25 * time.Hour)
			return tx.SaveEvaluation(e, "queued_at")
		})
		p.must(p.queue.Repeat(t.Context()))
		again := p.poll("agent", evaluation)
		if again == nil || p.evaluation(again.Job.ID).Cause != store.CauseSchedule {
			t.Fatalf("after a day: %+v", again)
		}
		for _, interval := range []struct {
			hours int64
			due   bool
		}{{0, false}, {26, false}, {7, true}} {
			p.group.EvaluationHours = interval.hours
			p.write(func(tx *store.Tx) error {
				p.must(tx.SavePolicyGroup(p.group))
				e, err := tx.Evaluation(again.Job.ID)
				p.must(err)
				e.QueuedAt, e.EndedAt, e.Status = tx.Now().Add(-8*time.Hour), tx.Now(), workflow.StatusSucceeded
				return tx.SaveEvaluation(e)
			})
			p.must(p.queue.Repeat(t.Context()))
			if c := p.poll("agent", evaluation); (c != nil) != interval.due {
				t.Errorf("with an interval of %d hours, 8 hours after the last evaluation: %+v", interval.hours, c)
			}
		}
	})
}

// TestRemoved tests that old evaluations are removed, and those of groups that no longer exist.
func TestRemoved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		st := p.stack("dev")
		for v := range int64(12) {
			c := p.poll("agent", evaluation)
			p.must(p.report(c, p.start(c), workflow.PolicyResults{Succeeded: true}))
			p.must(p.result(c, workflow.StatusSucceeded))
			p.updated(st, v+2)
		}
		p.must(p.queue.Remove(t.Context()))
		if list, err := p.queue.List(t.Context(), p.user, st); err != nil || len(list) != 10 {
			t.Errorf("%d evaluations remain, want the newest ten: %v", len(list), err)
		}
		p.write(func(tx *store.Tx) error { return tx.DeletePolicyGroup("g") })
		p.must(p.queue.Check(t.Context()))
		p.must(p.queue.Remove(t.Context()))
		if list, err := p.queue.List(t.Context(), p.user, st); err != nil || len(list) != 0 {
			t.Errorf("%d evaluations remain: %v", len(list), err)
		}
	})
}
