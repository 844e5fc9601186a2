package retention_test

import (
	"path/filepath"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/storage/retention"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestClockSetAhead checks that a clock that is set a year ahead removes nothing for a day, and
// nothing at all if it is corrected in time. A clock that was right removes data as before.
func TestClockSetAhead(t *testing.T) {
	const year = 365 * day
	var clock storetest.Clock
	w := newWorld(t, storetest.SQLiteAt(t, &clock))
	w.now = clock.Now()
	w.fill()
	sweeper := retention.New(w.db, storetest.Log(), &w.deleted, retention.Policy{States: 3, StatesFor: 400 * day, LogsFor: 400 * day})
	pass := func(d time.Duration) {
		clock.Pass(d)
		sweeper.Pass(d)
	}
	removes := func(when string, want bool) {
		t.Helper()
		if err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if removed := w.removed(); (len(removed) > 0) != want {
			t.Errorf("%s: removed %v, want something: %v", when, removed, want)
		}
	}
	removes("at first", false)
	clock.Set(year)
	removes("after the clock was set a year ahead", false)
	pass(23 * time.Hour)
	removes("23 hours later", false)
	clock.Set(-year)
	removes("after the clock was corrected", false)
	pass(2 * time.Hour)
	removes("2 hours later", false)
	clock.Set(year)
	removes("after the clock was set ahead again", false)
	pass(25 * time.Hour)
	removes("25 hours later", true)
}

// TestClockBeforeTheStart starts servers after times in which none ran, or in which the clock was set.
func TestClockBeforeTheStart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		stored := func(c store.SweepClock) { w.write(func(tx *store.Tx) error { return tx.SaveSweepClock(c) }) }
		start := func(when string, want bool) {
			t.Helper()
			w.deleted.times = nil
			w.sweep(retention.Policy{DeletedFor: 30 * day})
			if got := len(w.deleted.times) > 0; got != want {
				t.Errorf("%s: removed something: %v, want %v", when, got, want)
			}
		}
		w.write(func(tx *store.Tx) error { return tx.Beat(tx.Now(), time.Second) })
		start("at first", true)
		stored(store.SweepClock{SweptAt: w.now.Add(-23 * time.Hour)})
		start("after 23 hours", true)
		stored(store.SweepClock{SweptAt: w.now.Add(-31 * day)})
		start("after 31 days", false)
		w.write(func(tx *store.Tx) error { return tx.Beat(tx.Now(), time.Second) })
		start("after another start", false)
		var held store.SweepClock
		w.write(func(tx *store.Tx) (err error) {
			held, err = tx.SweepClock()
			return err
		})
		if wait := held.HeldUntil.Sub(w.now); wait < 23*time.Hour || wait > 25*time.Hour {
			t.Errorf("nothing is removed for %v", wait)
		}
		stored(store.SweepClock{SweptAt: w.now.Add(31 * day), HeldUntil: w.now.Add(32 * day)})
		start("after the clock was corrected", false)
		stored(store.SweepClock{SweptAt: w.now, HeldUntil: w.now.Add(-time.Second)})
		start("a day later", true)
	})
}

// TestClockBeforeAnUpgrade starts the first server that stores when it swept, 31 days after the last sign of an earlier
// one. It has recorded its own before it sweeps.
func TestClockBeforeAnUpgrade(t *testing.T) {
	for engine, dsn := range map[string]func() string{
		"sqlite":   func() string { return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		"postgres": func() string { return storetest.PostgresURL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			dsn, blobs := dsn(), t.TempDir()
			older := must.Get(database.Open(t.Context(), dsn, database.Options{Log: storetest.Log(), BlobDir: blobs, Migrations: storetest.Migrations(t, "../../store/migrations", "0400")}))(t)
			must.OK(t, older.Write(t.Context(), scope.Free, func(tx *database.Tx) error {
				_, err := tx.Exec("INSERT INTO server_beat (id, beat_at, every_us) VALUES (1, $1, 5000000)", tx.Now().Add(-31*day))
				return err
			}))
			must.OK(t, older.Close())
			db := must.Get(store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: blobs}))(t)
			t.Cleanup(func() { must.OK(t, db.Close()) })
			w := newWorld(t, db)
			w.write(func(tx *store.Tx) error { return tx.Beat(tx.Now(), time.Second) })
			w.sweep(retention.Policy{DeletedFor: 30 * day})
			if len(w.deleted.times) > 0 {
				t.Errorf("removed something: %v", w.deleted.times)
			}
		})
	}
}

// TestClockSetBack checks that a clock that is set back does not stop the sweeper.
func TestClockSetBack(t *testing.T) {
	var clock storetest.Clock
	w := newWorld(t, storetest.SQLiteAt(t, &clock))
	w.now = clock.Now()
	w.fill()
	sweeper := retention.New(w.db, storetest.Log(), &w.deleted, retention.Policy{States: 3, StatesFor: 400 * day, LogsFor: 400 * day})
	for _, step := range []time.Duration{0, -2 * time.Hour} {
		clock.Set(step)
		if err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	clock.Pass(200 * day)
	sweeper.Pass(200 * day)
	if err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.removed()) == 0 {
		t.Error("the sweeper removed nothing")
	}
}
