// Package words writes values as people read them.
package words

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Clock returns a time of day for sentences in UTC, with the date.
func Clock(t time.Time) string { return t.UTC().Format("2 Jan 15:04 UTC") }

// Duration returns d in its two largest units for sentences, such as "3 min 12 s".
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Truncate(time.Second/10).Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	large, small := units(d)
	return strings.TrimSuffix(fmt.Sprintf("%d %s %d %s", d/large.size, large.name, d%large.size/small.size, small.name), " 0 "+small.name)
}

// Short returns d in its two largest units for the columns of a table, such as "3m12s".
func Short(d time.Duration) string {
	if d = max(d, 0); d < time.Minute {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	large, small := units(d)
	return fmt.Sprintf("%d%.1s%02d%.1s", d/large.size, large.name, d%large.size/small.size, small.name)
}

// Elapsed returns d as a clock shows it, such as "3:12" or "1:03:12".
func Elapsed(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s%3600/60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// Age returns d in one unit for the columns of a list, such as "12 min" or "3 w".
func Age(d time.Duration) string {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d < 2*week:
		return fmt.Sprintf("%d d", d/day)
	default:
		return fmt.Sprintf("%d w", d/week)
	}
}

// Soon returns a time after now for a narrow column, in UTC: the time of the same day, the day of the week of the next
// six days, or the date.
func Soon(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	switch days := t.Sub(today) / (24 * time.Hour); {
	case t.Before(today) || days >= 7:
		return t.Format("2 Jan")
	case days == 0:
		return t.Format("15:04")
	default:
		return t.Format("Mon")
	}
}

type unit struct {
	size time.Duration
	name string
}

// units returns the two largest units of a duration of at least a minute.
func units(d time.Duration) (large, small unit) {
	second, minute, hour, day := unit{time.Second, "s"}, unit{time.Minute, "min"}, unit{time.Hour, "h"}, unit{24 * time.Hour, "d"}
	switch {
	case d < time.Hour:
		return minute, second
	case d < day.size:
		return hour, minute
	}
	return day, hour
}

// Bytes returns a number of bytes in binary units, such as "1.5 GiB".
func Bytes[N ~int | ~int64 | ~uint64](n N) string { return humanize.IBytes(uint64(max(n, 0))) }

// Number returns n with commas between thousands.
func Number[N ~int | ~int64](n N) string { return humanize.Comma(int64(n)) }

// UpTo returns a number that was counted up to a limit, such as "10,000+".
func UpTo[N ~int | ~int64](n, limit N) string {
	if n >= limit {
		return Number(limit) + "+"
	}
	return Number(n)
}

// Count returns a number with its noun, such as "1 agent" or "12,000 lines". The plural adds "s".
func Count[N ~int | ~int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Number(n) + " " + noun
}

// And joins texts, such as "a, b and c".
func And(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// Are returns the verb for a number of things: "is" or "are".
func Are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
