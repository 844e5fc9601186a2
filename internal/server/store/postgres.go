package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"workflowagent/internal/retry"

	"workflowagent/internal/server/store/blob"
)

const postgresWriteTimeout = 30 * time.Second

var postgresWrites = retry.Policy{First: 2 * time.Millisecond, Max: 200 * time.Millisecond, Tries: 12}

func openPostgres(ctx context.Context, dsn string, opts Options) (*DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		// pgx redacts the password in its own message.
		return nil, fmt.Errorf("reading the database address: %w", err)
	}
	pool := stdlib.OpenDB(*cfg)
	conns := opts.ReadConns
	if conns <= 0 {
		conns = 24
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	if err := migrate(ctx, postgresEngine, pool); err != nil {
		return nil, fmt.Errorf("preparing the database: %w", errors.Join(err, pool.Close()))
	}
	blobs, err := blob.NewRows(ctx, pool)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	b := newBus()
	b.listen(cfg, opts.Log)
	return &DB{engine: postgresEngine, pool: pool, blobs: blobs, bus: b, log: opts.Log, clock: opts.clock()}, nil
}

// writePostgres runs fn under SERIALIZABLE isolation, so that fn may ignore concurrency, and
// retries it after a serialization failure.
func (db *DB) writePostgres(ctx context.Context, fn func(*Tx) error) error {
	return postgresWrites.Do(ctx, isPostgresRetryable, func() error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting to write to the database: %w", err)
		}
		return db.tryPostgres(ctx, fn)
	})
}

func (db *DB) tryPostgres(ctx context.Context, fn func(*Tx) error) error {
	// A caller that disconnects must not leave the outcome of a commit unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postgresWriteTimeout)
	defer cancel()
	t, err := db.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return fmt.Errorf("beginning to write to the database: %w", err)
	}
	defer t.Rollback() //nolint:errcheck // after Commit it does nothing
	tx := &Tx{ctx: ctx, q: t, engine: postgresEngine, db: db}
	if err := protect(tx, fn); err != nil || tx.err != nil {
		return cmp.Or(tx.err, err)
	}
	for _, n := range tx.notes {
		if _, err := t.ExecContext(ctx, "SELECT pg_notify($1, $2)", postgresChannel, n.encode()); err != nil {
			return fmt.Errorf("announcing a change: %w", err)
		}
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("committing to the database: %w", err)
	}
	db.logAbsence(tx)
	return nil
}

func isPostgresRetryable(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
}

func isPostgresUnique(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "23505"
}

// isPostgresInvalid reports whether err is about a value: a data exception, such as 22021 (not
// UTF-8), 22P05 (NUL), 22P02 and 22003, or 54000, a text too long for its column's index.
func isPostgresInvalid(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (strings.HasPrefix(e.Code, "22") || e.Code == "54000")
}
