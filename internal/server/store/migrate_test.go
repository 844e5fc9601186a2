package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

func TestNewerSchemaIsRefused(t *testing.T) {
	age := func(t *testing.T, db *store.DB) {
		t.Helper()
		write(t, db, func(tx *store.Tx) error {
			return tx.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9990, $1), (9995, $1)", true)
		})
	}
	check := func(t *testing.T, err error) {
		t.Helper()
		if err == nil {
			t.Fatal("the database was opened")
		}
		for _, text := range []string{"version 9995", "version 60", "newer"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("the error does not say %q: %v", text, err)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		open := func() (*store.DB, error) {
			return store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "a.db"), store.Options{Log: storetest.Log(), BlobDir: dir})
		}
		db, err := open()
		if err != nil {
			t.Fatal(err)
		}
		age(t, db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = open()
		check(t, err)
	})
	t.Run("postgres", func(t *testing.T) {
		db := storetest.Postgres(t)
		age(t, db)
		check(t, store.MigrateAgain(t.Context(), db))
	})
}
