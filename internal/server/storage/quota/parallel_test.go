package quota_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestImportsAtOnce imports a state while the import of another stack, for which alone there is room, is not committed.
// With SQLite, such writes run one after another.
func TestImportsAtOnce(t *testing.T) {
	db := storetest.Postgres(t)
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertOrganization(store.Organization{ID: "o", Name: "acme"})
	}))
	limit := quota.New(db, storetest.Log(), 1000)
	write := func(stack string, then func()) error {
		return db.Write(t.Context(), scope.Stack("o", stack), func(tx *store.Tx) error {
			err := limit.AdmitImport(tx, "o", 600)
			then()
			return err
		})
	}
	second := make(chan error, 1)
	admitted := make(chan struct{})
	must.OK(t, write("a", func() {
		go func() { second <- write("b", func() { close(admitted) }) }()
		select { // it must wait for this import
		case <-admitted:
		case <-time.After(200 * time.Millisecond):
		}
	}))
	if err := <-second; fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("the second import: %v", err)
	}
}
