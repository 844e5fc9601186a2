package drift

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	list "workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	detection "workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// happened are what happened to resources, by the operation with which the preview of a refresh follows.
var happened = []struct{ op, word string }{{opUpdated, "changed"}, {opDeleted, "deleted"}, {opCreated, "created"}, {"replace", "replaced"}}

// headline says how many resources differ.
func (m model) headline() string {
	counts := m.Drifted()
	var parts []string
	for _, w := range happened {
		n := counts[w.op]
		if n == 0 {
			continue
		}
		was := "were"
		if n == 1 {
			was = "was"
		}
		noun := words.Number(n)
		if len(parts) == 0 {
			noun = words.Count(n, "resource")
		}
		parts = append(parts, noun+" "+was+" "+w.word)
	}
	if len(parts) == 0 {
		return "The resources differ from the state."
	}
	return words.And(parts) + " outside Pulumi."
}

// byRun names the deployment that found the drift, if there is one, and begins to say when it was not there.
func (m model) byRun() (text string) {
	for _, r := range m.Runs {
		if r.Detect != nil && m.Detection != nil && r.Detect.ID == m.Detection.ID && r.Version > 0 {
			text = " by " + runName(r)
		}
	}
	if !m.notThere().IsZero() {
		text += "; not there"
	}
	return text
}

// notThere returns the time of the last check before the drift that found none, or zero.
func (m model) notThere() time.Time {
	for _, r := range m.Runs {
		if r.Known && !r.Detected && r.Detect != nil && !r.Detect.Targeted && m.Detection != nil && r.Detect.CreatedAt.Before(m.Detection.CreatedAt) {
			return r.Detect.FinishedAt
		}
	}
	return time.Time{}
}

// decision says in which way the drift ended.
func (m model) decision() string {
	if m.Decided.Kind == opUpdated {
		return "An update has put back what is declared"
	}
	return "A refresh has written what was found to the state"
}

// group is a part of the resources that differ.
type group struct {
	ID, Title, Count string
	List             []Resource
}

