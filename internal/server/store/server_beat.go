package store

import (
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/store/database"
)

// maxAbsence bounds the downtime by which [Tx.LeaseTime] extends the leases of updates.
const maxAbsence = 24 * time.Hour

// missedBeats is the number of missed beats after which all servers are considered to be down.
const missedBeats = 3

// beat is the row of table server_beats. It records the newest heartbeat of all servers.
type beat struct {
	ID     int64         // always 1, because the table has one row
	At     time.Time     `db:"beat_at"`  // database time
	Every  time.Duration `db:"every_us"` // interval until the next beat
	BootID string        // id of the machine's boot; "" with PostgreSQL
	Boot   time.Duration `db:"boot_us"` // time since the machine booted
}

var beats = database.NewTable[beat]("server_beats")

// LeaseTime returns the time against which leases and signs of life are checked. If all servers
// were down, the database rejected writes or the clock was set, the write ends, and runs again after
// the stored times have been shifted, so that every client and agent keeps the time that remained at the
// last beat.
func (tx *Tx) LeaseTime() (time.Time, error) {
	now := tx.Now()
	last, err := beats.One(tx.Tx, "WHERE id = 1")
	if errors.Is(err, ErrNotFound) {
		return now, nil
	}
	if err != nil {
		return now, err
	}
	if away, step := tx.passed(last, now); away != 0 || step != 0 {
		tx.gap = true
		return now, errGap
	}
	return now, nil
}

// shift shifts the stored times by the time since the last beat, and records a new beat, so that no other
// server repeats the shift.
func (tx *Tx) shift() error {
	now := tx.Now()
	last, err := beats.One(tx.Tx, "WHERE id = 1")
	if err != nil {
		return IgnoreMissing(err)
	}
	away, step := tx.passed(last, now)
	if away == 0 && step == 0 {
		return nil
	}
	if err := tx.shiftTimes(away, step, now); err != nil {
		return err
	}
	tx.OnCommit(func() { logAbsence(tx.log, away, step) })
	return tx.Beat(now, last.Every)
}

func (tx *Tx) passed(last beat, now time.Time) (away, step time.Duration) {
	bootID, boot := tx.Boot()
	return last.passed(now, bootID, boot)
}

// passed compares now with the last beat. It returns the time during which no server was up, and
// the amount by which the clock was set.
func (b beat) passed(now time.Time, bootID string, boot time.Duration) (away, step time.Duration) {
	away = now.Sub(b.At)
	// A boot id is not sufficient: it survives a resumed snapshot, and containers share it.
	if b.BootID != "" && b.BootID == bootID && boot >= b.Boot {
		away = boot - b.Boot
		step = now.Sub(b.At) - away
	} else if away < 0 {
		// Without a monotonic clock, only a backward step can be detected.
		away, step = 0, away
	}
	slack := missedBeats * b.Every
	if away <= slack {
		away = 0
	}
	if step.Abs() <= slack {
		step = 0
	}
	return away, step
}

// shiftTimes shifts the leases of running updates, the last signs of life of active jobs, and the
// first use of signing keys that were published but did not sign yet. After a clock step, it also
// shifts the presence of agents.
func (tx *Tx) shiftTimes(away, step time.Duration, now time.Time) error {
	_, err := tx.Exec("UPDATE updates SET lease_expires_at = lease_expires_at + $1 WHERE status = 'running'",
		min(away, maxAbsence)+step)
	if err != nil {
		return err
	}
	for _, table := range []string{"jobs", "policy_evaluations"} {
		_, err = tx.Exec("UPDATE "+table+` SET last_seen_at = CASE WHEN last_seen_at + $1 > $2 THEN $2 ELSE last_seen_at + $1 END
			WHERE status IN ('accepted', 'running')`, away+step, now)
		if err != nil {
			return err
		}
	}
	_, err = tx.Exec("UPDATE signing_keys SET use_from = use_from + $1 WHERE use_from > $2", away+step, now.Add(-away-step))
	if err != nil || step == 0 {
		return err
	}
	_, err = tx.Exec("UPDATE pool_agents SET live_until = live_until + $1, last_seen_at = last_seen_at + $1 WHERE live_until > 0",
		step)
	return err
}

// Beat records that a server is up at now, a time from [Tx.LeaseTime]. The next beat is due after
// every.
func (tx *Tx) Beat(now time.Time, every time.Duration) error {
	bootID, boot := tx.Boot()
	return beats.Save(tx.Tx, beat{ID: 1, At: now, Every: every, BootID: bootID, Boot: boot}, "id")
}

// Servers reports whether servers that share the database have beaten so recently that they can still run, and how long
// ago the last beat was. hosts are the addresses of those that are connected, as far as the database knows them. With
// SQLite, whose only server locks the database, no servers share it.
func (tx *Tx) Servers() (running bool, ago time.Duration, hosts []string, err error) {
	if !tx.Shared() {
		return false, 0, nil, nil
	}
	last, err := beats.One(tx.Tx, "WHERE id = 1")
	if err != nil {
		return false, 0, nil, IgnoreMissing(err)
	}
	if ago = tx.Now().Sub(last.At).Abs(); ago > missedBeats*last.Every { // a later beat is that of a wrong clock
		return false, ago, nil, nil
	}
	// A connection from before the last beat is not that of the caller, who has just begun.
	hosts, err = database.Scalars[string](tx.Tx, `SELECT DISTINCT host(client_addr) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = current_setting('application_name') AND pid <> pg_backend_pid() AND client_addr IS NOT NULL
		AND backend_start < to_timestamp($1 / 1000000.0) ORDER BY 1`, last.At)
	return true, ago, hosts, err
}

func logAbsence(log *logrus.Entry, away, step time.Duration) {
	if away > 0 {
		log.WithField("away", away.Round(time.Second)).Info("no server was running; extended leases and job deadlines by the downtime")
	}
	if step != 0 {
		log.WithField("step", step.Round(time.Second)).Warn("the clock was set; shifted leases and job deadlines by the same amount")
	}
}
