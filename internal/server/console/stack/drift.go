package stack

import (
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// shownRuns is the number of drift runs on a page.
const shownRuns = 20

type driftModel struct {
	St        store.Stack
	Status    drift.Status
	Runs      []drift.Run
	Total     int64
	Schedules []store.Schedule
	// Ready reports that the stack has deployment settings, which the detection requires.
	Ready, Operate bool
}

func (p *pages) drift(v *page.Visit) (view.Page, error) {
	out, h, err := p.Heads.page(v, Drift)
	if err != nil {
		return out, err
	}
	m := driftModel{St: v.Stack, Ready: h.Set != nil, Operate: h.Operate}
	ctx := v.Context()
	if m.Status, err = p.Drift.Status(ctx, v.Stack); err != nil {
		return out, err
	}
	if m.Runs, m.Total, err = p.Drift.List(ctx, v.Stack, 1, shownRuns); err != nil {
		return out, err
	}
	list, err := p.Triggers.List(ctx, v.Stack)
	if err != nil {
		return out, err
	}
	for _, s := range list {
		if s.Kind == store.DriftSchedule {
			m.Schedules = append(m.Schedules, s)
		}
	}
	out.Title = "Drift of " + v.Stack.Project + "/" + v.Stack.Name
	out.Body = driftPage(m)
	return out, nil
}

// driftWord says what a run found.
func driftWord(r drift.Run) string {
	switch {
	case r.Operation == workflow.OperationRemediateDrift:
		return "remediation"
	case r.Detected:
		return "drift: " + totalsOf(r.Detect.ResourceChanges)
	case r.Known:
		return "no drift"
	case r.Status.Final():
		return "no result"
	default:
		return "running"
	}
}
