package deployment

import (
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
func (p *pages) changes(v *page.Visit, d shown, out *view.Page) (templ.Component, error) {
	if len(d.Updates) == 0 {
		return changes.View(changes.Model{Unstarted: true, RowsURL: d.Path + "/changes", Base: d.Path + "?view=changes"}), nil
	}
	m, err := p.tree(v, d.Details)
	if err != nil {
		return nil, err
	}
	if u := d.Updates[0]; !m.Over {
		out.Live = append(out.Live, view.Topic{Channel: stacks.ChangesTopic, About: u.ID}, view.Topic{Channel: stacks.UpdateTopic, About: u.ID})
	}
	return changes.View(m), nil
}

// tree returns the tree of a deployment's newest update.
func (p *pages) tree(v *page.Visit, d deployments.Details) (changes.Model, error) {
	u := d.Updates[0]
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, u)
	if err != nil {
		return changes.Model{}, err
	}
	detail := page.StackPath(v.Stack, "updates", strconv.FormatInt(u.Version, 10))
	if u.Preview {
		detail = page.StackPath(v.Stack, "previews", u.ID)
	}
	path := deploymentPath(v.Stack, d.Version)
	m := changes.Model{
		Tree: tree, Base: path + "?view=changes", RowsURL: path + "/changes", Detail: detail,
		Over: stacks.Status(u.Status).Finished(), Preview: u.Preview, Now: time.Now(),
	}
	m.Resume(v.Query)
	return m, nil
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
