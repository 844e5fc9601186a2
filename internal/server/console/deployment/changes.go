package deployment

import (
	"strconv"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks"
)

// changes shows what the newest update of a deployment changes.
func (p *pages) changes(v *page.Visit, d shown, out *view.Page) (templ.Component, error) {
	if len(d.Updates) == 0 {
		return noChanges(), nil
	}
	u := d.Updates[0]
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, u)
	if err != nil {
		return nil, err
	}
	detail := page.StackPath(v.Stack, "updates", strconv.FormatInt(u.Version, 10))
	if u.Preview {
		detail = page.StackPath(v.Stack, "previews", u.ID)
	}
	m := changes.Model{
		Tree: tree, Base: d.Path + "?view=changes", Detail: detail, Over: stacks.Status(u.Status).Finished(), Preview: u.Preview, Now: d.Now,
	}
	m.Resume(v.Query)
	if !m.Over {
		out.Live = append(out.Live, view.Topic{Channel: stacks.ChangesTopic, About: u.ID}, view.Topic{Channel: stacks.UpdateTopic, About: u.ID})
	}
	return changes.View(m), nil
}
