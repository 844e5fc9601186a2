package deployment

import (
	"slices"
	"strconv"
	"time"

	console "workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/words"
)

// mostRows bounds the rows of a group of changes next to the log; the tab Changes shows all.
const mostRows = 50

// change is a resource next to the log.
type change struct {
	changes.Row
	// Icon is a mark or the icon of an operation.
	Icon string
	Mark bool
	// Text is the time or the state.
	Text  string
	Since time.Time // of an operation that runs
}

// group are changes under a title; "" for none.
type group struct {
	Title string
	Rows  []change
	More  int
}

// groups are the changes of an update next to the log: what failed and what runs, what is dangerous, and what is done.
func groups(m console.Model) []group {
	var failed, running, waiting, dangerous, done []change
	for _, r := range m.Rows {
		if !r.Changed() || r.Type == stackType && r.State != changes.Running {
			continue
		}
		switch one := shownChange(m, r); {
		case one.Icon == "s-failed":
			failed = append(failed, one)
		case one.Icon == "s-running":
			running = append(running, one)
		case r.Op == "delete" || r.Op == "replace":
			dangerous = append(dangerous, one)
		case r.State == changes.Done:
			done = append(done, one)
		default:
			waiting = append(waiting, one)
		}
	}
	slices.Reverse(done) // the newest first
	var out []group
	add := func(title string, list []change) {
		if len(list) > 0 {
			n := min(len(list), mostRows)
			out = append(out, group{title, list[:n], len(list) - n})
		}
	}
	add("Failed", failed)
	add("Running", running)
	add("Deletes and replaces", dangerous)
	add(waitingTitle(m), waiting)
	add("Done", done)
	return out
}

func waitingTitle(m console.Model) string {
	if m.Preview {
		return "Planned"
	}
	return "Not done"
}

func shownChange(m console.Model, r changes.Row) change {
	one := change{Row: r}
	switch {
	case r.State == changes.Failed || r.Errors > 0:
		one.Icon, one.Mark, one.Text = "s-failed", true, "failed"
	case r.State == changes.Running && !m.Over:
		one.Icon, one.Mark, one.Since = "s-running", true, r.Began
		one.Text = words.Elapsed(m.Now.Sub(r.Began))
	case r.State == changes.Done || m.Preview:
		one.Icon = console.OpIcon(r.Op)
		switch {
		case r.Took > 0:
			one.Text = words.Elapsed(r.Took)
		case r.State == changes.Done && !r.Began.IsZero(): // the engine's times have whole seconds
			one.Text = "<1s"
		}
	default:
		one.Icon, one.Mark, one.Text = "s-queued", true, "not tried"
		if r.State == changes.Running {
			one.Text = "interrupted"
		}
	}
	return one
}

// count is a number of resources with what happens to them.
type count struct {
	N         int
	Word      string
	Dangerous bool
}

// tally returns the numbers of resources by operation.
func tally(m console.Model) (list []count) {
	totals, all := console.Totals(m.Tree)
	rest := all
	for _, t := range totals {
		rest -= t.Count
		if dangerous := t.Op == "delete" || t.Op == "replace"; dangerous || len(list) < 4 {
			list = append(list, count{t.Count, t.Op, dangerous})
		}
	}
	if rest > 0 {
		list = append(list, count{rest, "same", false})
	}
	return list
}

// finished says how many changes are done, or "" if the numbers of resources say it: those of a preview, and of an update
// that has done all. These numbers include the stack itself, which is no change that the list shows.
func finished(m console.Model) string {
	open := slices.ContainsFunc(m.Rows, func(r changes.Row) bool { return r.Changed() && (r.State != changes.Done || r.Errors > 0) })
	if m.Preview || m.Over && !open {
		return ""
	}
	return strconv.Itoa(doneChanges(m)) + " done"
}

func doneChanges(m console.Model) int {
	n := 0
	for _, r := range m.Rows {
		if r.Changed() && r.State == changes.Done && r.Errors == 0 && r.Type != stackType {
			n++
		}
	}
	return n
}

const stackType = "pulumi:pulumi:Stack"

// resourcePath returns the page that shows what the update changes in a resource.
func (d shown) resourcePath(urn string) string {
	if d.Changes == nil {
		return "?view=changes"
	}
	return d.Changes.Of(urn)
}
