package pools

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestPoolsOfDeletedStacks checks that a pool is in use by a deleted stack until the stack can no longer be restored.
func TestPoolsOfDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write := func(fn func(tx *store.Tx) error) {
			t.Helper()
			must(t, db.Write(t.Context(), scope.Server(), fn))
		}
		org := store.Organization{ID: "o", Name: "acme"}
		write(func(tx *store.Tx) error {
			org.CreatedAt = tx.Now()
			must(t, tx.InsertOrganization(org))
			return tx.InsertStack(store.Stack{ID: "s", OrgID: org.ID, Project: "p", Name: "s", CreatedAt: tx.Now()})
		})
		s := New(db, storetest.Log())
		made, err := s.Create(t.Context(), identity.Principal{}, org, "p", "")
		must(t, err)
		write(func(tx *store.Tx) error {
			must(t, tx.SaveDeploymentSettings(store.DeploymentSettings{StackID: "s", Document: "{}", PoolID: made.Pool.ID, UpdatedAt: tx.Now()}))
			return tx.DeleteStack("s", "ann")
		})
		forget := func(document string) (string, error) { return document, nil }
		err = s.Delete(t.Context(), org.ID, made.Pool.ID, false, forget)
		if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "1 deleted stacks, which can be restored") {
			t.Errorf("deleting the pool of a deleted stack: %v", err)
		}
		write(func(tx *store.Tx) error { return tx.MarkPurged("s") })
		must(t, s.Delete(t.Context(), org.ID, made.Pool.ID, false, forget))
	})
}
