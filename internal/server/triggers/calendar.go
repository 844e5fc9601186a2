package triggers

import (
	"math/bits"
	"time"

	"workflowagent/internal/server/store"
)

// Minutes is a set of the minutes of a day: for each hour, a bit for each minute.
type Minutes [24]uint64

// Len returns the number of minutes in the set.
func (m Minutes) Len() int {
	n := 0
	for _, hour := range m {
		n += bits.OnesCount64(hour)
	}
	return n
}

// And returns the minutes that are in both sets.
func (m Minutes) And(other Minutes) Minutes {
	for hour := range m {
		m[hour] &= other[hour]
	}
	return m
}

// Or returns the minutes that are in one of the sets.
func (m Minutes) Or(other Minutes) Minutes {
	for hour := range m {
		m[hour] |= other[hour]
	}
	return m
}

// First returns up to limit of the earliest minutes, as the time since the day began.
func (m Minutes) First(limit int) []time.Duration {
	var out []time.Duration
	for hour, set := range m {
		for ; set != 0 && len(out) < limit; set &= set - 1 {
			out = append(out, time.Duration(hour)*time.Hour+time.Duration(bits.TrailingZeros64(set))*time.Minute)
		}
	}
	return out
}

// from returns the minutes that do not precede a minute of the day.
func (m Minutes) from(at time.Duration) Minutes {
	for hour := range m {
		switch first := int(at / time.Hour); {
		case hour < first:
			m[hour] = 0
		case hour == first:
			m[hour] &= ^uint64(0) << (at % time.Hour / time.Minute)
		}
	}
	return m
}

// Calendar computes when schedules are due. It is not safe for concurrent use.
type Calendar struct{ parsed map[string]cron }

// Day returns the minutes of a day, in UTC, at which a schedule is due: none if it is paused. day is
// the day's beginning.
func (c *Calendar) Day(s store.Schedule, day time.Time) Minutes {
	next := s.NextAt.UTC()
	if s.Paused || s.NextAt.IsZero() || !next.Before(day.AddDate(0, 0, 1)) {
		return Minutes{}
	}
	begin := max(0, next.Sub(day))
	if s.Cron != "" {
		return c.cron(s.Cron).on(day).from(begin)
	}
	var m Minutes
	if !next.Before(day) {
		m[next.Hour()] = 1 << next.Minute()
	}
	return m
}

// Next returns up to limit of the next times at which a schedule is due: none if it is paused.
func (c *Calendar) Next(s store.Schedule, limit int) []time.Time {
	var out []time.Time
	next, ok := s.NextAt, !s.Paused && !s.NextAt.IsZero()
	for ok && len(out) < limit {
		out = append(out, next)
		if s.Cron == "" {
			break
		}
		next, ok = c.cron(s.Cron).after(next)
	}
	return out
}

// cron returns an expression. [Service.Create] has checked it.
func (c *Calendar) cron(text string) cron {
	expression, known := c.parsed[text]
	if !known {
		expression, _ = parseCron(text)
		if c.parsed == nil {
			c.parsed = map[string]cron{}
		}
		c.parsed[text] = expression
	}
	return expression
}
