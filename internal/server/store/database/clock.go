package database

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"workflowagent/internal/sys/bootid"
)

// Clock is a machine's clock.
type Clock interface {
	// Now returns the wall clock time, which the operator or NTP can adjust.
	Now() time.Time
	// Boot returns the id of the current boot, or "" if it is unknown, and the time since the
	// machine booted, including sleep.
	Boot() (id string, since time.Duration)
}

type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) Boot() (string, time.Duration) {
	id, err := bootid.Get()
	if err != nil {
		return "", 0
	}
	since, err := bootid.Uptime()
	if err != nil {
		return "", 0
	}
	return id, since
}

// Now returns the database's time. With PostgreSQL, this is the database server's time, so that all
// servers agree. With SQLite, it is this machine's time. Now is constant within a transaction.
// Compare stored times with Now, never with a server's own clock.
func (tx *Tx) Now() time.Time {
	if tx.now.IsZero() {
		now, err := tx.db.ask(tx.ctx, tx.q)
		tx.now, tx.err = now, cmp.Or(tx.err, err)
	}
	return tx.now
}

// NowExpression returns an SQL expression from whose value [Tx.NowFrom] returns the database's time.
func (tx *Tx) NowExpression() string {
	if !tx.db.Shared() {
		return "0"
	}
	return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
}

// NowFrom returns the database's time from the value of [Tx.NowExpression].
func (tx *Tx) NowFrom(value int64) time.Time {
	if !tx.db.Shared() {
		return tx.Now()
	}
	return time.UnixMicro(value).UTC()
}

// Boot calls [Clock].Boot. With PostgreSQL, which can run on another machine, it returns no id.
func (tx *Tx) Boot() (id string, since time.Duration) {
	if tx.db.Shared() {
		return "", 0
	}
	return tx.db.clock.Boot()
}

// Now returns the database's time; see [Tx.Now].
func (db *DB) Now(ctx context.Context) (time.Time, error) { return db.ask(ctx, db.pool) }

func (db *DB) ask(ctx context.Context, q querier) (time.Time, error) {
	if !db.Shared() {
		return db.clock.Now().UTC(), nil
	}
	rows, err := q.QueryContext(ctx, "SELECT clock_timestamp()")
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the database time: %w", err)
	}
	defer rows.Close()
	var now time.Time
	for rows.Next() {
		err = rows.Scan(&now)
	}
	if err == nil {
		err = rows.Err()
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the database time: %w", err)
	}
	return now.UTC(), nil
}

// Skew returns the time by which this machine's clock is ahead of the database's clock, accurate to
// half a round trip.
func (db *DB) Skew(ctx context.Context) (time.Duration, error) {
	before := db.clock.Now()
	now, err := db.ask(ctx, db.pool)
	if err != nil {
		return 0, err
	}
	return before.Add(db.clock.Now().Sub(before) / 2).Sub(now), nil
}
