package quota

import (
	"context"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestMeasurementsThatAreOvertaken stores more while a log is being measured.
func TestMeasurementsThatAreOvertaken(t *testing.T) {
	q := &Quota{db: storetest.SQLite(t), log: storetest.Log()}
	sizes := []int64{5, 7, 7}
	var recorded []int64
	err := q.measureEach(t.Context(),
		func(*store.Tx, time.Time, int) ([]store.Unmeasured, error) {
			return []store.Unmeasured{{ID: "j", OrgID: "o", StackID: "s"}}, nil
		},
		func(_ *store.Tx, _ string, bytes int64) error {
			recorded = append(recorded, bytes)
			return nil
		},
		func(context.Context, string) (int64, error) {
			size := sizes[0]
			sizes = sizes[1:]
			return size, nil
		})
	if err != nil || !slices.Equal(recorded, []int64{5, 7}) {
		t.Errorf("recorded the sizes %d (%v), want 5 and 7", recorded, err)
	}
}
