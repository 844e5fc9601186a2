package evaluations_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// kept keeps the results of evaluations.
type kept struct{ list []results.Evaluation }

func (k *kept) Evaluated(_ *store.Tx, _ store.Stack, e results.Evaluation) error {
	k.list = append(k.list, e)
	return nil
}

// TestReportsAreChecked tests what of a report is kept: nothing of one that is too long, no unknown words, and nothing of a
// stack that has left the group. A pack with more violations than the report contains is incomplete.
func TestReportsAreChecked(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p, found := newPlant(t, db, time.Hour), &kept{}
		p.queue = evaluations.New(db, evaluations.Options{Log: storetest.Log(), Locator: locator{}, ExternalURL: "http://server.test", Lease: time.Hour, Results: found})
		st := p.stack("dev")
		c := p.poll("agent", evaluation)
		def := p.start(c)
		r := workflow.PolicyResults{Violations: make([]workflow.PolicyViolation, workflow.MaxPolicyViolations+1)}
		for i := range r.Violations {
			r.Violations[i].PolicyPackName = "lab"
		}
		if err := p.report(c, def, r); fault.KindOf(err) != fault.KindTooLarge {
			t.Errorf("%d violations: %v", len(r.Violations), err)
		}
		r.Violations = r.Violations[:1]
		r.Violations[0].Severity = "odd"
		r.Packs = []workflow.PolicyPackResult{{Name: "lab", Truncated: true, Error: "a\x00\n" + strings.Repeat("b", 5000)}}
		p.must(p.report(c, def, r))
		if e := p.evaluation(c.Job.ID); strings.ContainsAny(e.Message, "\x00\n") || len(e.Message) > 2100 {
			t.Errorf("the message has %d bytes: %.100q", len(e.Message), e.Message)
		}
		pack := found.list[0].Packs[0]
		if !pack.Incomplete || pack.Violations[0].Severity != "" {
			t.Errorf("kept %+v", pack)
		}
		p.must(p.result(c, workflow.StatusSucceeded))

		p.updated(st, 2)
		c = p.poll("agent", evaluation)
		def = p.start(c)
		p.write(func(tx *store.Tx) error { return tx.SaveGroupStack(store.GroupStack{GroupID: "g", StackID: st.ID}) })
		p.must(p.report(c, def, r))
		if last := found.list[1]; len(last.Packs) != 0 {
			t.Errorf("after the stack has left: %+v", last)
		}
	})
}

// TestListsHaveNoPacks tests that lists of evaluations do not read the levels of all policies.
func TestListsHaveNoPacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		st := p.stack("dev")
		c := p.poll("agent", evaluation)
		p.start(c)
		list, err := p.queue.List(t.Context(), p.user, st)
		p.must(err)
		one, err := p.queue.Get(t.Context(), st, c.Job.ID)
		p.must(err)
		if len(list) != 1 || list[0].ID != one.ID || len(list[0].Packs) != 0 || len(one.Packs) != 1 {
			t.Errorf("list %+v, one %+v", list, one)
		}
	})
}

// TestEndless tests that an evaluation ends whose runner only reports that it lives, and one that all agents hand back.
func TestEndless(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		p.stack("alive")
		c := p.poll("agent", evaluation)
		p.start(c)
		p.must(p.queue.Check(t.Context()))
		if e := p.evaluation(c.Job.ID); e.Status != workflow.StatusRunning {
			t.Fatalf("after the start: %s", e.Status)
		}
		p.write(func(tx *store.Tx) error {
			e, err := tx.Evaluation(c.Job.ID)
			p.must(err)
			e.StartedAt = tx.Now().Add(-time.Hour)
			return tx.SaveEvaluation(e, "started_at")
		})
		p.must(p.queue.Check(t.Context()))
		if e := p.evaluation(c.Job.ID); e.Status != workflow.StatusNotStarted || e.Silences != 1 {
			t.Errorf("after an hour: %s", e.Status)
		}

		for range 20 {
			if c = p.poll("agent", evaluation); c == nil {
				break
			}
			p.must(p.heartbeat(c, protocol.PhaseReturned))
		}
		if list, err := p.queue.List(t.Context(), p.user, store.Stack{ID: "stack-alive", OrgID: p.org.ID}); c != nil || err != nil || list[0].Reason != workflow.ReasonAbandoned {
			t.Errorf("after many claims: %+v, %v", list, err)
		}
	})
}

// TestMovedStack tests that the evaluation of a stack ends when the stack moves to another organization, that its token ends,
// and that its row leads to the log until that is removed.
func TestMovedStack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		st := p.stack("dev")
		c := p.poll("agent", evaluation)
		p.start(c)
		p.write(func(tx *store.Tx) error {
			p.must(tx.InsertOrganization(store.Organization{ID: "other", Name: "other", CreatedAt: tx.Now()}))
			return tx.MoveStack(st.ID, "other")
		})
		if e := p.evaluation(c.Job.ID); e.Status != workflow.StatusFailed || e.EndedAt.IsZero() {
			t.Errorf("evaluation %+v", e)
		}
		if err := p.heartbeat(c, protocol.PhaseRunning); err == nil {
			t.Error("its runner may still send heartbeats")
		}
		list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Token, error) {
			return tx.Tokens(store.TokenFilter{Kind: store.JobToken, OrgID: p.org.ID})
		})
		if err != nil || len(list) != 0 {
			t.Errorf("tokens %+v, %v", list, err)
		}
		st.OrgID = "other"
		if _, err := p.queue.Get(t.Context(), st, c.Job.ID); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("the other organization sees the evaluation: %v", err)
		}
		p.must(p.queue.Remove(t.Context()))
		if _, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Evaluation, error) { return tx.Evaluation(c.Job.ID) }); err == nil {
			t.Error("the evaluation remains")
		}
	})
}

// TestPlaceForDeployments tests that evaluations leave one place of the organization's limit, and that a repeated poll which
// got an evaluation is known as one.
func TestPlaceForDeployments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour, 2)
		p.stack("a")
		p.stack("b")
		if c := p.repoll("one", "poll-1", deployment, evaluation); c == nil {
			t.Fatal("no evaluation was claimed")
		}
		state, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.PollState, error) {
			return tx.PollState(p.agent.TokenID, p.agent.PoolID, "one", "poll-1")
		})
		if err != nil || !state.Repeated {
			t.Errorf("the repeated poll: %+v, %v", state, err)
		}
		if c := p.poll("two", deployment, evaluation); c != nil {
			t.Errorf("a second evaluation took the last place: %+v", c)
		}
	})
}
