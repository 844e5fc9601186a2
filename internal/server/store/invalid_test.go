package store_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestValuesThatCannotBeKept checks that values that PostgreSQL rejects are reported as invalid.
func TestValuesThatCannotBeKept(t *testing.T) {
	db := storetest.Postgres(t)
	random := make([]byte, 8<<10) // exceeds an index entry's limit and does not compress
	for i := range random {
		random[i] = byte('!' + rand.N(90))
	}
	for name, text := range map[string]string{"with a NUL": "a\x00b", "not UTF-8": "\xff", "too long for an index": string(random)} {
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return tx.InsertUser(store.User{ID: "u", Login: text})
		})
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("writing a text that is %s: %v, want ErrInvalid", name, err)
		}
		err = db.Read(t.Context(), func(tx *store.Tx) error {
			_, err := tx.UserByLogin(text)
			return err
		})
		if !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("reading a text that is %s: %v, want ErrInvalid", name, err)
		}
	}
}
