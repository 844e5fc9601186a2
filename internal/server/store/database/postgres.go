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
)

func (t Timeouts) orDefault() Timeouts {
	return Timeouts{
		Write: cmp.Or(t.Write, defaultWriteTimeout), Lock: cmp.Or(t.Lock, defaultLockTimeout), Idle: cmp.Or(t.Idle, defaultIdleTimeout),
		Outcome: cmp.Or(t.Outcome, defaultOutcomeTimeout), Answer: cmp.Or(t.Answer, defaultAnswerTimeout),
	}
}

func openPostgres(ctx context.Context, dsn string, opts Options) (*DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		// pgx redacts the password in its own message.
		return nil, fmt.Errorf("parsing the database address: %w", err)
	}
	conns := opts.ReadConns
	if conns <= 0 {
		conns = 22 // with those for notices and exclusive work, four servers stay below 100
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
	pool := newPool(cfg, conns)
	blobs, err := blob.NewRows(ctx, pool)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	b := newBus()
	b.listen(cfg, timeouts.Answer, opts.Log)
	db := &DB{engine: postgresEngine, pool: pool, blobs: blobs, bus: b, clock: opts.clock(), owners: opts.Owners, session: newSession(cfg)}
	db.notices = newNotices(db, opts.Log)
	db.postgres = newPostgresWriter(db, cfg, conns, opts)
	return db, nil
}

func newPool(cfg *pgx.ConnConfig, conns int) *sql.DB {
	pool := stdlib.OpenDB(*cfg, stdlib.OptionBeforeConnect(keepCommits), stdlib.OptionAfterConnect(prepareConnection))
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool
}
