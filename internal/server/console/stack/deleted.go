package stack

import (
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/words"
)

// deletedPath returns a path below the page of an organization's deleted stacks.
func deletedPath(org string, more ...string) string {
	return links.Path(append([]string{org, "-", "stacks", "deleted"}, more...)...)
}

type deletedModel struct {
	Org  string
	List []stacks.Deleted
	// Purge reports whether the visitor may purge stacks, and Fresh whether the visitor has signed in recently, as a
	// purge requires. SignIn is the path of a sign-in that leads back to the page.
	Purge, Fresh bool
	SignIn       string
}

func (p *pages) deleted(v *page.Visit) (view.Page, error) { return p.deletedPage(v, "") }

func (p *pages) deletedPage(v *page.Visit, problem string) (view.Page, error) {
	list, err := p.Stacks.ListDeleted(v.Context(), v.Who, v.Org.ID)
	here := deletedPath(v.Org.Name)
	m := deletedModel{
		Org: v.Org.Name, List: list, Purge: v.Who.CanAdminOrg(v.Org.ID), Fresh: v.Session.Fresh(time.Now()),
		SignIn: page.LoginPath(page.Here(v, here)),
	}
	return view.Page{
		Title: "Deleted stacks", Section: "stacks",
		Bar:  &view.Bar{Title: "Deleted stacks", Count: words.Number(len(list)), Actions: backToStacks(m)},
		Live: []view.Topic{{Channel: stacks.Topic, About: v.Org.ID + "/"}},
		Body: deletedList(m, problem),
	}, err
}

func (p *pages) restore(v *page.Visit) (page.Answer, error) {
	st, err := p.Stacks.Restore(v.Context(), v.Who, v.Org.ID, v.Param("deleted"), v.Form("name"))
	return page.Changed(v, err, page.StackPath(st), p.deletedPage)
}

func (p *pages) purge(v *page.Visit) (page.Answer, error) {
	err := p.Stacks.Purge(v.Context(), v.Who, v.Org.ID, v.Param("deleted"))
	return page.Changed(v, err, deletedPath(v.Org.Name), p.deletedPage)
}
