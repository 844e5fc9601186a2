package deployment

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/joblog"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
)

// changes shows what the newest update of a deployment changes.
func (p *pages) changes(v *page.Visit, d *shown, out *view.Page) (templ.Component, error) {
	out.Layout = view.Work
	if err := p.follow(v, d, out); err != nil {
		return nil, err
	}
	if d.Changes == nil {
		m := noUpdate(*d)
		return resources(m, changes.Log(m)), nil
	}
	d.Changes.Select()
	if d.Changes.URN == "" {
		return resources(*d.Changes, changes.Log(*d.Changes)), nil
	}
	pane, err := changes.Update(v, p.Stacks, *d.Changes, d.Updates[0])
	return resources(*d.Changes, pane.View()), err
}

// noUpdate is the tree of a deployment that has not begun an update.
func noUpdate(d shown) changes.Model {
	return changes.Model{Unstarted: true, RowsURL: d.Path + "/changes", Base: d.Path + "?view=changes", Over: d.Job.Status.Final(), Now: d.Now}
}

// follow reads the changes of the newest update of a deployment, and keeps an open page up to date.
func (p *pages) follow(v *page.Visit, d *shown, out *view.Page) error {
	if len(d.Updates) == 0 {
		return nil
	}
	m, err := p.tree(v, d.Details)
	if err != nil {
		return err
	}
	d.Changes = &m
	if u := d.Updates[0]; !m.Over {
		out.Live = append(out.Live, view.Topic{Channel: stacks.ChangesTopic, About: u.ID}, view.Topic{Channel: stacks.UpdateTopic, About: u.ID})
	}
	return nil
}

// tree returns the tree of a deployment's newest update.
func (p *pages) tree(v *page.Visit, d deployments.Details) (changes.Model, error) {
	u := d.Updates[0]
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, u)
	if err != nil {
		return changes.Model{}, err
	}
	path := deploymentPath(v.Stack, d.Version)
	m := changes.Model{
		Tree: tree, Base: path + "?view=changes", RowsURL: path + "/changes",
		Over: stacks.Status(u.Status).Finished(), Preview: u.Preview, Expired: u.EventsExpired, Now: time.Now(),
	}
	m.Resume(v.Query)
	return m, nil
}

// course is the timeline of a deployment: the parts of its time, and the resources of its newest update.
func (p *pages) course(v *page.Visit, d *shown, out *view.Page) (changes.Course, error) {
	out.Layout = view.Work
	if err := p.follow(v, d, out); err != nil {
		return changes.Course{}, err
	}
	c := changes.Course{Model: noUpdate(*d)}
	if d.Changes != nil {
		c = changes.Course{Model: *d.Changes, Updates: true, Started: d.Updates[0].StartedAt, Ended: d.Updates[0].FinishedAt}
	}
	for _, s := range d.Steps {
		one := changes.Span{Status: s.Status, Name: s.Name, Began: s.Began, Took: max(0, s.Took), Running: !s.Since.IsZero()}
		if s.Step > 0 && !d.Job.ClaimedAt.IsZero() {
			one.Href = d.Path + stepPath(*d, s)
		}
		if s.Exit != nil && *s.Exit != 0 {
			one.Note = "exit code " + strconv.Itoa(*s.Exit)
		}
		if s.Status == "skipped" {
			one.Began = time.Time{}
		}
		c.Spans = append(c.Spans, one)
	}
	return c, nil
}

// statesURL returns the page that compares the states after the last good run and after this deployment, or "".
func (d shown) statesURL() string {
	for _, u := range d.Updates {
		if !u.Preview && d.Good != nil && d.Good.Version > 0 && stacks.Status(u.Status).Finished() {
			return fmt.Sprintf("%s?from=%d&to=%d", page.StackPath(d.St, "changes"), d.Good.Version, u.Version)
		}
	}
	return ""
}

// rows sends a part of the tree.
func (p *pages) rows(w http.ResponseWriter, v *page.Visit) error {
	d, err := p.Deployments.Get(v.Context(), v.Stack, joblog.Reference(v))
	if err != nil {
		return err
	}
	if len(d.Updates) == 0 {
		return fault.NotFound("the deployment has not started an update")
	}
	m, err := p.tree(v, d)
	if err != nil {
		return err
	}
	return m.Window(w, v)
}
