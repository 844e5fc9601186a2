package store_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestOlderServers checks that a database is not migrated while a server of an earlier version runs, whose
// writes then fail after the migration.
func TestOlderServers(t *testing.T) {
	dsn := storetest.PostgresURL(t)
	older, err := database.Open(t.Context(), dsn, database.Options{Log: storetest.Log(), Migrations: storetest.Migrations(t, "migrations", "0400")})
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close()
	beat := func() error {
		return older.Write(t.Context(), scope.Free, func(tx *database.Tx) error {
			_, err := tx.Exec(`INSERT INTO server_beat (id, beat_at, every_us) VALUES (1, $1, 200000)
				ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at`, tx.Now())
			return err
		})
	}
	if err := beat(); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := beat()
			select {
			case <-stop:
				stopped <- err
				return
			default:
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log()})
	close(stop)
	if beats := <-stopped; beats != nil {
		t.Errorf("the beat of the earlier version: %v", beats)
	}
	if err == nil {
		t.Fatal("the database was migrated under a running server", db.Close())
	}
	if !strings.Contains(err.Error(), "stop all servers") {
		t.Errorf("the error is %v", err)
	}
	if db, err = store.Open(t.Context(), dsn, store.Options{Log: storetest.Log()}); err != nil {
		t.Fatalf("opening the database without a running server: %v", err)
	}
	defer db.Close()
	if err := beat(); err == nil {
		t.Error("the earlier version still writes")
	}
}
