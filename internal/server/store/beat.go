package store

import (
	"errors"
	"time"
)

// maxAbsence bounds the time by which [Tx.LeaseTime] extends the leases of updates.
const maxAbsence = 24 * time.Hour

// missedBeats is the number of missed beats after which all servers count as down.
const missedBeats = 3

type beat struct {
	at     time.Time     // by the database's clock
	every  time.Duration // until the next beat is due
	bootID string        // of the machine; "" with PostgreSQL
	boot   time.Duration // since the machine started
}

// LeaseTime returns the time by which leases and silence are judged and heartbeats recorded. If all
// servers were down, the database took no writes or the clock was set, the transaction first shifts
// all times judged by it, so that every client and agent keeps the time it had at the last beat. It
// shifts the beat too, so only one server does this. Call it before recording a time, or the
// changed clock's time is shifted as well.
func (tx *Tx) LeaseTime() (time.Time, error) {
	last, err := tx.lastBeat()
	now := tx.Now()
	if errors.Is(err, ErrNotFound) {
		return now, nil
	}
	if err != nil {
		return now, err
	}
	bootID, boot := tx.boot()
	away, step := last.passed(now, bootID, boot)
	if away == 0 && step == 0 {
		return now, nil
	}
	if err := tx.giveBack(away, step, now); err != nil {
		return now, err
	}
	tx.away, tx.step = away, step
	return now, tx.Beat(now, last.every)
}

// passed compares now with the last beat: away is how long no server was up, step the clock's
// change.
func (b beat) passed(now time.Time, bootID string, boot time.Duration) (away, step time.Duration) {
	away = now.Sub(b.at)
	// A machine that resumes a snapshot, and a container with its own clock, keep the id.
	if b.bootID != "" && b.bootID == bootID && boot >= b.boot {
		away = boot - b.boot
		step = now.Sub(b.at) - away
	} else if away < 0 {
		// Without a monotonic clock, only a step back can be recognized.
		away, step = 0, away
	}
	slack := missedBeats * b.every
	if away <= slack {
		away = 0
	}
	if step.Abs() <= slack {
		step = 0
	}
	return away, step
}

// giveBack shifts the leases of running updates, the last signs of life of active jobs and, after a
// clock step, the presence of agents.
func (tx *Tx) giveBack(away, step time.Duration, now time.Time) error {
	_, err := tx.exec("UPDATE updates SET lease_expires_at = lease_expires_at + $1 WHERE status = 'running'",
		(min(away, maxAbsence) + step).Microseconds())
	if err != nil {
		return err
	}
	_, err = tx.exec(`UPDATE jobs SET last_seen_at = CASE WHEN last_seen_at + $1 > $2 THEN $2 ELSE last_seen_at + $1 END
		WHERE status IN ('accepted', 'running')`, (away + step).Microseconds(), micros(now))
	if err != nil || step == 0 {
		return err
	}
	_, err = tx.exec("UPDATE pool_agents SET live_until = live_until + $1, last_seen_at = last_seen_at + $1 WHERE live_until > 0",
		step.Microseconds())
	return err
}

func (tx *Tx) boot() (string, time.Duration) {
	if tx.engine == postgresEngine {
		return "", 0
	}
	return tx.db.clock.Boot()
}

func (tx *Tx) lastBeat() (beat, error) {
	return one(tx, func(scan scanFunc) (beat, error) {
		var b beat
		var at, every, boot int64
		err := scan(&at, &every, &b.bootID, &boot)
		b.at, b.every, b.boot = fromMicros(at), time.Duration(every)*time.Microsecond, time.Duration(boot)*time.Microsecond
		return b, err
	}, "SELECT beat_at, every_us, boot_id, boot_us FROM server_beat WHERE id = 1")
}

// Beat records that a server is up at now, a [Tx.LeaseTime], and beats again after every.
func (tx *Tx) Beat(now time.Time, every time.Duration) error {
	bootID, boot := tx.boot()
	_, err := tx.exec(`INSERT INTO server_beat (id, beat_at, every_us, boot_id, boot_us) VALUES (1, $1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at, every_us = excluded.every_us,
		boot_id = excluded.boot_id, boot_us = excluded.boot_us`, micros(now), every.Microseconds(), bootID, boot.Microseconds())
	return err
}

func (db *DB) logAbsence(tx *Tx) {
	if tx.away > 0 {
		db.log.WithField("away", tx.away.Round(time.Second)).Info("no server was up for a while; leases and silence of jobs are extended by that time")
	}
	if tx.step != 0 {
		db.log.WithField("step", tx.step.Round(time.Second)).Warn("the clock was set; leases and silence of jobs are moved along")
	}
}
