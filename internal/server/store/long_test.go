package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestLongReadsLeaveConnections reads while more long reads than there are connections wait.
func TestLongReadsLeaveConnections(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		release, begun := make(chan struct{}), make(chan struct{}, 100)
		var all sync.WaitGroup
		for range cap(begun) {
			all.Go(func() {
				err := db.ReadLong(ctx, func(*store.Tx) error {
					begun <- struct{}{}
					<-release
					return nil
				})
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		<-begun
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Organizations()
			return err
		}))
		cancel() // those that wait end
		close(release)
		all.Wait()
		if n := len(begun) + 1; n == cap(begun) {
			t.Errorf("all %d long reads began", n)
		}
	})
}
