package estate

import (
	"fmt"
	"math"
	"strings"
	"time"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	domain "workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
)

var marks = map[domain.State]string{
	domain.Running: view.MarkRunning, domain.Failed: view.MarkFailed, domain.Drift: view.MarkDrift, domain.Queued: view.MarkQueued,
	domain.Paused: view.MarkPaused, domain.Declared: view.MarkOK, domain.Never: view.MarkNever,
}

// StarLink returns the link to a stack in the navigation.
func StarLink(org string, s domain.Stack) view.StarLink {
	return view.StarLink{Project: s.Project, Name: s.Name, Href: links.Path(org, s.Project, s.Name), Mark: Mark(s.State), Word: s.State.Words()}
}

// what says what the last run of a stack did: in the words of who ran it, or by its kind.
func what(s domain.Stack) string {
	switch {
	case s.LastKind == "":
		return "Not updated yet"
	case s.LastMessage != "":
		return s.LastMessage
	case s.LastDeployment > 0:
		return fmt.Sprintf("Deployment #%d: %s", s.LastDeployment, s.LastKind)
	default:
		return fmt.Sprintf("%s %d", s.LastKind, s.LastVersion)
	}
}

func lockTitle(s domain.Stack) string {
	text := "locked"
	if by := s.By(); by != "" {
		text += " by " + by
	}
	return text + " since " + s.LastStartedAt.UTC().Format("15:04 UTC")
}

// driftText returns the changes that a detection found, in short and in words.
func driftText(s domain.Stack) (short, long string) {
	counts := s.Drifted()
	if counts == nil {
		return "found", "drift found"
	}
	short, long = changes.Brief(counts)
	return short, "drift found: " + long
}

// bar is a run in a sparkline.
type bar struct {
	X, Y, Height int
	Class        string
}

// The geometry of a sparkline, in pixels.
const (
	barStep   = 5
	barBottom = 16
	barMost   = 14
	barLeast  = 3
	barHang   = 4 // below the line, for what went wrong
)

var barClasses = map[store.RunResult]string{store.RunFailed: "x", store.RunDrift: "d", store.RunCancelled: "c", store.RunRunning: "r"}

// runsOf returns the last runs of a stack, with the running one.
func runsOf(s domain.Stack, now time.Time) []store.Run {
	list := s.Runs.List()
	if s.State == domain.Running && s.LastResult == store.RunRunning {
		list = append(list, store.Run{Result: store.RunRunning, Took: now.Sub(s.LastStartedAt)})
	}
	return list[max(0, len(list)-store.MaxRuns):]
}

// bars returns the bars of runs. The height is the root of the duration, as a share of the highest.
func bars(list []store.Run) []bar {
	longest := time.Second
	for _, r := range list {
		longest = max(longest, r.Took)
	}
	out := make([]bar, len(list))
	for i, r := range list {
		height := max(barLeast, int(math.Round(barMost*math.Sqrt(float64(max(0, r.Took))/float64(longest)))))
		out[i] = bar{X: barStep * (store.MaxRuns - len(list) + i), Y: barBottom - height, Height: height, Class: barClasses[r.Result]}
		if r.Result == store.RunFailed || r.Result == store.RunDrift {
			out[i].Height += barHang
		}
	}
	return out
}

// runWords are the results of runs in the label of a sparkline, in their order.
var runWords = []struct {
	result store.RunResult
	text   string
}{
	{store.RunSucceeded, "succeeded"}, {store.RunFailed, "failed"}, {store.RunCancelled, "cancelled"}, {store.RunDrift, "found drift"}, {store.RunRunning, "running"},
}

func runsLabel(list []store.Run) string {
	counts := map[store.RunResult]int{}
	for _, r := range list {
		counts[r.Result]++
	}
	var parts []string
	for _, w := range runWords {
		if n := counts[w.result]; n > 0 || w.result == store.RunSucceeded || w.result == store.RunFailed {
			parts = append(parts, fmt.Sprintf("%d %s", n, w.text))
		}
	}
	return fmt.Sprintf("last %d runs: %s", len(list), strings.Join(parts, ", "))
}
