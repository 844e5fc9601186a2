// Package words writes values as people read them.
package words

import (
	"fmt"
	"time"
)

// Clock returns a time of day for sentences in UTC, with the date.
func Clock(t time.Time) string { return t.UTC().Format("2 Jan 15:04 UTC") }

// Duration returns d in words, such as "3 min 12 s".
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return "less than a second"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return parts(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return parts(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return parts(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

func parts(major int, unit string, minor int, small string) string {
	if minor == 0 {
		return fmt.Sprintf("%d %s", major, unit)
	}
	return fmt.Sprintf("%d %s %d %s", major, unit, minor, small)
}
