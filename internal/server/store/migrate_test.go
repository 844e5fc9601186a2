package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

func TestNewerSchemaIsRefused(t *testing.T) {
	for engine, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		"postgres": func(t *testing.T) string { return storetest.PostgresURL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			dsn, dir := dsn(t), t.TempDir()
			open := func() (*store.DB, error) {
				return store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: dir})
			}
			db, err := open()
			if err != nil {
				t.Fatal(err)
			}
			write(t, db, func(tx *store.Tx) error {
				_, err := tx.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (10010, true), (10015, true)`)
				return err
			})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err = open(); err == nil {
				t.Fatal("the database was opened")
			}
			for _, text := range []string{"version 10015", "supports schemas up to version", "newer"} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error lacks %q: %v", text, err)
				}
			}
		})
	}
}
