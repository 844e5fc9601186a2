package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// transaction is a transaction on PostgreSQL. It is begun with the query for the time, in one round
// trip.
type transaction struct {
	conn  *sql.Conn
	base  time.Time // the database's time at began
	began time.Time
	ended bool
	id    identity // of a write
	// answers are the rows of the queries with which the transaction was begun.
	answers answers
}

// beginTries bounds the attempts to begin a transaction, because connections in the pool can be lost.
const beginTries = 3

const rollbackTime = 5 * time.Second

const (
	beginRead  = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	beginWrite = "BEGIN ISOLATION LEVEL SERIALIZABLE"
)

// begin begins a transaction with a statement, takes its snapshot, and runs queries. The caller must
// call end.
func begin(ctx context.Context, pool *sql.DB, statement string, ahead []question) (t *transaction, err error) {
	for range beginTries {
		t = &transaction{}
		if t.conn, err = pool.Conn(ctx); err != nil {
			return nil, err
		}
		err = withPgx(t.conn, func(conn *pgx.Conn) error {
			var b pgx.Batch
			b.Queue(statement)
			if statement == beginWrite {
				t.id.life = lifeOf(conn)
				b.Queue("SELECT clock_timestamp(), pg_current_xact_id()::text").QueryRow(func(row pgx.Row) error { return row.Scan(&t.base, &t.id.xid) })
			} else {
				b.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error { return row.Scan(&t.base) })
			}
			queueQuestions(&b, ahead, &t.answers)
			return conn.SendBatch(ctx, &b).Close()
		})
		if err == nil {
			t.base, t.began = t.base.UTC(), time.Now()
			return t, nil
		}
		t.discard()
		if postgresCode(err) != "" || ctx.Err() != nil {
			break
		}
	}
	return nil, err
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
			t.discard()
			return
		}
	}
	_ = t.conn.Close()
}

// discard closes the connection instead of returning it to the pool.
func (t *transaction) discard() {
	_ = t.conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close the connection
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
