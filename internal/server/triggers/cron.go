package triggers

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/adhocore/gronx"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/termtext"
)

const (
	// maxCron is the maximum length of a cron expression in bytes.
	maxCron = 200
	// maxDays is the number of days in which a cron expression must be due. The longest time between
	// two leap days on the same day of the week is 40 years.
	maxDays = 366 * 41
)

var cronFields = [...]string{"minute", "hour", "day of month", "month", "day of week"}

// NextTime returns the first time after a time at which a cron expression with five fields is due,
// in UTC. Users choose the expression, so the search must not be long: it asks the library, which
// searches step by step, only whether single fields are due.
func NextTime(expression string, after time.Time) (time.Time, error) {
	c, ok := parseCron(expression)
	if !ok {
		return time.Time{}, invalidCron(expression)
	}
	next, ok := c.after(after)
	if !ok {
		return next, fault.Invalid("the cron expression %q never fires", termtext.OneLine(expression, maxCron))
	}
	return next, nil
}

// invalidCron returns an error that names the first wrong field of an expression.
func invalidCron(expression string) error {
	shown := termtext.OneLine(expression, maxCron)
	values := strings.Fields(expression)
	if i := slices.IndexFunc(values, namesZone); i >= 0 {
		return fault.Invalid("the cron expression %q names a time zone; the times of schedules are in UTC: remove %s and convert the hours to UTC", shown, termtext.OneLine(values[i], maxCron))
	}
	if len(expression) <= maxCron && len(values) == len(cronFields) {
		for i, value := range values {
			alone := []string{"*", "*", "*", "*", "*"}
			alone[i] = value
			if !gronx.IsValid(strings.Join(alone, " ")) {
				return fault.Invalid("the cron expression %q is not valid: its %s is %q", shown, cronFields[i], termtext.OneLine(value, maxCron))
			}
		}
	}
	return fault.Invalid("%q is not a cron expression; it needs five fields: minute, hour, day of month, month and day of week, as in \"0 */4 * * *\"", shown)
}

// namesZone reports whether a word is a time zone as other crons accept it: CRON_TZ=Europe/Berlin, or a
// name in a sixth field.
func namesZone(word string) bool {
	name, _, set := strings.Cut(word, "=")
	return set && strings.HasSuffix(strings.ToUpper(name), "TZ") || word == "UTC" || word == "GMT" || zoneName.MatchString(word)
}

// zoneName matches names such as Europe/Berlin, but no steps such as MON/2.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z_]+/[A-Z][A-Za-z_/+-]*$`)

// toSunday matches ranges that end on a Sunday, such as FRI-SUN. The library takes a Sunday as the first
// day of a week by its name, and as the last one only by the number 7.
var toSunday = regexp.MustCompile(`(?i)\b(MON|TUE|WED|THU|FRI|SAT|[1-6])-SUN\b`)

// cron is an expression. It contains the minutes, hours and months that are due, counted from 0.
type cron struct {
	minutes, hours, months []int
	days                   string // expression for the day of month and of week
	daysOf                 map[monthShape][]int
}

// monthShape determines which days of a month are due.
type monthShape struct {
	length int
	start  time.Weekday
}

func parseCron(expression string) (c cron, ok bool) {
	fields := strings.Fields(expression)
	if len(fields) == len(cronFields) {
		fields[4] = toSunday.ReplaceAllString(fields[4], "$1-7")
	}
	if len(expression) > maxCron || len(fields) != 5 || !gronx.IsValid(strings.Join(fields, " ")) {
		return c, false
	}
	for _, f := range []struct {
		due   *[]int
		alone string
		n     int
		at    func(i int) time.Time
	}{
		{&c.minutes, fields[0] + " * * * *", 60, func(i int) time.Time { return time.Date(2000, 1, 1, 0, i, 0, 0, time.UTC) }},
		{&c.hours, "* " + fields[1] + " * * *", 24, func(i int) time.Time { return time.Date(2000, 1, 1, i, 0, 0, 0, time.UTC) }},
		{&c.months, "* * * " + fields[3] + " *", 12, func(i int) time.Time { return time.Date(2000, time.Month(i+1), 1, 0, 0, 0, 0, time.UTC) }},
	} {
		if *f.due, ok = due(f.alone, f.n, f.at); !ok {
			return c, false
		}
	}
	c.days, c.daysOf = "* * "+fields[2]+" * "+fields[4], map[monthShape][]int{}
	_, ok = due(c.days, 31, func(i int) time.Time { return time.Date(2000, 1, 1+i, 0, 0, 0, 0, time.UTC) })
	return c, ok
}

// due returns the numbers below n for whose times an expression is due. ok is false if the library
// rejects the expression, which it does only at times at which no part before the bad one is due.
func due(expression string, n int, at func(i int) time.Time) (list []int, ok bool) {
	g := gronx.New()
	for i := range n {
		is, err := g.IsDue(expression, at(i))
		if err != nil {
			return nil, false
		}
		if is {
			list = append(list, i)
		}
	}
	return list, true
}

// after returns the first due time after a time, in UTC.
func (c cron) after(t time.Time) (time.Time, bool) {
	day := t.UTC().Truncate(24 * time.Hour)
	rest := c.on(day).from(t.Sub(day) + time.Minute)
	for range maxDays {
		if first := rest.First(1); len(first) > 0 {
			return day.Add(first[0]), true
		}
		day = day.AddDate(0, 0, 1)
		rest = c.on(day)
	}
	return time.Time{}, false
}

// daysIn returns the days of a month that are due, counted from 0.
func (c cron) daysIn(month time.Time) []int {
	shape := monthShape{month.AddDate(0, 1, -1).Day(), month.Weekday()}
	days, known := c.daysOf[shape]
	if !known {
		days, _ = due(c.days, shape.length, func(i int) time.Time { return month.AddDate(0, 0, i) })
		c.daysOf[shape] = days
	}
	return days
}

// on returns the minutes of a day, in UTC, that are due.
func (c cron) on(day time.Time) (m Minutes) {
	month := time.Date(day.Year(), day.Month(), 1, 0, 0, 0, 0, time.UTC)
	if !slices.Contains(c.months, int(month.Month())-1) || !slices.Contains(c.daysIn(month), day.Day()-1) {
		return m
	}
	for _, hour := range c.hours {
		for _, minute := range c.minutes {
			m[hour] |= 1 << minute
		}
	}
	return m
}
