package retention_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/storage/retention"
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
