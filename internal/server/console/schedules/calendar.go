package schedules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/words"
)

const (
	// inCalendar is the number of schedules that a calendar considers, the next ones first.
	inCalendar = 200
	// single is the number of times a day up to which a calendar shows each time of a schedule.
	single = 4
	// perDay is the number of entries that a day shows.
	perDay = 50
	// days is the number of days that a calendar shows.
	days = 7
)

// day is a day of a calendar, in UTC.
type day struct {
	Date    time.Time
	Entries []entry
	// Hidden is the number of entries that are not shown.
	Hidden int
}

// entry is one time of a schedule, or several if it is due often.
type entry struct {
	store.Schedule
	At    time.Duration // since the day began
	Times int           // on this day, from At on
	// Collision says why deployments will wait, or "".
	Collision string
}

// when returns the time of an entry in words.
func (e entry) when() string {
	at := fmt.Sprintf("%02d:%02d", int(e.At.Hours()), int(e.At.Minutes())%60)
	if e.Times > 1 {
		return "from " + at + ", " + words.Count(e.Times, "time")
	}
	return at
}

// week returns the days of a calendar that begins now.
func week(o triggers.Overview, now time.Time) []day {
	var c triggers.Calendar
	out := make([]day, days)
	for i := range out {
		out[i] = dayOf(o, &c, now.Truncate(24*time.Hour).AddDate(0, 0, i))
	}
	return out
}

func dayOf(o triggers.Overview, c *triggers.Calendar, date time.Time) day {
	d := day{Date: date}
	due := make([]triggers.Minutes, len(o.List))
	taken, twice := map[string]triggers.Minutes{}, map[string]triggers.Minutes{} // by stack
	for i, s := range o.List {
		due[i] = c.Day(s, date)
		twice[s.StackID] = twice[s.StackID].Or(taken[s.StackID].And(due[i]))
		taken[s.StackID] = taken[s.StackID].Or(due[i])
	}
	for i, s := range o.List {
		n := due[i].Len()
		if n == 0 {
			continue
		}
		why := model{Overview: o}.state(s)
		if n > single {
			if both := due[i].And(twice[s.StackID]).Len(); why == "" && both > 0 {
				why = fmt.Sprintf("%s at the same time as another schedule of the stack", words.Count(both, "time"))
			}
			d.Entries = append(d.Entries, entry{s, due[i].First(1)[0], n, why})
			continue
		}
		both := due[i].And(twice[s.StackID]).First(single)
		for _, at := range due[i].First(single) {
			e := entry{s, at, 1, why}
			if why == "" && slices.Contains(both, at) {
				e.Collision = "at the same time as another schedule of the stack"
			}
			d.Entries = append(d.Entries, e)
		}
	}
	slices.SortStableFunc(d.Entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Stack, b.Stack))
	})
	d.Hidden = max(0, len(d.Entries)-perDay)
	d.Entries = d.Entries[:len(d.Entries)-d.Hidden]
	return d
}
