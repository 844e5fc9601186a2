package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestDeadlocks checks that a write which the database has given up is repeated, and that it reports
// ErrBusy if its caller stops waiting or the repetitions end.
func TestDeadlocks(t *testing.T) {
	db := storetest.Postgres(t)
	for _, code := range []string{"40001", "40P01"} {
		tries := 0
		attempt := func(ctx context.Context, each func() error) error {
			tries = 0
			return db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
				if tries++; each() != nil {
					return &pgconn.PgError{Code: code}
				}
				return tx.SetInstallation("deadlock", []byte(code))
			})
		}
		failed := errors.New("failed")
		err := attempt(t.Context(), func() error {
			if tries < 3 {
				return failed
			}
			return nil
		})
		if err != nil || tries != 3 {
			t.Errorf("%s: the write ended after %d attempts with %v, want success after 3", code, tries, err)
		}
		if err := attempt(t.Context(), func() error { return failed }); !errors.Is(err, store.ErrBusy) || tries > 10 {
			t.Errorf("%s: the write ended after %d attempts with %v, want ErrBusy after a few", code, tries, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := attempt(ctx, func() error { cancel(); return failed }); !errors.Is(err, store.ErrBusy) || tries != 1 {
			t.Errorf("%s: the canceled write ended after %d attempts with %v, want ErrBusy after 1", code, tries, err)
		}
	}
}
