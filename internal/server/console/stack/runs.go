package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// run is a deployment of a stack, or an update that no deployment ran.
type run struct {
	Mark    string
	Number  string
	Title   string // of the number
	Path    string
	Message string
	Who     string
	Changes map[string]int64
	Began   time.Time     // of a running run; zero otherwise
	Took    time.Duration // 0 if unknown
	At      time.Time     // of its end, or else of its request
	Queued  bool
}

const (
	// mostRecent is the number of runs on the page of a stack.
	mostRecent = 6
	// readUpdates is the number of updates among which those of the runs are: a deployment can start several.
	readUpdates = 20
)

// recent returns the last runs of a stack, newest first: deployments, and updates that no deployment ran and that are no
// previews.
func (p *pages) recent(v *page.Visit) ([]run, error) {
	messages := map[string]string{}
	var list []run
	for _, previews := range []bool{false, true} {
		updates, err := p.history(v, store.UpdateFilter{Previews: previews, Limit: readUpdates})
		if err != nil {
			return nil, err
		}
		for _, e := range updates {
			if e.DeploymentID == "" && !previews {
				list = append(list, directRun(v.Stack, e))
			} else if e.Message != "" {
				messages[e.DeploymentID] = e.Message
			}
		}
	}
	for _, stage := range []store.Stage{deployments.StageQueued, deployments.StageActive, deployments.StageFinished} {
		found, err := p.Deployments.Page(v.Context(), v.Who, v.Stack.OrgID, deployments.Query{Stage: stage, StackID: v.Stack.ID, Limit: mostRecent})
		if err != nil {
			return nil, err
		}
		for _, d := range found.Items {
			list = append(list, deploymentRun(v.Stack, d, messages[d.ID]))
		}
	}
	slices.SortStableFunc(list, func(a, b run) int {
		return cmp.Or(compareOpen(a, b), b.At.Compare(a.At))
	})
	return list[:min(len(list), mostRecent)], nil
}

// compareOpen puts queued runs before running ones, and these before the others.
func compareOpen(a, b run) int {
	rank := func(r run) int {
		switch {
		case r.Queued:
			return 0
		case !r.Began.IsZero():
			return 1
		default:
			return 2
		}
	}
	return cmp.Compare(rank(a), rank(b))
}

func directRun(st store.Stack, e stacks.Entry) run {
	r := run{
		Mark: view.MarkOf(e.Status), Number: fmt.Sprintf("v%d", e.Version), Title: fmt.Sprintf("%s v%d", e.Kind, e.Version), Path: changes.UpdatePath(st, e.Update), Message: cmp.Or(e.Message, e.Kind+" from the CLI"),
		Who: byName(e), Changes: estate.Counts(e.ResourceChanges), At: e.StartedAt,
	}
	if e.Message != "" && stacks.Kind(e.Kind) != stacks.KindUpdate {
		r.Message += " (" + e.Kind + ")"
	}
	if e.FinishedAt.IsZero() {
		r.Began = e.StartedAt
	} else {
		r.At, r.Took = e.FinishedAt, e.FinishedAt.Sub(e.StartedAt)
	}
	return r
}

// plain is an operation in words, such as "detect drift".
func plain(o workflow.Operation) string {
	if o == workflow.OperationRemediateDrift {
		return "put back drift"
	}
	return strings.ReplaceAll(string(o), "-", " ")
}

func deploymentRun(st store.Stack, d deployments.Listed, message string) run {
	r := run{
		Mark: view.MarkOf(d.State), Number: "#" + strconv.FormatInt(d.Version, 10), Title: fmt.Sprintf("deployment #%d", d.Version), Path: page.StackPath(st, "deployments", strconv.FormatInt(d.Version, 10)),
		Message: cmp.Or(message, plain(d.Operation)), Who: cmp.Or(d.Requester, "the server"), Changes: d.Changes, At: d.Job.EndedAt,
	}
	if message != "" && d.Operation != workflow.OperationUpdate {
		r.Message += " (" + plain(d.Operation) + ")"
	}
	began := d.Job.StartedAt
	if began.IsZero() {
		began = d.Job.ClaimedAt
	}
	switch d.State {
	case waiting.StateQueued:
		r.Queued, r.At = true, d.Job.QueuedAt
	case waiting.StateClaimed, waiting.StateRunning:
		r.Began, r.At = began, began
	default:
		if !began.IsZero() {
			r.Took = d.Job.EndedAt.Sub(began)
		}
	}
	return r
}
