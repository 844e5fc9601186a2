package usage

import (
	"time"

	"workflowagent/internal/server/fault"
)

// Granularity is the unit by which usage is summed up.
type Granularity string

// The units.
const (
	Yearly  Granularity = "yearly"
	Monthly Granularity = "monthly"
	Weekly  Granularity = "weekly"
	Daily   Granularity = "daily"
	Hourly  Granularity = "hourly"
)

// same reports whether two times are in the same unit. A week ends with its year.
func (g Granularity) same(a, b time.Time) bool {
	switch {
	case a.Year() != b.Year():
		return false
	case g == Monthly:
		return a.Month() == b.Month()
	case g == Weekly:
		return Week(a) == Week(b)
	case g == Daily:
		return a.YearDay() == b.YearDay()
	case g == Hourly:
		return hourOf(a) == hourOf(b)
	default:
		return true
	}
}

// Week returns the number of the week in its year. Weeks start on Sunday; the days before a year's
// first Sunday are in week 0.
func Week(t time.Time) int { return (t.YearDay() - 1 + 7 - int(t.Weekday())) / 7 }

const day = 24 * time.Hour

// Bounds of periods.
const (
	maxDays    = 366
	hourlyDays = 2
)

// Query selects a period. With Days only, it ends now. With Start only, it is from Start until now.
// With both, it ends at Start, as the options of pulumi org usage describe.
type Query struct {
	Granularity Granularity
	Days        *int64 // nil if the request has none
	Start       *int64 // Unix seconds; nil if the request has none
}

// period returns the selected period. It starts with an hour.
func (q Query) period(now time.Time) (from, to time.Time, err error) {
	switch q.Granularity {
	case Yearly, Monthly, Weekly, Daily, Hourly:
	default:
		return from, to, fault.Invalid("granularity must be yearly, monthly, weekly, daily or hourly")
	}
	if q.Days == nil && q.Start == nil {
		return from, to, fault.Invalid("the query needs lookbackDays or lookbackStart")
	}
	from, to = now, now
	if q.Start != nil {
		from = time.Unix(*q.Start, 0).UTC()
		if from.Before(now.Add(-maxDays*day)) || from.After(now) {
			return from, to, fault.Invalid("lookbackStart must be a time in Unix seconds within the last year")
		}
	}
	if q.Days != nil {
		if *q.Days < 1 || *q.Days > maxDays {
			return from, to, fault.Invalid("lookbackDays must be 1 to %d", maxDays)
		}
		from, to = from.Add(-time.Duration(*q.Days)*day), from
	}
	if q.Granularity == Hourly && to.Sub(from) > hourlyDays*day {
		return from, to, fault.Invalid("with granularity hourly, the period must not exceed %d days", hourlyDays)
	}
	return from.Truncate(time.Hour), to, nil
}
