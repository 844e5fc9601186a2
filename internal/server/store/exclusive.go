package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"hash/fnv"
	"time"

	"workflowagent/internal/retry"
)

const (
	// exclusiveRetry is the interval at which a waiting server tries to acquire the lock.
	exclusiveRetry = 5 * time.Second
	// exclusiveCheck is the interval at which the holder checks that it still holds the lock.
	exclusiveCheck = 5 * time.Second
)

// Exclusive runs work on one of the servers that share a database: it waits until no other runs
// work of this name, and cancels work's context when the lock is lost. A SQLite
// database has only one server.
func (db *DB) Exclusive(ctx context.Context, name string, work func(context.Context) error) error {
	if !db.Shared() {
		return work(ctx)
	}
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting for exclusive work: %w", err)
	}
	// The lock belongs to the session, so the session must not be reused.
	defer func() {
		conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // the point is to drop the connection
		conn.Close()                                           //nolint:errcheck // dropped already
	}()
	h := fnv.New64a()
	h.Write([]byte("workflow-server/" + name))
	key := int64(h.Sum64())
	for {
		var got bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&got); err != nil {
			return fmt.Errorf("asking for exclusive work: %w", err)
		}
		if got {
			break
		}
		if err := retry.Sleep(ctx, retry.Spread(exclusiveRetry)); err != nil {
			return err
		}
	}
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(exclusiveCheck)
		defer ticker.Stop()
		for {
			select {
			case <-working.Done():
				return
			case <-ticker.C:
				ping, stop := context.WithTimeout(working, exclusiveCheck)
				err := conn.PingContext(ping)
				stop()
				if err != nil && working.Err() == nil {
					cancel(fmt.Errorf("the database session that holds %s was lost: %w", name, err))
					return
				}
			}
		}
	}()
	err = work(working)
	cancel(nil)
	<-done
	return err
}
