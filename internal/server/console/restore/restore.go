// Package restore contains the page of an organization of a restored server: what to check, and its release.
package restore

import (
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the page.
type Deps struct {
	Recovery *recovery.Service
}

type pages struct{ Deps }

// Register registers the page.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View("/{org}/-/restore", page.Admin, p.show)
	site.Action("/{org}/-/restore/release", page.Admin, p.release)
	site.Action("/-/server/restore/release", page.SiteAdmin, p.releaseAll)
}

type model struct {
	recovery.Restored
	Org       string
	State     recovery.Organization
	SiteAdmin bool
	// Others is the number of other organizations that wait, which the visitor can release, too.
	Others int
	// Deployments had not ended at the time of the backup. More is the number of those that are not listed.
	Deployments []recovery.Deployment
	More        int
	// Tokens are those of the organization.
	Tokens     []store.ListedToken
	MoreTokens bool
}

// shown bounds the tokens on the page.
const shown = 200

func (p *pages) show(v *page.Visit) (view.Page, error) {
	r, err := p.Recovery.Read(v.Context())
	if err != nil {
		return view.Page{}, err
	}
	m := model{Org: v.Org.Name, SiteAdmin: v.Who.CanAdminServer()}
	if r == nil || !r.Has(v.Org.ID) {
		return view.Page{}, fault.NotFound("The organization %s was not restored from a backup.", v.Org.Name)
	}
	m.Restored = *r
	for _, o := range r.Organizations {
		if o.ID == v.Org.ID {
			m.State = o
		}
	}
	if m.SiteAdmin {
		for _, o := range r.Waiting() {
			if o.ID != v.Org.ID {
				m.Others++
			}
		}
	}
	if m.Deployments, m.More, err = p.Recovery.Unfinished(v.Context(), v.Org.ID); err != nil {
		return view.Page{}, err
	}
	if m.Tokens, err = p.Recovery.Tokens(v.Context(), v.Org.ID, shown+1); err != nil {
		return view.Page{}, err
	}
	if m.MoreTokens = len(m.Tokens) > shown; m.MoreTokens {
		m.Tokens = m.Tokens[:shown]
	}
	return view.Page{
		Title:  "Restore · " + v.Org.Name,
		Crumbs: []view.Crumb{{Text: v.Org.Name, Href: links.Path(v.Org.Name)}, {Text: "Restore", Href: links.Path(v.Org.Name, "-", "restore")}},
		Body:   body(m),
	}, nil
}

func (p *pages) release(v *page.Visit) (page.Answer, error) {
	_, _, err := p.Recovery.Release(v.Context(), v.Org.Name)
	return page.See(links.Path(v.Org.Name, "-", "restore")), err
}

func (p *pages) releaseAll(v *page.Visit) (page.Answer, error) {
	_, _, err := p.Recovery.Release(v.Context(), "")
	return page.See(page.Back(v, "/-/server")), err
}
