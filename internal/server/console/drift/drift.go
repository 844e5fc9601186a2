// Package drift contains the page about the drift of a stack: what differs from its state, the decision about it, and the
// detection.
package drift

import (
	"cmp"
	"strconv"
	"time"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/cause"
	detection "workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/workflow"
)

// Deps are the services behind the page.
type Deps struct {
	Heads       stack.Heads
	Drift       *detection.Service
	Deployments *deployments.Service
	Stacks      *stacks.Service
	Triggers    *triggers.Service
}

type pages struct{ Deps }

// Register registers the page.
func Register(site *page.Site, d Deps) {
	site.View("/{org}/{project}/{stack}/drift", page.Stack(identity.StateRead), (&pages{d}).show)
}

const (
	// readRuns is the number of runs of which the page tells something.
	readRuns = 20
	// shownChecks is the number of runs that the page lists.
	shownChecks = 10
	// shownResources and shownLines bound the differences on the page.
	shownResources = 100
	shownLines     = 20
)

// model is the page.
type model struct {
	stack.Known
	St store.Stack
	// Detection is the newest one with a result; nil without one.
	Detection *store.Update
	// Decided is the update that ended the drift; nil if none did.
	Decided *store.Update
	// Found is what differs; nil without drift.
	Found       *Found
	Differences map[string]diff.Diff
	Dependents  map[string]int
	Runs        []detection.Run
	Total       int64
	Schedules   []store.Schedule
	Times       triggers.Calendar
	// Failure says why the newest check failed; nil if it did not.
	Failure *store.Cause
	// Lock is what holds the stack; nil if nothing does.
	Lock      *stacks.Lock
	OrgPaused bool
	Now       time.Time
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	out, known, err := p.Heads.Known(v, stack.Drift)
	if err != nil {
		return out, err
	}
	m := model{Known: known, St: v.Stack, Now: time.Now()}
	for _, read := range []func(*page.Visit, *model) error{p.status, p.differences, p.failure, p.schedules, p.obstacles} {
		if err := read(v, &m); err != nil {
			return out, err
		}
	}
	out.Title, out.Body = "Drift of "+v.Stack.Project+"/"+v.Stack.Name, body(m)
	out.Object.Plain = false
	if m.Lock != nil {
		out.ChangesAt = m.Lock.ChangesAt
	}
	return out, nil
}

// status reads the runs and their results.
func (p *pages) status(v *page.Visit, m *model) error {
	status, err := p.Drift.Status(v.Context(), v.Stack)
	if err != nil {
		return err
	}
	m.Detection, m.Decided = status.Detection, status.Decided
	m.Runs, m.Total, err = p.Drift.List(v.Context(), v.Stack, 1, readRuns)
	return err
}

// drifted reports whether the stack has drift. The state of a stack is that of lists.
func (m model) drifted() bool { return m.Stack.Drift == store.DriftFound }

// differences reads how the first resources differ.
func (p *pages) differences(v *page.Visit, m *model) error {
	if !m.drifted() || m.Detection == nil {
		return nil
	}
	var err error
	if m.Found, err = read(v, p.Stacks, *m.Detection); err != nil {
		return err
	}
	var urns []string
	for _, r := range m.Found.Resources[:min(shownResources, len(m.Found.Resources))] {
		urns = append(urns, r.URN)
	}
	steps, err := p.Stacks.StepsOf(v.Context(), v.Who, v.Stack, *m.Detection, urns...)
	if err != nil {
		return err
	}
	m.Differences = map[string]diff.Diff{}
	for urn, list := range steps {
		if m.Differences[urn], err = changes.Difference(*m.Detection, list); err != nil {
			return err
		}
	}
	m.Dependents, err = dependents(v, p.Stacks, *m.Found)
	return err
}

// failure finds out why the newest check failed.
func (p *pages) failure(v *page.Visit, m *model) error {
	r := m.newest()
	if r == nil || r.Status != workflow.StatusFailed || r.Known {
		return nil
	}
	if m.Failure = r.Cause; m.Failure != nil || r.Detect == nil {
		m.Failure = cmp.Or(m.Failure, &store.Cause{})
		return nil
	}
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, *r.Detect)
	if err != nil {
		return err
	}
	m.Failure = cmp.Or(cause.OfUpdate(tree), &store.Cause{})
	return nil
}

// newest returns the newest check that was not skipped, or nil.
func (m model) newest() *detection.Run {
	for i, r := range m.Runs {
		if r.Status != workflow.StatusSkipped && r.Operation != workflow.OperationRemediateDrift {
			return &m.Runs[i]
		}
	}
	return nil
}

// schedules reads when the server detects drift.
func (p *pages) schedules(v *page.Visit, m *model) error {
	list, err := p.Triggers.List(v.Context(), v.Stack)
	for _, s := range list {
		if s.Kind == store.DriftSchedule {
			m.Schedules = append(m.Schedules, s)
		}
	}
	return err
}

// obstacles reads what prevents deployments.
func (p *pages) obstacles(v *page.Visit, m *model) (err error) {
	if m.State == estate.Running {
		if m.Lock, err = p.Stacks.Lock(v.Context(), v.Who, v.Stack); err != nil {
			return err
		}
	}
	_, m.OrgPaused, err = p.Deployments.Paused(v.Context(), v.Stack)
	return err
}

// runPath returns the path of a run.
func (m model) runPath(r detection.Run) string {
	switch {
	case r.Version > 0:
		return page.StackPath(m.St, "deployments", strconv.FormatInt(r.Version, 10))
	case r.Detect != nil:
		return changes.UpdatePath(m.St, *r.Detect)
	default:
		return page.StackPath(m.St, stack.Runs)
	}
}
