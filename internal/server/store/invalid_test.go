package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestValuesThatCannotBeKept checks that values that PostgreSQL rejects are reported as invalid.
func TestValuesThatCannotBeKept(t *testing.T) {
	db := storetest.Postgres(t)
	random := make([]byte, 8<<10) // exceeds an index entry's limit and does not compress
	for i := range random {
		random[i] = byte('!' + rand.N(90))
	}
	for name, text := range map[string]string{"with a NUL": "a\x00b", "not UTF-8": "\xff", "too long for an index": string(random)} {
		err := db.Write(t.Context(), func(tx *store.Tx) error {
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

// TestWritesThatConflictTooOften checks that a write reports ErrBusy if it conflicts with other
// writes until the retries end.
func TestWritesThatConflictTooOften(t *testing.T) {
	db := storetest.Postgres(t)
	for _, code := range []string{"40001", "40P01"} {
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		err := db.Write(ctx, func(*store.Tx) error {
			if tries++; tries == 3 {
				cancel() // ends the retries
			}
			return &pgconn.PgError{Code: code}
		})
		if !errors.Is(err, store.ErrBusy) || tries != 3 {
			t.Errorf("the write ended after %d attempts with %v, want ErrBusy after 3", tries, err)
		}
	}
}
