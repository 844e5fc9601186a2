package triggers

import (
	"slices"
	"testing"
	"time"

	"workflowagent/internal/server/store"
)

// TestCalendar compares the minutes of days with the times that schedules compute one by one.
func TestCalendar(t *testing.T) {
	start := time.Date(2028, 2, 27, 0, 0, 0, 0, time.UTC) // a Sunday in a leap year
	var c Calendar
	for _, expression := range []string{"*/20 * * * *", "*/7 3-5 * * *", "0 0 29 2 *", "59 23 * * 0", "30 12 1 * 1", "15 */6 * 3 *", "0 0 31 12 *"} {
		next, err := NextTime(expression, start.Add(90*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		s := store.Schedule{Cron: expression, NextAt: next}
		for day := start; day.Before(start.AddDate(0, 0, 7)); day = day.AddDate(0, 0, 1) {
			minutes := c.Day(s, day)
			var want []time.Duration
			for ; next.Before(day.AddDate(0, 0, 1)); next, _ = NextTime(expression, next) {
				want = append(want, next.Sub(day))
			}
			if got := minutes.First(2000); minutes.Len() != len(want) || len(got) != len(want) {
				t.Fatalf("%q on %s: %d times, want %d", expression, day, minutes.Len(), len(want))
			}
			for i, at := range minutes.First(2000) {
				if at != want[i] {
					t.Fatalf("%q on %s: %v, want %v", expression, day, at, want[i])
				}
			}
		}
		s.Paused = true
		if c.Day(s, start.AddDate(0, 0, 1)) != (Minutes{}) {
			t.Errorf("%q is due although it is paused", expression)
		}
	}
}

func TestNext(t *testing.T) {
	var c Calendar
	leap := time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		schedule store.Schedule
		want     []time.Time
	}{
		{store.Schedule{Cron: "0 0 29 2 *", NextAt: leap}, []time.Time{leap, leap.AddDate(4, 0, 0), leap.AddDate(8, 0, 0)}},
		{store.Schedule{Cron: "*/30 23 * * *", NextAt: leap.Add(23 * time.Hour)}, []time.Time{leap.Add(23 * time.Hour), leap.Add(23*time.Hour + 30*time.Minute), leap.Add(47 * time.Hour)}},
		{store.Schedule{OnceAt: leap, NextAt: leap}, []time.Time{leap}},
		{store.Schedule{OnceAt: leap, Fired: true}, nil},
		{store.Schedule{Cron: "* * * * *", NextAt: leap, Paused: true}, nil},
	} {
		if got := c.Next(tt.schedule, 3); !slices.Equal(got, tt.want) {
			t.Errorf("%+v is due at %v, want %v", tt.schedule, got, tt.want)
		}
	}
}

func TestMinutes(t *testing.T) {
	var c Calendar
	day := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	once := store.Schedule{OnceAt: day.Add(26 * time.Hour), NextAt: day.Add(26*time.Hour + 30*time.Second)}
	if n := c.Day(once, day).Len() + c.Day(once, day.AddDate(0, 0, 2)).Len(); n != 0 {
		t.Errorf("a schedule for one time is due %d times on other days", n)
	}
	at := c.Day(once, day.AddDate(0, 0, 1))
	hourly := c.Day(store.Schedule{Cron: "0 * * * *", NextAt: day}, day)
	if both := at.And(hourly).First(9); len(both) != 1 || both[0] != 2*time.Hour {
		t.Errorf("both are due at %v, want 2 h", both)
	}
	if n := at.Or(hourly).Len(); n != 24 {
		t.Errorf("%d minutes, want 24", n)
	}
	if first := hourly.First(3); len(first) != 3 || first[2] != 2*time.Hour {
		t.Errorf("the first three are %v", first)
	}
}
