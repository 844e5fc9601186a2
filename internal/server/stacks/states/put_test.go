package states

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestOldBlobsAreNotNamed checks that a server that stood still after it had written a blob does not
// name the blob, which another server may have removed.
func TestOldBlobsAreNotNamed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := New(db, storetest.Log(), nil)
		key := stackOf(t, db, s)
		row, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.State, error) { return tx.State(key) })
		if err != nil {
			t.Fatal(err)
		}
		st, err := Parse([]byte(`{"version":3,"deployment":{"resources":[]}}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		for age, want := range map[time.Duration]fault.Kind{0: "", 59 * time.Minute: "", 61 * time.Minute: fault.KindUnavailable, 12 * time.Hour: fault.KindUnavailable} {
			p, err := s.Put(t.Context(), row.StackID, st)
			if err != nil {
				t.Fatal(err)
			}
			p.written = p.written.Add(-age)
			err = db.Write(t.Context(), scope.Server(), p.Insert)
			if fault.KindOf(err) != want || want == "" && err != nil {
				t.Errorf("naming a blob of age %v: %v", age, err)
			}
		}
	})
}
