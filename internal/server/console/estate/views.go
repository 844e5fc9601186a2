package estate

import (
	"net/url"
	"slices"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

// savedView is a link to a view that the visitor has saved.
type savedView struct {
	Name, Href string
	Current    bool
}

// views returns the saved views of the visitor.
func (p *pages) views(v *page.Visit, m model) ([]savedView, error) {
	saved, err := p.Estate.Views(v.Context(), v.Who, v.Org.ID)
	list := make([]savedView, len(saved))
	for i, s := range saved {
		href := viewPath(v.Org.Name, s)
		list[i] = savedView{Name: s.Name, Href: href, Current: href == m.With()}
	}
	return list, err
}

// listPath returns the path of the list of an organization's stacks, or of those of a project.
func listPath(org, project string) string {
	if project == "" {
		return links.Path(org, "-", "stacks")
	}
	return links.Path(org, project)
}

func viewPath(org string, s store.View) string {
	if s.Query == "" {
		return listPath(org, s.Project)
	}
	return listPath(org, s.Project) + "?" + s.Query
}

// saveView saves the view that the form contains, and shows it.
func (p *pages) saveView(v *page.Visit) (page.Answer, error) {
	values := url.Values{}
	for _, name := range parameters {
		if set := slices.DeleteFunc(slices.Clone(v.Values()[name]), func(value string) bool { return value == "" }); name != "page" && len(set) > 0 {
			values[name] = set
		}
	}
	s := store.View{OrgID: v.Org.ID, Name: v.Form("view"), Project: v.Form("project"), Query: values.Encode()}
	err := query(values).Check()
	if err != nil {
		return page.Answer{}, err
	}
	return page.Changed(v, p.Estate.SaveView(v.Context(), v.Who, s), viewPath(v.Org.Name, s), func(v *page.Visit, problem string) (view.Page, error) {
		out, err := p.page(v, s.Project, view.Filters{Path: listPath(v.Org.Name, s.Project), Values: values}, s.Name, problem)
		out.LiveAt = viewPath(v.Org.Name, s)
		return out, err
	})
}

func (p *pages) deleteView(v *page.Visit) (page.Answer, error) {
	return page.See(page.Back(v, listPath(v.Org.Name, ""))), p.Estate.DeleteView(v.Context(), v.Who, v.Org.ID, v.Form("view"))
}

// viewsText is the text of the menu of saved views.
func (m model) viewsText() string {
	for _, s := range m.Views {
		if s.Current {
			return s.Name
		}
	}
	return "Save view"
}

// inputs returns the parameters of the view for the inputs of a form.
func (m model) inputs() []view.Option { return m.Others() }
