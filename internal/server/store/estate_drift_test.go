package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// drift checks whether a stack has drift: by its row as its runs and as a repair have written it, and by its runs.
func (l *lives) drift(stack, when string, want store.Drift) {
	l.t.Helper()
	row := l.estate(stack)
	if row.Drift != want {
		l.t.Errorf("%s: the row says %q, want %q", when, row.Drift, want)
	}
	must.OK(l.t, l.db.Read(l.t.Context(), func(tx *store.Tx) error {
		detection, decided, err := tx.DriftOf("id-" + stack)
		if err == nil && (detection == nil || (decided == nil && store.Drifted(detection.ResourceChanges)) != (want == store.DriftFound)) {
			l.t.Errorf("%s: the runs say %+v, %+v, want %q", when, detection, decided, want)
		}
		return err
	}))
	write(l.t, l.db, func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE estate SET version = -1, drift = 'x', drift_at = 0 WHERE stack_id = $1", "id-"+stack)
		return err
	})
	if n := must.Get(l.db.RepairEstate(l.t.Context()))(l.t); n != 1 {
		l.t.Errorf("%s: %d rows are repaired, want 1", when, n)
	}
	if diff := cmp.Diff(row, l.estate(stack)); diff != "" {
		l.t.Errorf("%s: after a repair (-want +got):\n%s", when, diff)
	}
}

// TestDriftOfTargets checks that runs on only some resources say nothing about the drift of a stack.
func TestDriftOfTargets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		refresh := func(id string, preview, targeted bool, changes string) {
			l.update(store.Update{ID: id, StackID: "a", Kind: "refresh", Preview: preview, Targeted: targeted}, "succeeded", changes)
		}
		refresh("1", true, false, `{"update":2}`)
		l.drift("a", "after a detection", store.DriftFound)
		refresh("2", true, true, `{"same":1}`)
		l.drift("a", "after a detection of one resource without drift", store.DriftFound)
		refresh("3", true, true, `{"update":1}`)
		l.drift("a", "after a detection of one resource with drift", store.DriftFound)
		if e := l.estate("a"); e.DriftChanges != `{"update":2}` {
			t.Errorf("the detection of one resource replaces that of all: %+v", e)
		}
		refresh("4", false, true, `{"update":1}`)
		l.drift("a", "after a refresh of one resource", store.DriftFound)
		l.run(l.queue("a", 1, workflow.OperationRemediateDrift), store.Update{ID: "5", Kind: "update", Targeted: true}, "succeeded", `{"update":1}`, workflow.StatusSucceeded, "")
		l.drift("a", "after one resource was put back", store.DriftFound)
		refresh("6", false, false, `{"update":1}`)
		l.drift("a", "after a refresh of all resources", store.NoDrift)
	})
}

// TestDriftOfOverlappingRuns checks that a refresh ends the drift that earlier detections find, by the times at which
// the runs were created, also if they end in another order.
func TestDriftOfOverlappingRuns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		detect, refresh := store.Update{Kind: "refresh", Preview: true}, store.Update{Kind: "refresh"}
		begin := func(u store.Update, stack string) store.Update {
			u.ID, u.StackID = stack+u.Kind, stack
			if u.Preview {
				u.ID += "-preview"
			}
			return l.begin(u)
		}
		earlier := begin(refresh, "a")
		l.end(begin(detect, "a"), "succeeded", `{"update":1}`)
		l.end(earlier, "succeeded", `{"update":1}`)
		l.drift("a", "after a refresh that began before the detection", store.DriftFound)

		earlier = begin(detect, "b")
		l.end(begin(refresh, "b"), "succeeded", `{"update":1}`)
		l.end(earlier, "succeeded", `{"update":1}`)
		l.drift("b", "after a detection that began before the refresh", store.NoDrift)

		earlier = begin(detect, "c")
		later := detect
		later.ID, later.StackID = "later", "c"
		l.end(l.begin(later), "succeeded", `{"same":1}`)
		l.end(earlier, "succeeded", `{"update":1}`)
		l.drift("c", "after a detection that began before another", store.NoDrift)
	})
}
