package store_test

import (
	"errors"
	"maps"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
)

// TestNamesBecomeUnique upgrades databases in which users, organizations and pools share names. The oldest row keeps a name.
func TestNamesBecomeUnique(t *testing.T) {
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
			write(t, db, func(tx *store.Tx) error {
				_, err := tx.Exec("DROP INDEX agent_pools_by_name")
				_, err2 := tx.Exec("DROP INDEX users_by_lower_login")
				_, err3 := tx.Exec("CREATE INDEX users_by_lower_login ON users (LOWER(login))")
				_, err4 := tx.Exec("DROP INDEX organizations_by_lower_name")
				_, err5 := tx.Exec("DELETE FROM goose_db_version WHERE version_id IN (420, 430)")
				err = errors.Join(err, err2, err3, err4, err5, tx.InsertOrganization(store.Organization{ID: "o", Name: "acme"}),
					tx.InsertOrganization(store.Organization{ID: "oo", Name: "Acme", CreatedAt: instant(1)}))
				for at, id := range []string{"zzzzzzzzz", "bbbbbbbbb", "aaaaaaaaa"} {
					login := []string{"ada", "Ada", "ADA"}[at]
					err = errors.Join(err, tx.InsertUser(store.User{ID: id, Login: login, CreatedAt: instant(int64(at))}),
						tx.InsertPool(store.AgentPool{ID: id, OrgID: "o", Name: "pool", CreatedAt: instant(int64(min(at, 1)))}))
				}
				return err
			})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open()
			defer db.Close()
			read(t, db, func(tx *store.Tx) error {
				users, err := database.Pairs[string, string](tx.Tx, "SELECT id, login FROM users")
				pools, err2 := database.Pairs[string, string](tx.Tx, "SELECT id, name FROM agent_pools")
				if want := map[string]string{"zzzzzzzzz": "ada", "bbbbbbbbb": "Ada-bbbbbbbb", "aaaaaaaaa": "ADA-aaaaaaaa"}; !maps.Equal(users, want) {
					t.Errorf("the logins are %v, want %v", users, want)
				}
				if want := map[string]string{"zzzzzzzzz": "pool", "bbbbbbbbb": "pool-bbbbbbbb", "aaaaaaaaa": "pool-aaaaaaaa"}; !maps.Equal(pools, want) {
					t.Errorf("the pools are %v, want %v", pools, want)
				}
				orgs, err3 := database.Pairs[string, string](tx.Tx, "SELECT id, name FROM organizations WHERE id <> 'deleted-stacks'")
				if want := map[string]string{"o": "acme", "oo": "Acme-oo"}; !maps.Equal(orgs, want) {
					t.Errorf("the organizations are %v, want %v", orgs, want)
				}
				return errors.Join(err, err2, err3)
			})
		})
	}
}
