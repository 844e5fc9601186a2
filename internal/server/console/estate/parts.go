package estate

import (
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/links"
	domain "workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Mark returns the mark of a state.
func Mark(s domain.State) string { return marks[s] }

// What says what the last run of a stack did.
func What(s domain.Stack) string { return what(s) }

// Sparkline shows the last runs of a stack that write.
func Sparkline(s domain.Stack) templ.Component { return sparkline(runsOf(s, time.Now())) }

// FailureText says why the last run of a stack failed.
func FailureText(c domain.Change) string {
	switch {
	case c.LastResult == store.RunCancelled:
		return run(c.Stack) + " was cancelled"
	case c.Cause == nil:
		return run(c.Stack) + " failed"
	case c.Cause.Message != "" && !strings.Contains(c.Cause.Headline, strings.TrimSuffix(c.Cause.Message, "…")) && c.Cause.URN != "":
		return c.Cause.Headline + ": " + c.Cause.Message
	default:
		return c.Cause.Headline
	}
}

// run names the last run of a stack at the beginning of a sentence.
func run(s domain.Stack) string {
	if s.LastDeployment > 0 {
		return "Deployment #" + strconv.FormatInt(s.LastDeployment, 10) + " (" + s.LastKind + ")"
	}
	return "The " + s.LastKind + " from the CLI"
}

// RunPath returns the path of the last run of a stack.
func RunPath(org string, s domain.Stack) string {
	switch {
	case s.LastDeployment > 0:
		return links.Path(org, s.Project, s.Name, "deployments", strconv.FormatInt(s.LastDeployment, 10))
	case s.LastVersion > 0:
		return links.Path(org, s.Project, s.Name, "updates", strconv.FormatInt(s.LastVersion, 10))
	default:
		return links.Path(org, s.Project, s.Name)
	}
}

// driftWords are what happened to resources outside of pulumi, by the operation with which a refresh follows.
var driftWords = []struct{ op, word string }{{"update", "changed"}, {"delete", "deleted"}, {"create", "created"}, {"replace", "replaced"}}

// DriftCounts says in short how many resources a detection found changed; "" if that is unknown.
func DriftCounts(counts map[string]int64) string { return strings.Join(driftParts(counts), ", ") }

// DriftText says what a detection of drift found.
func DriftText(counts map[string]int64) string {
	parts := driftParts(counts)
	if len(parts) == 0 {
		return "The resources differ from the state"
	}
	return words.And(parts) + " outside Pulumi"
}

func driftParts(counts map[string]int64) (parts []string) {
	for _, w := range driftWords {
		if n := counts[w.op]; n > 0 {
			parts = append(parts, words.Number(n)+" "+w.word)
		}
	}
	return parts
}

// RunBars shows runs, oldest first, as [Sparkline] does.
func RunBars(list []store.Run) templ.Component { return sparkline(list) }