// groups returns the first resources that differ, by what happened to them.
func (m model) groups() (out []group) {
	for i, title := range []string{"Deleted outside Pulumi", "Changed outside Pulumi", "Created outside Pulumi"} {
		g := group{ID: "g" + strconv.Itoa(i), Title: title}
		for _, r := range m.Found.Resources[:min(shownResources, len(m.Found.Resources))] {
			if r.group() == i {
				g.List = append(g.List, r)
			}
		}
		g.Count = words.Number(m.Found.Count(func(r Resource) bool { return r.group() == i }))
		if i == 1 {
			g.Count += ", declared → found"
		}
		if len(g.List) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// icon returns the name of the icon of a resource, and the class of its color.
func (r Resource) icon() (name, tint string) {
	switch {
	case r.Deleted():
		return "op-delete", "bad"
	case r.Created():
		return "op-create", "dim"
	case r.Replaces():
		return "op-replace", "bad"
	default:
		return "op-update", "dim"
	}
}

// why says what the two decisions do with a resource.
func (m model) why(r Resource, d diff.Diff) string {
	switch {
	case r.Deleted():
		return "Putting back creates it again. Accepting removes it from the state."
	case r.Created():
		return "Putting back deletes it unless the program declares it. Accepting adds it to the state."
	case r.Replaces():
		text := "A property cannot change in place."
		switch n := m.Dependents[r.URN]; n {
		case 0:
			return text
		case 1:
			return text + " 1 resource depends on it."
		default:
			return text + " " + words.Number(n) + " resources depend on it."
		}
	case d.Detailed:
		return "Putting back updates it in place."
	default:
		return "Putting back updates it."
	}
}

// check returns the mark and the text of a run.
func check(r detection.Run) (mark, text string) {
	because := func(text string) string {
		if r.Cause != nil && r.Cause.Headline != "" {
			text += ": " + r.Cause.Headline
		}
		return text
	}
	puts := r.Operation == workflow.OperationRemediateDrift
	switch r.Status {
	case workflow.StatusSkipped:
		return view.MarkSkipped, "Not started"
	case workflow.StatusNotStarted:
		return view.MarkQueued, "Waits"
	case workflow.StatusAccepted, workflow.StatusRunning:
		if puts {
			return view.MarkRunning, "Putting back"
		}
		return view.MarkRunning, "Checking"
	}
	failed := r.Status == workflow.StatusFailed
	switch {
	case puts && failed:
		return view.MarkFailed, because("Could not put back")
	case puts:
		return view.MarkOK, "Put back what is declared"
	case !r.Known:
		return view.MarkFailed, because("Could not check")
	case !r.Detected && failed:
		return view.MarkFailed, "No drift, then failed"
	case !r.Detected:
		return view.MarkOK, "No drift"
	}
	text = list.DriftCounts(estate.Counts(r.Detect.ResourceChanges))
	if text == "" {
		text = "Drift found"
	}
	switch {
	case r.Remediates && failed:
		return view.MarkFailed, because(text + "; could not put back")
	case r.Remediates:
		return view.MarkOK, text + "; put back"
	default:
		return view.MarkDrift, text
	}
}

// checks returns the number of checks with a result that found drift, in words.
func (m model) checks() string {
	found, all := 0, 0
	for _, r := range m.Runs {
		if r.Known {
			all++
		}
		if r.Detected {
			found++
		}
	}
	of := "of"
	if m.Total > int64(len(m.Runs)) {
		of = "of the last"
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s %d found drift", found, of, all)
}

// running returns the check that waits or runs, or nil.
func (m model) running() *detection.Run {
	if r := m.newest(); r != nil && !r.Status.Final() {
		return r
	}
	return nil
}

// obstacle says why something cannot start, and links to the page that helps.
type obstacle struct{ Text, Path, Link string }

// blocked says why the visitor cannot decide now; the zero value if nothing prevents it.
func (m model) blocked() obstacle {
	if o := m.barred(); o.Text != "" {
		return o
	}
	switch l := m.Lock; {
	case m.State != estate.Running && m.Queued > 0:
		return obstacle{"A deployment of the stack waits.", page.StackPath(m.St, "runs"), "Open the runs"}
	case m.State != estate.Running:
		return obstacle{}
	case l != nil && l.Deployment == 0:
		return obstacle{"The stack is locked: " + l.By + " changes it from " + l.From + ".", page.StackPath(m.St), "Open the stack"}
	case m.LastDeployment > 0:
		return obstacle{"A deployment changes the stack now.", list.RunPath(m.St.OrgName, m.Stack), "Open #" + strconv.FormatInt(m.LastDeployment, 10)}
	default:
		return obstacle{"A deployment changes the stack now.", page.StackPath(m.St, "runs"), "Open the runs"}
	}
}

// barred says why the visitor can start no deployment of the stack.
func (m model) barred() obstacle {
	settings := page.StackPath(m.St, "settings")
	switch {
	case !m.Operate:
		return obstacle{Text: "You may see this stack, but not deploy it."}
	case m.Set == nil:
		return obstacle{"The stack has no deployment settings, and a check is a deployment.", settings, "Set up deployments"}
	case !hasSource(m.Set):
		return obstacle{"The settings do not say where the program is.", settings, "Deployment settings"}
	case m.OrgPaused:
		return obstacle{Text: "All deployments of the organization are paused."}
	case m.Paused:
		return obstacle{"Deployments of the stack are paused.", page.StackPath(m.St, "runs"), "Resume"}
	default:
		return obstacle{}
	}
}

// hasSource reports whether settings say where a program is.
func hasSource(s *workflow.Settings) bool {
	git := s.Git()
	return git != nil && git.RepoURL != "" || s.GitHub != nil || s.VCS != nil || s.Image() != ""
}

// due says when a cron expression is due; "" if that takes more than a few words.
func due(cron string) string {
	text := triggers.Words(cron)
	if strings.Contains(text, " at ") {
		text += " UTC"
	}
	return text
}

// afterwards says what a schedule does with the drift that it finds.
func afterwards(s store.Schedule) string {
	if triggers.Remediates(s) {
		return "put back what is declared"
	}
	return "put nothing back"
}

func oneLine(text string) string { return termtext.OneLine(text, 0) }

func urlQuery(text string) string { return url.QueryEscape(text) }

// shownSchedules is the number of schedules on the page.
const shownSchedules = 3

// runName names a run.
func runName(r detection.Run) string {
	if r.Version > 0 {
		return "#" + strconv.FormatInt(r.Version, 10)
	}
	return "a preview by the CLI"
}

// cannotCheck says why the visitor cannot start a check now.
func (m model) cannotCheck() obstacle {
	if o := m.barred(); o.Text != "" {
		return o
	}
	if m.running() != nil {
		return obstacle{Text: "A check waits or runs."}
	}
	return obstacle{}
}

// opened names a run on a button that opens it.
func opened(r detection.Run) string {
	if r.Version > 0 {
		return runName(r)
	}
	return "the preview"
}
