package store

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/bootid"
)

// Clock is a machine's clock.
type Clock interface {
	// Now returns the wall clock time, which the operator or NTP may set.
	Now() time.Time
	// Boot returns the id of the current boot, "" if unknown, and the time since then, sleep
	// included.
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

// Now returns the database's time: with PostgreSQL that of its server, so that servers with
// different clocks agree; with SQLite that of this machine. It is constant within a transaction.
// Compare stored times with it, never with a server's own clock.
func (tx *Tx) Now() time.Time {
	if tx.now.IsZero() {
		tx.now, tx.err = tx.db.ask(tx.ctx, tx.q)
	}
	return tx.now
}

func (db *DB) ask(ctx context.Context, q querier) (time.Time, error) {
	if !db.Shared() {
		return db.clock.Now().UTC(), nil
	}
	rows, err := q.QueryContext(ctx, "SELECT clock_timestamp()")
	if err != nil {
		return time.Time{}, fmt.Errorf("asking the database for the time: %w", err)
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
		return time.Time{}, fmt.Errorf("asking the database for the time: %w", err)
	}
	return now.UTC(), nil
}

// Skew returns how far this machine's clock is ahead of the database's, within half a round trip.
func (db *DB) Skew(ctx context.Context) (time.Duration, error) {
	before := db.clock.Now()
	now, err := db.ask(ctx, db.pool)
	if err != nil {
		return 0, err
	}
	return before.Add(db.clock.Now().Sub(before) / 2).Sub(now), nil
}
