package store

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/bootid"
)

// Clock is the clock of a machine.
type Clock interface {
	// Now returns the time of day, which the operator or NTP may set.
	Now() time.Time
	// Boot returns an id of the machine's current start and the time since then,
	// sleep included; "" if the system reports none.
	Boot() (id string, since time.Duration)
}

// machineClock is the clock of this machine.
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

// Now returns the time of the database: with PostgreSQL that of its server, so
// that servers whose clocks differ agree; with SQLite that of this machine. It
// stays the same within a transaction. Stored times are compared with it, never
// with the clock of one server.
func (tx *Tx) Now() time.Time {
	if tx.now.IsZero() {
		tx.now, tx.err = tx.db.ask(tx.ctx, tx.q)
	}
	return tx.now
}

// ask reads the clock of the database.
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

// Skew returns how far the clock of this machine is ahead of the database's. The
// error is at most half of the round trip to the database.
func (db *DB) Skew(ctx context.Context) (time.Duration, error) {
	before := db.clock.Now()
	now, err := db.ask(ctx, db.pool)
	if err != nil {
		return 0, err
	}
	return before.Add(db.clock.Now().Sub(before) / 2).Sub(now), nil
}
