package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestExistingSchemaStays opens databases as the administrator's commands do. A new database and one
// of an older server are refused and stay as they are.
func TestExistingSchemaStays(t *testing.T) {
	for engine, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		"postgres": func(t *testing.T) string { return storetest.PostgresURL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			dsn, dir := dsn(t), t.TempDir()
			open := func(existing bool) (*store.DB, error) {
				return store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: dir, Existing: existing})
			}
			refused := func(text string) {
				t.Helper()
				db, err := open(true)
				if err == nil {
					_ = db.Close()
					t.Fatal("the database was opened")
				}
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error lacks %q: %v", text, err)
				}
			}
			refused("start the server first")
			db, err := open(false)
			if err != nil {
				t.Fatal(err)
			}
			const newest = "(SELECT MAX(version_id) FROM goose_db_version)"
			write(t, db, func(tx *store.Tx) error {
				_, err := tx.Exec("DELETE FROM goose_db_version WHERE version_id = " + newest)
				return err
			})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			refused("older workflow-server")
			refused("older workflow-server")
		})
	}
}
