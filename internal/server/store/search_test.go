package store_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestSearchInOtherAlphabets checks that members are found by their names as they are written, whose letters
// the database does not convert to lower case.
func TestSearchInOtherAlphabets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		now := time.Now().UTC()
		write(t, db, func(tx *store.Tx) error {
			if err := tx.InsertOrganization(store.Organization{ID: "o", Name: "acme", CreatedAt: now}); err != nil {
				return err
			}
			for id, name := range map[string]string{"u1": "Émile Zola", "u2": "Ľubica Šťastná", "u3": "Анна"} {
				if err := tx.InsertUser(store.User{ID: id, Login: id, Name: name, CreatedAt: now}); err != nil {
					return err
				}
				if err := tx.InsertMember(store.Member{OrgID: "o", UserID: id, Role: "member"}); err != nil {
					return err
				}
			}
			return nil
		})
		for words, want := range map[string]string{"Émile": "u1", "ZOLA": "u1", "Šťastná": "u2", "Анна": "u3"} {
			found, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Member, error) { return tx.Members("o", words, "", 10) })
			if err != nil || len(found) != 1 || found[0].Login != want {
				t.Errorf("%q finds %d members (%v), want %s", words, len(found), err, want)
			}
		}
	})
}
