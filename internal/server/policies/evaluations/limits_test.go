package evaluations_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestOrderlyEnds tests that restarts of agents do not abandon an evaluation, and that the logs of earlier claims are
// removed.
func TestOrderlyEnds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		p.stack("dev")
		c := p.poll("agent", evaluation)
		for _, reason := range []workflow.Reason{workflow.ReasonAgentStopped, workflow.ReasonEvicted, workflow.ReasonAgentStopped, workflow.ReasonAgentStopped} {
			p.start(c)
			_, _, err := p.queue.PutLog(t.Context(), runner(c), c.Job.ID, 1, 0, []byte("output"))
			p.must(err)
			p.must(p.queue.Result(t.Context(), runner(c), c.Job.ID, protocol.ResultRequest{Status: workflow.StatusFailed, Reason: reason, FinishedAt: time.Now()}))
			if c = p.poll("agent", evaluation); c == nil {
				t.Fatalf("after %s, the evaluation is not assigned again", reason)
			}
		}
		if e := p.evaluation(c.Job.ID); e.Silences != 0 || e.Epoch != 5 {
			t.Errorf("after orderly ends: %d silences, epoch %d", e.Silences, e.Epoch)
		}
		p.start(c)
		_, _, err := p.queue.PutLog(t.Context(), runner(c), c.Job.ID, 1, 0, []byte("output"))
		p.must(err)
		p.must(p.queue.Check(t.Context()))
		for prefix, want := range map[string]int64{joblog.Blobs(c.Job.ID): int64(len("output")), joblog.Claim(c.Job.ID, 5): int64(len("output"))} {
			if total, err := db.Blobs().Total(t.Context(), prefix); err != nil || total != want {
				t.Errorf("%s has %d bytes, %v, want %d", prefix, total, err, want)
			}
		}
	})
}

// TestStorageOfEvaluations tests that the log and the packs of an evaluation count for the quota, also log that arrives
// late.
func TestStorageOfEvaluations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		p.stack("dev")
		c := p.poll("agent", evaluation)
		p.start(c)
		put := func(offset int64, text string) {
			t.Helper()
			_, _, err := p.queue.PutLog(t.Context(), runner(c), c.Job.ID, 1, offset, []byte(text))
			p.must(err)
		}
		stored := func() int64 {
			t.Helper()
			p.must(quota.New(db, storetest.Log(), 1).Measure(t.Context()))
			s, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Storage, error) { return tx.Storage(p.org.ID) })
			p.must(err)
			return s.Measured
		}
		put(0, strings.Repeat("x", 5000))
		p.must(p.result(c, workflow.StatusSucceeded))
		before := stored() // it is measured a minute after its end
		p.write(func(tx *store.Tx) error {
			e, err := tx.Evaluation(c.Job.ID)
			p.must(err)
			e.EndedAt = tx.Now().Add(-2 * time.Minute)
			return tx.SaveEvaluation(e, "ended_at")
		})
		const packs = 100 // at least, in JSON
		if got := stored() - before; got < 5000+packs || got > 6000 {
			t.Errorf("a log of 5000 bytes with its packs counts as %d bytes", got)
		}
		put(5000, strings.Repeat("y", 5000))
		if got := stored() - before; got < 10000+packs || got > 11000 {
			t.Errorf("with late log, it counts as %d bytes", got)
		}
	})
}

// TestPresenceOfEvaluations tests that what explains the wait of deployments knows the agents that run evaluations, and
// that the load of a type does not contain that of others.
func TestPresenceOfEvaluations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, time.Hour)
		p.stack("a")
		p.stack("b")
		if c := p.poll("one", evaluation); c == nil {
			t.Fatal("no evaluation was claimed")
		}
		list, err := store.Read(t.Context(), db, func(tx *store.Tx) (map[string]store.Presence, error) { return tx.Presences(p.org.ID, pools.Silence) })
		if got := list[p.agent.PoolID]; err != nil || got.Active != 1 || got.Busy != 1 || got.Online != 1 {
			t.Errorf("presence %+v, %v", got, err)
		}
		for _, tt := range []struct {
			types []workflow.Type
			want  int64
		}{{nil, 1}, {[]workflow.Type{evaluation}, 1}, {[]workflow.Type{deployment}, 0}, {[]workflow.Type{deployment, evaluation}, 1}} {
			load, err := p.polls.PoolLoad(t.Context(), p.org.ID, p.agent.PoolID, tt.types...)
			if err != nil || load.Claimable != tt.want || load.Queued != tt.want || load.Running != 1 || (load.OldestWait > 0) != (tt.want > 0) {
				t.Errorf("load of %q: %+v, %v", tt.types, load, err)
			}
		}
	})
}

// TestDefaultGroupsEvaluateNothing tests that a default group without a row is one that exists.
func TestDefaultGroupsEvaluateNothing(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), time.Hour)
	for name, want := range map[string]fault.Kind{policies.DefaultGroup: fault.KindInvalid, "none": fault.KindNotFound} {
		_, queued := p.queue.EvaluateGroup(t.Context(), p.user, p.org.ID, name)
		_, listed := p.queue.ListGroup(t.Context(), p.user, p.org.ID, name)
		if fault.KindOf(queued) != want || fault.KindOf(listed) != want {
			t.Errorf("%s: %v, %v", name, queued, listed)
		}
	}
}
