package changes

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/words"
)

// Span is a part of a run, whose times the server has measured.
type Span struct {
	// Status is the word for its state.
	Status     string
	Name, Href string
	Began      time.Time // zero for a part that has not begun
	Took       time.Duration
	// Running reports that the part has not ended.
	Running bool
	Note    string // such as an exit code
}

// Course is the timeline of a run.
type Course struct {
	Model
	Spans []Span
	// Updates reports that the run has an update, whose resources follow the parts.
	Updates bool
	// Started and Ended are the times of the update by the clock of the server; Ended is zero while it runs.
	Started, Ended time.Time
}

// tolerance is the difference between the clocks of the server and of the engine that the timeline does not correct.
const tolerance = 2 * time.Second

// offset returns what to add to the times of resources. If the events are not within the update, the two clocks differ,
// and the timeline lets the events begin with the update.
func (c Course) offset() time.Duration {
	end := c.Ended
	if end.IsZero() {
		end = c.Now
	}
	if c.Started.IsZero() || c.Model.Began.IsZero() || !c.Model.Began.Before(c.Started.Add(-tolerance)) && !c.LastActivity.After(end.Add(tolerance)) {
		return 0
	}
	return c.Started.Truncate(time.Second).Sub(c.Model.Began)
}

// ticks is the number of ticks of the axis, and tickShare the part of the axis between two of them, as in the styles.
const (
	ticks     = 5
	tickShare = 0.229
)

// tickSteps are the times between ticks.
var tickSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// axis is the time of a run, from its begin on.
type axis struct {
	begin time.Time
	step  time.Duration
}

// axis returns the axis on which all parts and resources of a run fit.
func (c Course) axis() axis {
	var begin, end time.Time
	add := func(from time.Time, took time.Duration) {
		if from.IsZero() {
			return
		}
		if begin.IsZero() || from.Before(begin) {
			begin = from
		}
		if to := from.Add(took); to.After(end) {
			end = to
		}
	}
	for _, s := range c.Spans {
		add(s.Began, s.Took)
	}
	offset := c.offset()
	for _, r := range c.Rows {
		if !r.Began.IsZero() {
			add(r.Began.Add(offset), c.took(r))
		}
	}
	for _, step := range tickSteps {
		if float64(step) >= tickShare*float64(end.Sub(begin)) {
			return axis{begin, step}
		}
	}
	return axis{begin, max(24*time.Hour, time.Duration(tickShare*float64(end.Sub(begin))))}
}

// labels are the texts of the ticks.
func (a axis) labels() []string {
	out := make([]string, ticks)
	for i := range out {
		out[i] = words.Elapsed(time.Duration(i) * a.step)
	}
	return out
}

// bar returns where a part lies on the axis, and its length.
func (a axis) bar(from time.Time, took time.Duration) (x, width string) {
	all := float64(a.step) / tickShare
	at := min(99.8, max(0, float64(from.Sub(a.begin))*100/all))
	w := min(100-at, max(0.3, float64(took)*100/all))
	return percent(at), percent(w)
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) + "%" }

// reads says where a part lies, for screen readers. Only the times of parts are known to the millisecond.
func (a axis) reads(from time.Time, took time.Duration, exact bool) string {
	at := max(0, from.Sub(a.begin))
	if exact {
		return fmt.Sprintf("from %s to %s", seconds(at), seconds(at+took))
	}
	return fmt.Sprintf("from about %d s to %d s", at/time.Second, (at+took)/time.Second)
}

// seconds returns a time in seconds with milliseconds.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) + " s" }

// clocked is the time from which on columns show minutes.
const clocked = 100 * time.Second

// time returns how long a part took.
func (s Span) time() string {
	switch {
	case s.Began.IsZero():
		return ""
	case s.Took >= clocked:
		return words.Elapsed(s.Took)
	default:
		return strconv.FormatFloat(s.Took.Seconds(), 'f', 3, 64) + "s"
	}
}

// took returns how long the operation on a resource took, in the whole seconds that are known.
func (c Course) took(r changes.Row) time.Duration {
	if r.State == changes.Running && !c.Over {
		return max(0, c.Now.Sub(r.Began.Add(c.offset())))
	}
	return r.Took
}

// inSeconds returns the time of a resource. The engine's times have whole seconds.
func (c Course) inSeconds(r changes.Row) string {
	switch took := c.took(r); {
	case c.status(r) == "interrupted":
		return ""
	case took < time.Second:
		return "<1s"
	case took >= clocked:
		return words.Elapsed(took)
	default:
		return strconv.Itoa(int(took/time.Second)) + "s"
	}
}

// resources returns the changed resources in the order of their beginnings, and the number of those that the timeline
// leaves out.
func (c Course) resources() (list []changes.Row, more int) {
	for _, r := range c.Rows {
		if !r.Began.IsZero() && r.Changed() && r.Type != stackType && r.State != changes.Planned {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b changes.Row) int { return a.Began.Compare(b.Began) })
	if len(list) > PageSize {
		list, more = list[:PageSize], len(list)-PageSize
	}
	return list, more
}

// barClass is the class of the color of a bar.
func barClass(status string) string {
	switch view.MarkOf(status) {
	case view.MarkFailed:
		return "x"
	case view.MarkRunning:
		return "r"
	default:
		return "a"
	}
}

// progress says how many resources are done.
func (c Course) progress() string {
	done, all := 0, 0
	for _, r := range c.Rows {
		if r.Changed() && r.Type != stackType {
			all++
			if r.State == changes.Done || r.State == changes.Failed {
				done++
			}
		}
	}
	if c.Over || all == 0 {
		return words.Number(all)
	}
	return words.Number(done) + " done so far"
}
