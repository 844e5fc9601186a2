package schedules

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
)

const (
	// inCalendar is the number of schedules that a calendar considers, the next ones first.
	inCalendar = 200
	// perHour is the number of entries that an hour of a day shows.
	perHour = 6
	// days is the number of days that a calendar shows.
	days = 7
	// shown is the number of the next times.
	shown = 20
)

// week is a calendar of seven days in a zone. It has only the hours in which a schedule is due.
type week struct {
	Days  [days]time.Time // their beginnings
	Hours []hour
}

// hour is an hour of the days of a week.
type hour struct {
	Hour int
	Days [days]cell
}

// cell is an hour of a day.
type cell struct {
	Entries []entry
	// Hidden is the number of entries that are not shown.
	Hidden int
}

// entry is a schedule that is due in an hour.
type entry struct {
	store.Schedule
	Minute, Times int // the first time, and the number of times
	// Waits says why deployments will wait, or "".
	Waits string
}

// text is the time of an entry in words.
func (e entry) text(hour int) string {
	two := func(n int) string { return string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) }
	at := two(hour) + ":" + two(e.Minute)
	if e.Times > 1 {
		at += " ×" + strconv.Itoa(e.Times)
	}
	return at
}

// place is an hour of a week.
type place struct{ day, hour int }

// weekOf returns the calendar of the seven days that begin today.
func weekOf(o triggers.Overview, times *triggers.Calendar, now time.Time, zone *time.Location) week {
	w := week{}
	year, month, day := now.In(zone).Date()
	for i := range w.Days {
		w.Days[i] = time.Date(year, month, day+i, 0, 0, 0, 0, zone)
	}
	end := time.Date(year, month, day+days, 0, 0, 0, 0, zone)
	cells := map[place][]entry{}
	for date := w.Days[0].UTC().Truncate(24 * time.Hour); date.Before(end); date = date.AddDate(0, 0, 1) {
		w.addDay(cells, o, times, date, end)
	}
	for h := range 24 {
		row, any := hour{Hour: h}, false
		for d := range days {
			list := cells[place{d, h}]
			slices.SortStableFunc(list, func(a, b entry) int {
				return cmp.Or(cmp.Compare(a.Minute, b.Minute), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Stack, b.Stack))
			})
			row.Days[d].Hidden = max(0, len(list)-perHour)
			row.Days[d].Entries = list[:len(list)-row.Days[d].Hidden]
			any = any || len(list) > 0
		}
		if any {
			w.Hours = append(w.Hours, row)
		}
	}
	return w
}

// addDay adds what is due on a day in UTC.
func (w week) addDay(cells map[place][]entry, o triggers.Overview, times *triggers.Calendar, date, end time.Time) {
	due := make([]triggers.Minutes, len(o.List))
	taken, twice := map[string]triggers.Minutes{}, map[string]triggers.Minutes{} // by stack
	for i, s := range o.List {
		due[i] = times.Day(s, date)
		twice[s.StackID] = twice[s.StackID].Or(taken[s.StackID].And(due[i]))
		taken[s.StackID] = taken[s.StackID].Or(due[i])
	}
	for utc := range 24 {
		begin := date.Add(time.Duration(utc) * time.Hour)
		// In zones whose offset is no number of hours, the hour belongs to two.
		local := begin.In(w.Days[0].Location())
		split := 60 - local.Minute()
		for _, part := range []struct {
			from   time.Time
			shift  int // of the minutes
			minute uint64
		}{
			{local, local.Minute(), 1<<split - 1},
			{local.Add(time.Duration(split) * time.Minute), -split, ^uint64(0) << split},
		} {
			at := w.place(part.from, end)
			if at.day < 0 {
				continue
			}
			for i, s := range o.List {
				set := due[i][utc] & part.minute
				if set == 0 {
					continue
				}
				e := entry{Schedule: s, Minute: bits.TrailingZeros64(set) + part.shift, Times: bits.OnesCount64(set), Waits: why(o, s)}
				if e.Waits == "" && set&twice[s.StackID][utc] != 0 {
					e.Waits = "at the same time as another schedule of the stack"
				}
				cells[at] = append(cells[at], e)
			}
		}
	}
}

// place returns the place of a time; its day is -1 outside of the week.
func (w week) place(t, end time.Time) place {
	if t.Before(w.Days[0]) || !t.Before(end) {
		return place{-1, 0}
	}
	day := days - 1
	for day > 0 && t.Before(w.Days[day]) {
		day--
	}
	return place{day, t.Hour()}
}

// upcoming is a time at which a schedule is due.
type upcoming struct {
	store.Schedule
	At time.Time
	// Waits says why the deployment will wait, or "".
	Waits string
}

// next returns the next times at which schedules are due.
func next(o triggers.Overview, times *triggers.Calendar) []upcoming {
	var list []upcoming
	for _, s := range o.List {
		for _, at := range times.Next(s, shown) {
			list = append(list, upcoming{s, at, why(o, s)})
		}
	}
	slices.SortStableFunc(list, func(a, b upcoming) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Stack, b.Stack))
	})
	at := map[string]int{}
	for i, u := range list {
		key := u.StackID + u.At.UTC().Format(time.RFC3339)
		if first, ok := at[key]; ok {
			for _, j := range []int{first, i} {
				list[j].Waits = cmp.Or(list[j].Waits, "at the same time as another schedule of the stack")
			}
		}
		at[key] = i
	}
	return list[:min(len(list), shown)]
}
