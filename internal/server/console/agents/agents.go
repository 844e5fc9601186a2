// Package agents contains the pages about agent pools, their agents and tokens, and about the server
// itself.
package agents

import (
	"slices"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Deps are the services behind the pages.
type Deps struct {
	Deployments *deployments.Service
	Pools       *pools.Service
	Server      Server
	// URL is the server's address for agents, without a trailing slash.
	URL string
	// Releases is the directory of the mirror of the agent's releases that the server serves, or "".
	Releases string
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const all = "/{org}/-/pools"
	const one = all + "/{pool}"
	site.View(all, page.Member, p.list)
	site.Action(all, page.Fresh(page.Admin), p.create)
	site.Action(all+"/no-default", page.Admin, p.setDefault(false))
	site.View(one, page.Member, p.show)
	site.Action(one+"/default", page.Admin, p.setDefault(true))
	site.Action(one+"/edit", page.Admin, p.edit)
	site.Action(one+"/delete", page.Fresh(page.Admin), p.remove)
	site.Action(one+"/tokens", page.Fresh(page.Admin), p.addToken)
	site.Action(one+"/tokens/{token}/revoke", page.Admin, p.revoke)
	site.View(one+"/agents/{agent}", page.Member, p.agent)
	site.Action(one+"/agents/{agent}/drain", page.Admin, p.drain(true))
	site.Action(one+"/agents/{agent}/resume", page.Admin, p.drain(false))
	site.View("/-/server", page.SiteAdmin, p.server)
}

func poolPath(org, id string, more ...string) string {
	return links.Path(append([]string{org, "-", "pools", id}, more...)...)
}

// crumbs is the path to a page below the list of pools.
func crumbs(v *page.Visit, more ...view.Crumb) []view.Crumb {
	return append([]view.Crumb{{Text: v.Org.Name, Href: links.Path(v.Org.Name)}, {Text: "Agents", Href: links.Path(v.Org.Name, "-", "pools")}}, more...)
}

// form is the form for a new pool.
type form struct{ Name, Description, Problem string }

// overview is the page with all pools.
type overview struct {
	Org   string
	Pools []pools.Summary
	Admin bool
	Form  form
}

func (o overview) hasDefault() bool {
	return slices.ContainsFunc(o.Pools, func(p pools.Summary) bool { return p.Default })
}

func (p *pages) list(v *page.Visit) (view.Page, error) { return p.listPage(v, form{}) }

func (p *pages) listPage(v *page.Visit, f form) (view.Page, error) {
	list, err := p.Pools.Summaries(v.Context(), v.Who, v.Org.ID)
	return view.Page{
		Title: "Agents", Section: "pools", Bar: &view.Bar{Title: "Agents", Count: words.Count(len(list), "pool")},
		Body: listBody(overview{v.Org.Name, list, v.Who.CanAdminOrg(v.Org.ID), f}),
		Live: topics(v),
	}, err
}

// topics are the notifications that change pages about pools. The jobs of agents follow from those
// of deployments.
func topics(v *page.Visit) []view.Topic {
	return []view.Topic{{Channel: pools.Topic, About: v.Org.ID + "/"}, {Channel: deployments.Topic, About: v.Org.ID + "/"}}
}

func (p *pages) create(v *page.Visit) (page.Answer, error) {
	if !v.Who.CanGrant() {
		return page.Answer{}, errGrant
	}
	f := form{Name: v.Form("name"), Description: v.Form("description")}
	made, err := p.Pools.Create(v.Context(), v.Who, v.Org, f.Name, f.Description)
	if err != nil {
		return page.Changed(v, err, "", func(v *page.Visit, problem string) (view.Page, error) {
			f.Problem = problem
			return p.listPage(v, f)
		})
	}
	return p.once(v, made.Pool, made.Token), nil
}

var errGrant = fault.Forbidden("An exchanged token may not change agent pools and their tokens.")

// once is the page that shows a new token.
func (p *pages) once(v *page.Visit, pool store.AgentPool, token string) page.Answer {
	return page.Once(view.Page{
		Title: "Token of " + pool.Name, Section: "pools",
		Crumbs: crumbs(v, view.Crumb{Text: pool.Name, Href: poolPath(v.Org.Name, pool.ID)}, view.Crumb{Text: "New token"}),
		Body:   newToken(v.Org.Name, pool, token, p.URL),
	})
}

// recent is the number of jobs from which the health of an agent is derived.
const recent = 10
