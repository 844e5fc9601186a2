// Package agents contains the pages about agent pools, their agents and tokens, and about the server
// itself.
package agents

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
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
	site.Action(one+"/move", page.Admin, p.move)
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

// form is the form for a new pool.
type form struct {
	Name, Description, Problem string
	// Open shows the form, for links to it.
	Open bool
}

// overview is the page with all pools.
type overview struct {
	Org   string
	Admin bool
	All   []pools.Summary
	Pools []group // of this page
	Next  string  // address of the next page, or ""
	First bool    // this is the first page
	Form  form
}

const (
	// shownPools is the number of pools on a page.
	shownPools = 20
	// shownOfPool is the number of agents of a pool on the page with all pools.
	shownOfPool = 10
)

func (o overview) hasDefault() bool {
	return slices.ContainsFunc(o.All, func(p pools.Summary) bool { return p.Default })
}

func (o overview) counts() string {
	online := int64(0)
	for _, p := range o.All {
		online += p.Online
	}
	return words.Count(len(o.All), "pool") + ", " + words.Number(online) + " online"
}

func (p *pages) list(v *page.Visit) (view.Page, error) {
	return p.listPage(v, form{Open: v.Query("new") != ""})
}

func (p *pages) listPage(v *page.Visit, f form) (view.Page, error) {
	o := overview{Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID), Form: f}
	var err error
	if o.All, err = p.Pools.Summaries(v.Context(), v.Who, v.Org.ID); err != nil {
		return view.Page{}, err
	}
	// Pools without agents come first, because their deployments wait.
	slices.SortStableFunc(o.All, func(a, b pools.Summary) int { return cmp.Compare(rank(a), rank(b)) })
	rest := o.All
	if after := slices.IndexFunc(o.All, func(s pools.Summary) bool { return s.AgentPool.ID == v.Query("after") }); after >= 0 {
		rest = o.All[after+1:]
	}
	o.First = len(rest) == len(o.All)
	shown := rest[:min(len(rest), shownPools)]
	if len(shown) < len(rest) {
		o.Next = links.Path(v.Org.Name, "-", "pools") + "?after=" + shown[len(shown)-1].AgentPool.ID
	}
	for _, s := range shown {
		g := group{Org: v.Org.Name, Admin: o.Admin, Now: time.Now(), Summary: s, Others: others(o.All, s.AgentPool.ID)}
		if g.Agents, err = p.agentsOf(v, s.AgentPool); err != nil {
			return view.Page{}, err
		}
		if err := p.countPulls(v, &g); err != nil {
			return view.Page{}, err
		}
		o.Pools = append(o.Pools, g)
	}
	return view.Page{
		Title: "Agents", Section: "pools", Bar: &view.Bar{Title: "Agents", Count: o.counts(), Actions: listActions(o)},
		Body: listBody(o), Live: topics(v),
	}, nil
}

// rank is the place of a pool in the list.
func rank(s pools.Summary) int {
	if s.Online == 0 && s.Queued > 0 {
		return 0
	}
	return 1
}

// others are the pools to which the queue of a pool can be moved.
func others(list []pools.Summary, id string) []view.Option {
	var out []view.Option
	for _, s := range list {
		if s.AgentPool.ID != id {
			out = append(out, view.Option{Value: s.AgentPool.ID, Text: fmt.Sprintf("%s (%s online)", s.Name, words.Number(s.Online))})
		}
	}
	return out
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
	return p.once(v, made.Pool.ID, made.Token)
}

var errGrant = fault.Forbidden("An exchanged token may not change agent pools and their tokens.")

// once is the page of a pool that shows a new token. It follows the changes of the pool's own page with the commands, and
// keeps the token, which is in no live element.
func (p *pages) once(v *page.Visit, pool, token string) (page.Answer, error) {
	shown, err := p.detailPage(v, pool, func(d *detail) { d.NewToken, d.Open = token, true })
	shown.LiveAt = poolPath(v.Org.Name, pool) + "?install=script"
	return page.Once(shown), err
}
