package states

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestMissingEntriesAreReported folds the journals of updates. The log must name the number of
// missing entries exactly if an update succeeded without them.
func TestMissingEntriesAreReported(t *testing.T) {
	for name, tt := range map[string]struct {
		entries, status string
		want            any // missing entries, or nil
	}{
		"complete":           {`[{"version":1,"kind":7,"sequenceID":2}]`, "succeeded", nil},
		"complete, late":     {`[{"version":1,"kind":7,"sequenceID":3},{"version":1,"kind":7,"sequenceID":2}]`, "succeeded", nil},
		"without 2, 4 and 5": {`[{"version":1,"kind":7,"sequenceID":6},{"version":1,"kind":7,"sequenceID":3}]`, "succeeded", int64(3)},
		"failed, without 2":  {`[{"version":1,"kind":7,"sequenceID":3}]`, "failed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			db := storetest.SQLite(t)
			log, hook := logtest.NewNullLogger()
			s := New(db, logrus.NewEntry(log), nil)
			key := stackOf(t, db, s)
			entries, err := journal.ReadEntries([]byte(tt.entries))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Append(t.Context(), store.Update{ID: "u1", OrgID: "o1", StackID: "s1"}, entries, permitted); err != nil {
				t.Fatal(err)
			}
			err = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				u, err := tx.Update("u1")
				if err != nil {
					return err
				}
				u.Status = tt.status
				return tx.FinishUpdate(u)
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second fold does nothing
				if err := s.Fold(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			var got []logrus.Fields
			for _, e := range hook.AllEntries() {
				got = append(got, e.Data)
			}
			var want []logrus.Fields
			if tt.want != nil {
				want = []logrus.Fields{{"stack": "acme/proj/dev", "update": "u1", "version": int64(1), "missing": tt.want}}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("fields of the log's lines (-want +got):\n%s", diff)
			}
		})
	}
}
