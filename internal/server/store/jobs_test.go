package store_test

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestSaveJobWritesChanges checks that a job keeps what a transaction has changed in place, twice in a
// row, and that columns which it has not changed are not written.
func TestSaveJobWritesChanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		insertStacks(t, db, 1)
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.InsertDeployment(store.Deployment{ID: "d", OrgID: "id-acme", StackID: "0", Version: 1}), tx.InsertJob(store.Job{
				ID: "j", DeploymentID: "d", OrgID: "id-acme", StackID: "0", Status: workflow.StatusNotStarted,
				Steps: []store.StepState{{Name: "setup"}, {Name: "pulumi update"}},
			}))
		})
		write(t, db, func(tx *store.Tx) error {
			j, err := tx.Job("j")
			if err != nil {
				return err
			}
			j.Steps[0].Status = workflow.StepRunning
			j.Message = "first"
			if err := tx.SaveJob(j); err != nil {
				return err
			}
			if _, err := tx.AdoptQueuedJobs("0", "pool"); err != nil {
				return err
			}
			j.Steps[1].Status = workflow.StepRunning
			j.Message = ""
			return errors.Join(tx.SaveJob(j), tx.SaveJob(j))
		})
		j, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Job, error) { return tx.Job("j") })
		if err != nil {
			t.Fatal(err)
		}
		if j.Steps[0].Status != workflow.StepRunning || j.Steps[1].Status != workflow.StepRunning || j.Message != "" {
			t.Errorf("changes are lost: %+v", j)
		}
		if j.PoolID != "pool" || !j.PoolPinned {
			t.Errorf("the pool that another statement has stored is overwritten: %+v", j)
		}
	})
}
