package runs

import (
	"testing"
	"time"
)

// TestAges checks that finished deployments are grouped by the days of the visitor's zone, also where a day has 23 hours.
func TestAges(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 30, 0, 30, 0, 0, berlin) // after a day of 23 hours
	for at, want := range map[time.Time]string{
		now.Add(-20 * time.Minute):                          "Today",
		now.Add(-40 * time.Minute):                          "Yesterday",
		time.Date(2026, 3, 29, 0, 0, 0, 0, berlin):          "Yesterday",
		time.Date(2026, 3, 28, 23, 59, 59, 0, berlin):       "Last 7 days",
		time.Date(2026, 3, 28, 23, 59, 59, 0, berlin).UTC(): "Last 7 days",
		now.Add(-8 * 24 * time.Hour):                        "Last 30 days",
		now.Add(-31 * 24 * time.Hour):                       "Older",
	} {
		if got := ageOf(at, now, berlin); got != want {
			t.Errorf("%s is %q, want %q", at, got, want)
		}
	}
}
