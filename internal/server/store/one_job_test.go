package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestOneJobOfAStack opens a database of an earlier version in which several jobs and updates of a stack
// are active. The newest of each stay active, and the database accepts no second one any more.
func TestOneJobOfAStack(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testOneJob(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db")) })
	t.Run("postgres", func(t *testing.T) { testOneJob(t, storetest.PostgresURL(t)) })
}

func testOneJob(t *testing.T, dsn string) {
	dir := t.TempDir()
	older, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	err = older.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		at := time.UnixMicro(1e15)
		var err error
		for _, undo := range []string{
			"DROP INDEX updates_running_by_stack", "DROP INDEX jobs_active_by_stack",
			"CREATE INDEX jobs_active_by_stack ON jobs (stack_id) WHERE status IN ('accepted', 'running')",
			"DELETE FROM goose_db_version WHERE version_id = 410",
		} {
			_, failed := tx.Exec(undo)
			err = errors.Join(err, failed)
		}
		err = errors.Join(err,
			tx.InsertOrganization(store.Organization{ID: "o", Name: "acme"}),
			tx.InsertStack(store.Stack{ID: "s", OrgID: "o", Project: "p", Name: "s"}),
			tx.InsertStack(store.Stack{ID: "other", OrgID: "o", Project: "p", Name: "other"}),
		)
		for i, status := range []workflow.Status{workflow.StatusRunning, workflow.StatusAccepted, workflow.StatusRunning, workflow.StatusNotStarted} {
			for _, stack := range []string{"s", "other"}[:1+i/2%2] {
				id := fmt.Sprint(stack, i)
				err = errors.Join(err,
					tx.InsertDeployment(store.Deployment{ID: id, OrgID: "o", StackID: stack, Version: int64(i + 1)}),
					tx.InsertJob(store.Job{ID: id, DeploymentID: id, OrgID: "o", StackID: stack, Version: int64(i + 1), Status: status, LastSeenAt: at}),
					tx.InsertUpdate(store.Update{ID: id, StackID: stack, Version: int64(i + 1), Preview: i == 1, Status: "running", LeaseHash: []byte{1}, LeaseExpiresAt: at}))
			}
		}
		return err
	})
	if err = errors.Join(err, older.Close()); err != nil {
		t.Fatal(err)
	}

	db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got []string
	for _, id := range []string{"s0", "s1", "s2", "s3", "other2", "other3"} {
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			job, err := tx.Job(id)
			if err != nil {
				return err
			}
			u, err := tx.Update(id)
			got = append(got, fmt.Sprintf("%s %s%s %s", id, job.Status, job.Reason, u.Status))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"s0 failedlost failed", "s1 failedlost running", "s2 running failed", "s3 not-started running", "other2 running failed", "other3 not-started running"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the jobs and updates are %q, want %q", got, want)
	}
	for _, change := range []func(tx *store.Tx) error{
		func(tx *store.Tx) error {
			job, err := tx.Job("s3")
			job.Status = workflow.StatusAccepted
			return errors.Join(err, tx.SaveJob(job))
		},
		func(tx *store.Tx) error {
			u, err := tx.Update("s2")
			u.Status = "running"
			return errors.Join(err, tx.StartUpdate(u))
		},
	} {
		if err := db.Write(t.Context(), scope.Server(), change); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a second one on the stack: %v, want a conflict", err)
		}
	}
}
