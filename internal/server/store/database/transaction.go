package database

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"workflowagent/internal/server/store/scope"
)

// transaction is a transaction on PostgreSQL.
type transaction struct {
	conn  *sql.Conn
	base  time.Time // the database's time at began
	began time.Time
	ended bool
	id    identity // of a write
}

const (
	// beginTries bounds the attempts to begin a read, because connections in the pool can be lost.
	beginTries   = 3
	rollbackTime = 5 * time.Second
)

// beginRead begins a transaction that reads one snapshot. The caller must call end.
func beginRead(ctx context.Context, pool *sql.DB) (t *transaction, err error) {
	for range beginTries {
		t = &transaction{}
		if t.conn, err = pool.Conn(ctx); err != nil {
			return nil, err
		}
		err = withPgx(t.conn, func(conn *pgx.Conn) error {
			var b pgx.Batch
			b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
			b.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error { return row.Scan(&t.base) })
			return conn.SendBatch(ctx, &b).Close()
		})
		if err == nil {
			t.base, t.began = t.base.UTC(), time.Now()
			return t, nil
		}
		discard(t.conn)
		if postgresCode(err) != "" || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// beginWrite begins a transaction and acquires the locks of owners. Each lock is a statement of its
// own, so that the statements that follow see what the previous holder has committed. beginWrite returns
// [ErrMoved] if an owner has moved to another organization, [ErrDeleted] if its organization is deleted, and
// [ErrNotFound] if a known one is missing.
func (t *transaction) beginWrite(ctx context.Context, scopes scope.Set, owners Owners, timeouts Timeouts) error {
	var changed error
	err := withPgx(t.conn, func(conn *pgx.Conn) error {
		t.id.life = lifeOf(conn)
		var b pgx.Batch
		b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
		b.Queue("SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)",
			fmt.Sprint(timeouts.Lock.Milliseconds()), fmt.Sprint(timeouts.Idle.Milliseconds()))
		for _, lock := range scopes.Locks() {
			b.Queue(lockStatement("pg_advisory_xact_lock", lock), lockName(lock))
		}
		for _, s := range scopes {
			if query := owners[s.Level]; query != "" && s.Org != "" {
				b.Queue(query, s.Key).Query(func(rows pgx.Rows) error {
					found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o organization, err error) {
						err = row.Scan(&o.id, &o.deletedAt)
						return o, err
					})
					changed = cmp.Or(changed, checkOwner(s, found))
					return err
				})
			}
		}
		b.Queue("SELECT clock_timestamp(), pg_current_xact_id()::text").QueryRow(func(row pgx.Row) error {
			return row.Scan(&t.base, &t.id.xid)
		})
		return conn.SendBatch(ctx, &b).Close()
	})
	t.base, t.began = t.base.UTC(), time.Now()
	return cmp.Or(err, changed)
}

// lockStatement returns a statement that calls one of PostgreSQL's functions for advisory locks, with
// the argument lockName.
func lockStatement(function string, lock scope.Lock) string {
	if lock.Shared {
		function += "_shared"
	}
	return "SELECT " + function + "(hashtextextended($1, 0))"
}

// lockName identifies an owner among all advisory locks of the database.
func lockName(lock scope.Lock) string { return fmt.Sprintf("scope %d %s", lock.Level, lock.Key) }

// commit commits the transaction. Unless the error is [refused], the database may have committed.
func (t *transaction) commit(ctx context.Context) error {
	err := withPgx(t.conn, func(conn *pgx.Conn) error {
		committing, _ := conn.PgConn().CustomData()[committingKey].(*atomic.Bool)
		committing.Store(true)
		tag, err := conn.Exec(context.WithoutCancel(ctx), "COMMIT") // the connection bounds the wait
		if err == nil {
			committing.Store(false)
			if tag.String() != "COMMIT" {
				err = errRolledBack
			}
		}
		return err
	})
	t.ended = err == nil
	return err
}

// lost reports whether the connection is closed.
func (t *transaction) lost() bool {
	closed := false
	err := withPgx(t.conn, func(conn *pgx.Conn) error { closed = conn.IsClosed(); return nil })
	return closed || err != nil
}

// now returns the database's time.
func (t *transaction) now() time.Time { return t.base.Add(time.Since(t.began)) }

// end rolls the transaction back, unless it has ended, and returns the connection to the pool. If the
// rollback fails, it closes the connection, which has the same effect.
func (t *transaction) end(ctx context.Context) {
	if !t.ended {
		// The caller's context can have ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
		defer cancel()
		if _, err := t.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			discard(t.conn)
			return
		}
	}
	_ = t.conn.Close()
}

// withPgx calls do with the driver's connection, which can send several statements at once.
func withPgx(conn *sql.Conn, do func(*pgx.Conn) error) error {
	var err error
	raw := conn.Raw(func(c any) error {
		err = do(c.(*stdlib.Conn).Conn()) //nolint:forcetypeassert // the pool has only these
		return nil
	})
	return cmp.Or(err, raw)
}
