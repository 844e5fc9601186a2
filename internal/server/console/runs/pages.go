// Package runs contains the lists of an organization's deployments and of a stack's runs. Its [List] and [Row] also serve
// other pages.
package runs

import (
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
)

// Deps are the services behind the pages.
type Deps struct {
	stack.Heads
	// URL is the server's address for clients, without a trailing slash.
	URL string
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View("/{org}/-/deployments", page.Belongs, p.ofOrg)
	site.Action("/{org}/-/deployments/cancel", page.Belongs, p.cancel)
	site.Action("/{org}/-/deployments/pause", page.Admin, p.pause(true))
	site.Action("/{org}/-/deployments/resume", page.Admin, p.pause(false))
	const stack = "/{org}/{project}/{stack}"
	read := page.Stack(identity.StateRead)
	site.View(stack+"/runs", read, p.runs)
	site.Raw(stack+"/runs/compare", read, compare)
	for _, former := range []string{"/updates", "/deployments"} {
		site.Raw(stack+former, read, toRuns)
	}
}

func (p *pages) cancel(v *page.Visit) (page.Answer, error) {
	back := page.Back(v, links.Path(v.Org.Name, "-", "deployments"))
	_, err := p.Deployments.CancelQueued(v.Context(), v.Who, v.Org.ID, v.Values()["id"])
	return page.See(back), err
}

func (p *pages) pause(paused bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		err := p.Deployments.PauseOrg(v.Context(), v.Who, v.Org.ID, paused)
		return page.See(page.Back(v, links.Path(v.Org.Name, "-", "deployments"))), err
	}
}
