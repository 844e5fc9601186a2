package store_test

import (
	"os"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
)

// TestFeedOfEarlierVersions compares the updates that an upgrade lists with those that their starts have listed.
func TestFeedOfEarlierVersions(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string) {
		dir := t.TempDir()
		open := func() *store.DB {
			return must.Get(store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: dir}))(t)
		}
		db := open()
		l := newLives(t, db)
		l.fill()
		read := func() string {
			list := must.Get(store.Read(t.Context(), l.db, func(tx *store.Tx) ([]string, error) {
				return database.Scalars[string](tx.Tx, "SELECT id || ' ' || listed_in FROM updates WHERE listed_in <> '' ORDER BY id")
			}))(t)
			return strings.Join(list, "\n")
		}
		want := read()
		if want == "" {
			t.Fatal("no update is listed")
		}
		_, down, _ := strings.Cut(string(must.Get(os.ReadFile("migrations/0690_feed.sql"))(t)), "-- +goose Down")
		write(t, db, func(tx *store.Tx) error {
			for statement := range strings.SplitSeq(down+"DELETE FROM goose_db_version WHERE version_id = 690", ";") {
				if _, err := tx.Exec(statement); err != nil {
					return err
				}
			}
			return nil
		})
		must.OK(t, db.Close())
		l.db = open()
		t.Cleanup(func() { must.OK(t, l.db.Close()) })
		if got := read(); got != want {
			t.Errorf("after the upgrade:\n%s\nwant:\n%s", got, want)
		}
	})
}
