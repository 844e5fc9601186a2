package environments

import (
	"cmp"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
)

type newModel struct {
	place
	Project, Name string
	Projects      []string // to suggest
	Problems      page.Wrong
}

var errCreate = fault.Forbidden("Only members of the organization may create environments.")

func (p *pages) newForm(v *page.Visit) (view.Page, error) {
	if !at(v).Create {
		return view.Page{}, errCreate
	}
	return p.newPage(v, newModel{Project: cmp.Or(v.Query("project"), environments.DefaultProject)})
}

func (p *pages) newPage(v *page.Visit, m newModel) (view.Page, error) {
	m.place = at(v)
	var err error
	if m.Projects, err = p.Environments.Projects(v.Context(), v.Who, v.Org.ID, page.Suggested); err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: "New environment · " + m.Org, Section: section, Bar: &view.Bar{Title: "New environment"}, Body: newBody(m)}, nil
}

func (p *pages) create(v *page.Visit) (page.Answer, error) {
	if !at(v).Create {
		return page.Answer{}, errCreate
	}
	m := newModel{Project: strings.TrimSpace(v.Form("project")), Name: strings.TrimSpace(v.Form("name"))}
	e, err := p.Environments.Create(v.Context(), v.Who, v.Org, cmp.Or(m.Project, environments.DefaultProject), m.Name)
	return page.Changed(v, err, Path(e), func(v *page.Visit, problem string) (view.Page, error) {
		m.Problems = locate(problem)
		return p.newPage(v, m)
	})
}

// locate puts a problem with the names of a new environment next to a field.
func locate(problem string) page.Wrong {
	return page.Locate(problem,
		page.About{Word: "already exists", Field: "name"}, page.About{Word: "the project", Field: "project"}, page.About{Word: "The project", Field: "project"},
		page.About{Word: "environment name", Field: "name"})
}
