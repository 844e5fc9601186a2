package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// SweepClock is what servers know about the clock by which data is old. It outlives their processes.
type SweepClock struct {
	ID        int64     // of the row of beats, in which it is stored
	SweptAt   time.Time // when a server last compared its clock, or zero
	HeldUntil time.Time // until then, no old data is removed
}

var sweepClocks = database.NewTable[SweepClock]("server_beats")

// SweepClock returns what is known about the clock. Before the first beat of a server, nothing is.
func (tx *Tx) SweepClock() (SweepClock, error) {
	c, err := sweepClocks.One(tx.Tx, "WHERE id = 1")
	return c, IgnoreMissing(err)
}

// SaveSweepClock stores what is known about the clock, unless no server has recorded a beat yet.
func (tx *Tx) SaveSweepClock(c SweepClock) error {
	c.ID = 1
	return IgnoreMissing(sweepClocks.Update(tx.Tx, c, "swept_at", "held_until"))
}
