package store

import (
	"errors"
	"time"
)

// maxAbsence bounds the time that is given back to the leases of updates.
const maxAbsence = 24 * time.Hour

// missedBeats is after how many beats that did not come no server was up.
const missedBeats = 3

// beat is the last sign of life of any server.
type beat struct {
	at     time.Time     // by the clock of the database
	every  time.Duration // when the next one is due
	bootID string        // of the machine; "" with PostgreSQL
	boot   time.Duration // since the start of the machine
}

// LeaseTime returns the time by which leases and silence are judged, and signs of
// life are noted: what is noted by a clock that was set, before all else was moved
// along, would be moved too. If no
// server has committed a beat for a while (all were stopped or away, or the
// database took no writes) or the clock was set, this transaction first moves
// all that is judged by that time: whoever could not be heard keeps what was
// left at the last beat. The beat is moved along, so this happens once, whatever
// the number of servers.
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

// passed compares the last beat with the clock: away is the time in which no
// server was up, step is by how much the clock was set.
func (b beat) passed(now time.Time, bootID string, boot time.Duration) (away, step time.Duration) {
	away = now.Sub(b.at)
	// A machine that resumes an earlier snapshot has the same id, and so has a
	// container with its own clock.
	if b.bootID != "" && b.bootID == bootID && boot >= b.boot {
		away = boot - b.boot
		step = now.Sub(b.at) - away
	} else if away < 0 {
		// Without a clock that nothing sets only a step back is recognized.
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

// giveBack moves all leases of running updates, the last signs of life of
// active jobs and, after a step of the clock, the presence of agents.
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

// Beat notes that a server is up at the [Tx.LeaseTime] now, and that it will do
// so again after every.
func (tx *Tx) Beat(now time.Time, every time.Duration) error {
	bootID, boot := tx.boot()
	_, err := tx.exec(`INSERT INTO server_beat (id, beat_at, every_us, boot_id, boot_us) VALUES (1, $1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at, every_us = excluded.every_us,
		boot_id = excluded.boot_id, boot_us = excluded.boot_us`, micros(now), every.Microseconds(), bootID, boot.Microseconds())
	return err
}

// logAbsence logs what a committed transaction has given back.
func (db *DB) logAbsence(tx *Tx) {
	if tx.away > 0 {
		db.log.WithField("away", tx.away.Round(time.Second)).Info("no server was up for a while; leases and silence of jobs are extended by that time")
	}
	if tx.step != 0 {
		db.log.WithField("step", tx.step.Round(time.Second)).Warn("the clock was set; leases and silence of jobs are moved along")
	}
}
