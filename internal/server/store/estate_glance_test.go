package store_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestLastChange reads what the rows of stacks lack of their last runs.
func TestLastChange(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		l.fill()
		last := func(stack string) store.LastChange {
			t.Helper()
			e := l.estate(stack)
			return must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (store.LastChange, error) { return tx.LastChange(e) }))(t)
		}
		if c := last("a"); c.Update.ID != "a2" || c.Cause != nil {
			t.Errorf("a deployment that failed without a known cause: %+v", c)
		}
		if c := last("b"); c.Update.ResourceChanges != `{"create":3}` || c.Initiator != "" {
			t.Errorf("an update without a deployment: %+v", c)
		}
		if c := last("d"); c.Update.ID != "" || c.Cause != nil {
			t.Errorf("a stack without a run: %+v", c)
		}
		job := l.queue("b", 2, workflow.OperationUpdate)
		job.Cause = &store.Cause{Kind: "start", Headline: "Killed"}
		l.run(job, store.Update{}, "", "", workflow.StatusFailed, workflow.ReasonOOM)
		if c := last("b"); c.Cause == nil || c.Cause.Headline != "Killed" || c.Update.ID != "" {
			t.Errorf("a deployment that failed before its update: %+v", c)
		}
	})
}

// TestSilentStacks finds the stacks whose leases end soon, of those that the caller sees.
func TestSilentStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		for stack, at := range map[string]int64{"a": 500, "b": 400, "c": 900} {
			u := l.begin(store.Update{ID: "held-" + stack, StackID: stack, Kind: "update"})
			write(t, db, func(tx *store.Tx) error { return tx.RenewUpdate(u.ID, instant(at)) })
		}
		all := store.Reach{All: []string{"id-acme"}}
		find := func(reach store.Reach, before time.Time, limit int) (ids string) {
			t.Helper()
			list := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Stack, error) { return tx.SilentStacks("id-acme", reach, before, limit) }))(t)
			for _, st := range list {
				ids += st.ID + " "
			}
			return ids
		}
		if got := find(all, instant(600), 10); got != "id-b id-a " {
			t.Errorf("all silent stacks: %q", got)
		}
		if got := find(all, instant(600), 1); got != "id-b " {
			t.Errorf("the longest silent stack: %q", got)
		}
		if got := find(store.Reach{}, instant(600), 10); got != "" {
			t.Errorf("stacks that the caller does not see: %q", got)
		}
		write(t, db, func(tx *store.Tx) error { return tx.DeleteStack("id-b", "ada") })
		if got := find(all, instant(600), 10); got != "id-a " {
			t.Errorf("after a deletion: %q", got)
		}
	})
}
