package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"workflowagent/internal/retry"

	"workflowagent/internal/server/store/blob"
)

// migrationTime is the longest that a statement of a migration can take.
const migrationTime = 24 * time.Hour

func openPostgres(ctx context.Context, dsn string, opts Options) (*DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		// pgx redacts the password in its own message.
		return nil, fmt.Errorf("parsing the database address: %w", err)
	}
	conns := opts.ReadConns
	if conns <= 0 {
		conns = 24
	}
	timeouts := opts.Timeouts.orDefault()
	slow := newPool(connectTo(cfg, migrationTime), 2)
	if err := migrate(ctx, postgresEngine, slow, opts); err != nil {
		return nil, fmt.Errorf("preparing the database: %w", errors.Join(err, slow.Close()))
	}
	if err := slow.Close(); err != nil {
		return nil, fmt.Errorf("preparing the database: %w", err)
	}
	cfg = connectTo(cfg, timeouts.Answer)
	pool := newPool(cfg, max(1, conns-concurrentGroups))
	blobs, err := blob.NewRows(ctx, pool)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	b := newBus()
	b.listen(cfg, timeouts.Answer, opts.Log)
	db := &DB{engine: postgresEngine, pool: pool, blobs: blobs, bus: b, clock: opts.clock()}
	db.groups = newGroupWriter(db, cfg, timeouts)
	return db, nil
}

func newPool(cfg *pgx.ConnConfig, conns int) *sql.DB {
	pool := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(prepareConnection))
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool
}

func isPostgresRetryable(err error) bool {
	code := postgresCode(err)
	return code == "40001" || code == "40P01"
}

const (
	// exclusiveRetry is the interval between a waiting server's attempts to acquire the lock.
	exclusiveRetry = 5 * time.Second
	// exclusiveCheck is the interval at which the holder of the lock verifies that it still holds
	// the lock.
	exclusiveCheck = 5 * time.Second
)

// Exclusive runs work on only one of the servers that share a database. It first acquires the lock
// with the given name. It cancels the context of work when it loses the lock. With SQLite, which
// has only one server, Exclusive runs work immediately.
func (db *DB) Exclusive(ctx context.Context, name string, work func(context.Context) error) error {
	if !db.Shared() {
		return work(ctx)
	}
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the database to acquire a lock: %w", err)
	}
	// The lock belongs to the session, so the connection must not return to the pool.
	defer func() {
		conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // ErrBadConn makes the pool close the connection
		conn.Close()                                           //nolint:errcheck // the connection is already closed
	}()
	h := fnv.New64a()
	h.Write([]byte("workflow-server/" + name))
	key := int64(h.Sum64())
	for {
		var got bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&got); err != nil {
			return fmt.Errorf("acquiring a database lock: %w", err)
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
					cancel(fmt.Errorf("lost the database session that holds the lock %s: %w", name, err))
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
