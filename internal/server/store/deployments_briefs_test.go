package store_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// insertConfigured adds a queued drift detection of stack id-a with a configuration.
func insertConfigured(tx *store.Tx, version int64, configuration string) error {
	d := store.Deployment{
		ID: fmt.Sprint("d", version), OrgID: "id-acme", StackID: "id-a", Version: version,
		Operation: workflow.OperationDetectDrift, Configuration: configuration, CreatedAt: instant(version),
	}
	if err := tx.InsertDeployment(d); err != nil {
		return err
	}
	return tx.InsertJob(store.Job{
		ID: "j" + d.ID, DeploymentID: d.ID, OrgID: d.OrgID, StackID: d.StackID, Version: version,
		Operation: d.Operation, Status: workflow.StatusNotStarted, QueuedAt: d.CreatedAt,
	})
}

// listed returns what lists know of the configurations of the deployments of stack id-a.
func listed(t *testing.T, db *store.DB) (texts []store.StageText, remediates []bool) {
	t.Helper()
	err := db.Read(t.Context(), func(tx *store.Tx) error {
		f := store.StageFilter{OrgID: "id-acme", Stage: store.Queued, Reach: store.Reach{All: []string{"id-acme"}}, Limit: 10}
		_, _, err := tx.SearchStage(f, func(s store.StageText) bool { texts = append(texts, s); return true })
		if err != nil {
			return err
		}
		runs, err := tx.DriftRuns("id-a", 10, 0)
		for _, r := range runs {
			remediates = append(remediates, r.Remediates)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts, remediates
}

func checkListed(t *testing.T, db *store.DB) {
	t.Helper()
	texts, remediates := listed(t, db)
	if len(texts) != 2 || texts[0].Branch != "main" || texts[0].Commit != "ab12" {
		t.Fatalf("a search compares %+v", texts)
	}
	if b := texts[1].Branch; len(b) < 512 || len(b)+len(texts[1].Commit) > 1024 || strings.TrimRight(b, "ä") != "x" {
		t.Errorf("a search compares %d and %d bytes of a long branch and commit, ending in %q, want at most 1 KB of whole characters",
			len(b), len(texts[1].Commit), b[len(b)-4:])
	}
	if got := fmt.Sprint(remediates); got != "[false true]" { // newest first
		t.Errorf("the runs remediate: %s", got)
	}
}

// TestListsDoNotReadConfigurations checks that searches and lists of drift runs read short columns, and
// not the configuration.
func TestListsDoNotReadConfigurations(t *testing.T) {
	for engine, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		"postgres": func(t *testing.T) string { return storetest.PostgresURL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			dsn, dir := dsn(t), t.TempDir()
			open := func() *store.DB {
				db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: dir})
				if err != nil {
					t.Fatal(err)
				}
				return db
			}
			db := open()
			stackFixture(t, db, "a")
			long := "x" + strings.Repeat("ä", 1000)
			write(t, db, func(tx *store.Tx) error {
				err := insertConfigured(tx, 1, `{"sourceContext":{"git":{"branch":"main","commit":"ab12"}},"operationContext":{"options":{"remediateIfDriftDetected":true}}}`)
				if err != nil {
					return err
				}
				return insertConfigured(tx, 2, `{"sourceContext":{"git":{"branch":"`+long+`","commit":"`+long+`"}}}`)
			})
			checkListed(t, db)

			// An upgrade reads the configurations of earlier versions.
			write(t, db, func(tx *store.Tx) error {
				for i := range int64(120) { // more than one read of the upgrade
					if err := tx.InsertDeployment(store.Deployment{ID: fmt.Sprint("other", i), OrgID: "id-acme", StackID: "gone", Version: i, Configuration: "{}"}); err != nil {
						return err
					}
				}
				if _, err := tx.Exec("DELETE FROM deployment_briefs"); err != nil {
					return err
				}
				_, err := tx.Exec("DELETE FROM goose_db_version WHERE version_id = 372")
				return err
			})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open()
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
			checkListed(t, db)
			write(t, db, func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE deployments SET configuration = 'unreadable'")
				return err
			})
			checkListed(t, db)
			briefs, err := store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) {
				return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM deployment_briefs")
			})
			if err != nil || briefs != 2 {
				t.Errorf("%d rows, %v, want none for configurations without these members", briefs, err)
			}
		})
	}
}
