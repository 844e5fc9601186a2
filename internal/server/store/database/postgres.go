package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"workflowagent/internal/server/store/blob"
)

// migrationTime is the longest that a statement of a migration can take.
const migrationTime = 24 * time.Hour

const (
	defaultWriteTimeout = 30 * time.Second
	// defaultLockTimeout is longer than defaultIdleTimeout, so that writes survive a server that has stopped
	// during a write.
	defaultLockTimeout    = 15 * time.Second
	defaultIdleTimeout    = 10 * time.Second
	defaultOutcomeTimeout = 5 * time.Second
	defaultAnswerTimeout  = time.Minute
	// defaultOlderTimeout is longer than the interval of [DB.CheckProgram].
	defaultOlderTimeout = 15 * time.Second
)

const (
	// otherConns are the connections besides those for transactions: for notifications, for exclusive work, and to
	// ask what became of a transaction.
	otherConns = 3
	// DefaultConns is the default number of all connections of a server to PostgreSQL. Four servers stay below 100.
	DefaultConns = 25
	// MinConns is the smallest number.
	MinConns = 6

	defaultConns = DefaultConns - otherConns
)

// ConnsOf returns [Options].MaxConns for a number of all connections of a server to PostgreSQL.
func ConnsOf(all int) int { return all - otherConns }

func (t Timeouts) orDefault() Timeouts {
	return Timeouts{
		Write: cmp.Or(t.Write, defaultWriteTimeout), Lock: cmp.Or(t.Lock, defaultLockTimeout), Idle: cmp.Or(t.Idle, defaultIdleTimeout),
		Outcome: cmp.Or(t.Outcome, defaultOutcomeTimeout), Answer: cmp.Or(t.Answer, defaultAnswerTimeout),
		Older: cmp.Or(t.Older, defaultOlderTimeout),
	}
}

func openPostgres(ctx context.Context, dsn string, opts Options) (*DB, error) {
	cfg, failed := parse(dsn)
	if failed != nil {
		return nil, fmt.Errorf("%s: %w", failed.Advice, failed)
	}
	conns := opts.MaxConns
	if conns <= 0 {
		conns = defaultConns
	}
	timeouts := opts.Timeouts.orDefault()
	slow := newPool(connectTo(cfg, migrationTime), 2)
	if err := requireSessions(ctx, slow); err != nil {
		return nil, fmt.Errorf("preparing the database: %w", errors.Join(explain(err, cfg), slow.Close()))
	}
	known, err := migrate(ctx, postgresEngine, slow, opts, func(ctx context.Context, o Options) (*DB, error) { return openPostgres(ctx, dsn, o) })
	if err != nil {
		return nil, fmt.Errorf("preparing the database: %w", errors.Join(explain(err, cfg), slow.Close()))
	}
	if err := slow.Close(); err != nil {
		return nil, fmt.Errorf("preparing the database: %w", err)
	}
	cfg = connectTo(cfg, timeouts.Answer)
	pool := newPool(cfg, conns)
	blobs, err := blob.NewRows(ctx, pool)
	if err != nil {
		return nil, errors.Join(explain(err, cfg), pool.Close())
	}
	b := newBus()
	b.listen(cfg, timeouts.Answer, opts.Log)
	db := &DB{engine: postgresEngine, known: known, pool: pool, long: longReads(conns), blobs: blobs, bus: b, clock: opts.clock(), owners: opts.Owners, session: newSession(cfg)}
	db.notices = newNotices(db, opts.Log)
	db.postgres = newPostgresWriter(db, cfg, conns, opts)
	return db, nil
}

// errPooled reports that connections do not have sessions of their own.
var errPooled = errors.New("the database address leads to a pooler in transaction mode, in which notifications and locks of a session get lost: use the address of PostgreSQL itself, or a pooler in session mode")

// requireSessions returns [errPooled] if the session of a connection is used for a transaction of another.
func requireSessions(ctx context.Context, pool *sql.DB) error {
	var conns [2]*sql.Conn
	for i := range conns {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		defer discard(conn)
		conns[i] = conn
	}
	var sessions []string
	for _, step := range []struct {
		conn      *sql.Conn
		statement string
	}{{conns[0], ""}, {conns[1], "BEGIN; "}, {conns[0], ""}} {
		err := withPgx(step.conn, func(conn *pgx.Conn) error {
			if err := checkVersion(conn.PgConn().ParameterStatus("server_version")); err != nil {
				return err
			}
			results, err := conn.PgConn().Exec(ctx, step.statement+"SELECT pg_backend_pid()").ReadAll()
			if err == nil {
				sessions = append(sessions, string(results[len(results)-1].Rows[0][0]))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("asking for the session of a connection: %w", err)
		}
		if n := len(sessions); n == 2 && sessions[1] == sessions[0] || n == 3 && sessions[2] != sessions[0] {
			return errPooled
		}
	}
	return nil
}

func newPool(cfg *pgx.ConnConfig, conns int) *sql.DB {
	pool := stdlib.OpenDB(*cfg, stdlib.OptionBeforeConnect(keepCommits), stdlib.OptionAfterConnect(prepareConnection))
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool
}
