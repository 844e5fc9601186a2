package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
)

// TestExclusive checks that work runs on one server only, that all locks of a server are on one connection,
// and that all its exclusive work ends when this connection is lost.
func TestExclusive(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	var wg sync.WaitGroup
	started, lost := make(chan struct{}), make(chan error)
	names := []string{"a", "b"}
	for _, name := range names {
		wg.Go(func() {
			err := first.Exclusive(t.Context(), name, func(ctx context.Context) error {
				started <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			})
			lost <- err
		})
		<-started
	}
	for _, db := range []*store.DB{first, second} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := db.Exclusive(ctx, "a", func(context.Context) error { t.Error("the work runs twice"); return nil })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a lock that is held: %v", err)
		}
	}
	ended, err := store.Read(t.Context(), second, func(tx *store.Tx) (int64, error) {
		return database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM (SELECT pg_terminate_backend(pid) FROM
			(SELECT DISTINCT pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE locktype = 'advisory' AND granted AND d.datname = current_database()) s) t`)
	})
	if err != nil || ended != 1 {
		t.Errorf("%d connections hold locks (%v), want 1", ended, err)
	}
	if err := first.Exclusive(t.Context(), "c", func(context.Context) error { return nil }); err == nil {
		t.Error("the lost connection still acquires locks")
	}
	for range names {
		if err := <-lost; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the work ends with %v, want the loss of its lock", err)
		}
	}
	wg.Wait()
	ran := errors.New("ran")
	for _, db := range []*store.DB{second, first} {
		if err := db.Exclusive(t.Context(), "a", func(context.Context) error { return ran }); !errors.Is(err, ran) {
			t.Errorf("the work after the loss: %v", err)
		}
	}
}
