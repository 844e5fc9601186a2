package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestWritesThatConflictForSeconds checks that a write succeeds after conflicts with other servers
// that last as long as they do on a busy database.
func TestWritesThatConflictForSeconds(t *testing.T) {
	db := storetest.Postgres(t)
	began := time.Now()
	err := db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
		if time.Since(began) < 2*time.Second {
			return &pgconn.PgError{Code: "40001"}
		}
		return tx.InsertOrganization(org("a"))
	})
	if err != nil {
		t.Errorf("the write: %v", err)
	}
}

// TestWritesThatConflictTooOften checks that a write reports ErrBusy if it conflicts with other
// writes until the retries end.
func TestWritesThatConflictTooOften(t *testing.T) {
	db := storetest.Postgres(t)
	for _, code := range []string{"40001", "40P01"} {
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		err := db.Write(ctx, scope.Todo, func(*store.Tx) error {
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
