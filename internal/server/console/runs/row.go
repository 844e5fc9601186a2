package runs

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/deeds"
	"workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Row is a deployment in a list.
type Row struct {
	deployments.Listed
	Org   string
	Usual time.Duration // of the same operation; 0 if unknown
}

// Rows returns the rows of deployments of an organization.
func Rows(org string, l deployments.Listing, usual map[string]time.Duration) []Row {
	out := make([]Row, len(l.Items))
	for i, item := range l.Items {
		out[i] = Row{item, org, usual[item.ID]}
	}
	return out
}

// Path returns the path of the deployment's page.
func (r Row) Path() string {
	return links.Path(r.Org, r.Project, r.Stack, "deployments", strconv.FormatInt(r.Version, 10))
}

func (r Row) by() string { return cmp.Or(r.Requester, "the server") }

func (r Row) number() string { return "#" + strconv.FormatInt(r.Version, 10) }

// Since returns the time at which the deployment was handed out or started.
func (r Row) Since() time.Time {
	if r.Job.StartedAt.IsZero() {
		return r.Job.ClaimedAt
	}
	return r.Job.StartedAt
}

func (r Row) ran() time.Duration {
	from := r.Since()
	if from.IsZero() || r.Job.EndedAt.IsZero() {
		return 0
	}
	return r.Job.EndedAt.Sub(from)
}

// Now says what a running deployment does: its step, or what its client says about it.
func (r Row) Now() string {
	if r.State == waiting.StateClaimed {
		return "starts on " + cmp.Or(r.Job.AgentHostname, "an agent")
	}
	for _, step := range r.Job.Steps {
		if step.Status == workflow.StepRunning {
			return step.Name
		}
	}
	return cmp.Or(r.Message, "starting")
}

// Share returns how much of the usual time is over, in percent. It is less than 100 until the deployment ends.
func (r Row) Share(now time.Time) float64 {
	if r.Usual <= 0 {
		return 0
	}
	return min(97, max(0, 100*float64(now.Sub(r.Since()))/float64(r.Usual)))
}

// says returns what a list says about the deployment: what it does, why it waits, why it failed, or its message. It reports
// whether that needs attention.
func (r Row) says() (text string, attention bool) {
	switch r.State {
	case waiting.StateQueued:
		return r.Why.Text, true
	case waiting.StateClaimed, waiting.StateRunning:
		return r.Now(), false
	case waiting.StateDrift:
		return "Drift found: " + estate.DriftText(r.Changes), true
	case waiting.StateFailed, waiting.StateLost:
		return failure(r.Job), true
	case waiting.StateCancelled, waiting.StateSkipped:
		return cmp.Or(ended(r.Job.Message), r.Message), false
	}
	if r.Message == "" && r.Operation == workflow.OperationDetectDrift {
		return "No drift", false
	}
	return r.Message, false
}

// failure says why a job failed.
func failure(job store.Job) string {
	c := job.Cause
	switch {
	case c == nil:
		return cmp.Or(job.Message, "The deployment failed")
	case c.URN != "" && c.Message != "" && !strings.Contains(c.Headline, strings.TrimSuffix(c.Message, "…")):
		return c.Headline + ": " + c.Message
	default:
		return c.Headline
	}
}

// line is a run in a list, as it is shown.
type line struct {
	ID, Mark, State      string
	Project, Stack       string // "" in the list of a stack
	Number, Path, Title  string
	Says                 string
	Attention            bool
	Kind                 string
	Icon, Origin         string
	Who, Where           string
	Running              bool
	Share                float64 // percentage of the usual time of a running deployment; 0 if it is unknown
	Then                 string  // the usual time of a queued deployment, or ""
	Changes              map[string]int64
	Place                string    // in the queue, or ""
	Began                time.Time // of a running run; zero otherwise
	Took                 string
	At                   time.Time
	Pick, Value          string // the form to which the checkbox of the row belongs and its value; "" without one
	Action               waiting.Action
	OfStack, RunsOfStack string // addresses for the menu of the row; "" without a menu
}

// lineOf returns the line of a deployment.
func lineOf(r Row, now time.Time) line {
	l := line{
		ID: "d-" + r.ID, Mark: view.MarkOf(r.State), State: view.StatusWord(r.State), Number: r.number(), Path: r.Path(),
		Title: r.Project + "/" + r.Stack + " " + r.number(), Kind: operationWords[r.Operation], Who: r.by(), Where: r.Job.AgentHostname, Changes: r.Changes, At: r.Job.EndedAt,
	}
	if l.Kind == "" {
		l.Kind = string(r.Operation)
	}
	l.Says, l.Attention = r.says()
	l.Icon, l.Origin = deeds.Origin(true, r.Initiator)
	if l.Where == "" && r.PoolName != "" {
		l.Where = "pool " + r.PoolName
	}
	switch r.State {
	case waiting.StateQueued:
		l.At, l.Action = r.Job.QueuedAt, r.Why.Action
		if r.Why.Position > 0 {
			l.Place = strconv.FormatInt(r.Why.Position, 10) + "."
		}
		if r.Usual > 0 {
			l.Then = "then ~" + words.Elapsed(r.Usual)
		}
	case waiting.StateClaimed, waiting.StateRunning:
		l.Running, l.Share, l.Began, l.At, l.Changes = true, r.Share(now), r.Since(), r.Since(), nil
	default:
		if ran := r.ran(); ran > 0 {
			l.Took = words.Elapsed(ran)
		}
	}
	return l
}

// operationWords are short words for operations.
var operationWords = map[workflow.Operation]string{workflow.OperationDetectDrift: "drift", workflow.OperationRemediateDrift: "put back"}

// placeTitle says which place a queued deployment has.
func (l line) placeTitle() string {
	return "Place " + strings.TrimSuffix(l.Place, ".") + " in the queue of its pool"
}

// ended is the message of a run that was cancelled or skipped: who cancelled it, and then what it was doing, which begins
// with a small letter.
func ended(message string) string {
	by, doing, ok := strings.Cut(message, ". ")
	if !ok {
		return message
	}
	return by + ". " + words.Capital(doing)
}
