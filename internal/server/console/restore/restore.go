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
	Tokens   recovery.Tokens
}

type pages struct{ Deps }

// Register registers the page.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View("/{org}/-/restore", page.Admin, p.show)
	site.Action("/{org}/-/restore/release", page.Admin, p.release)
	site.Action("/-/server/restore/release", page.SiteAdmin, p.releaseAll)
	site.Action("/{org}/-/restore/revoke-tokens", page.Admin, p.revoke)
	site.Action("/-/server/restore/revoke-tokens", page.SiteAdmin, p.revokeAll)
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
	// Tokens are those of the organization in the backup.
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
		Title: "Restore · " + v.Org.Name, Body: body(m),
		Object: &view.Object{Icon: "revert", Name: "Restore", Facts: facts(m), Actions: buttons(m)},
	}, nil
}

// revokeAction returns where the form goes that revokes the listed tokens.
func (m model) revokeAction() string {
	if m.SiteAdmin {
		return "/-/server/restore/revoke-tokens"
	}
	return links.Path(m.Org, "-", "restore", "revoke-tokens")
}

// allKinds is the value of the field "kind" for the tokens of all kinds.
const allKinds = "all"

func (p *pages) revoke(v *page.Visit) (page.Answer, error) {
	return page.See(links.Path(v.Org.Name, "-", "restore")), p.revokeTokens(v, v.Org.ID)
}

func (p *pages) revokeAll(v *page.Visit) (page.Answer, error) {
	return page.See(page.Back(v, "/-/server")), p.revokeTokens(v, "")
}

func (p *pages) revokeTokens(v *page.Visit, orgID string) error {
	kinds := []recovery.TokenKind{recovery.TokenKind(v.Form("kind"))}
	if v.Form("kind") == allKinds {
		kinds = recovery.TokenKinds()
	}
	_, err := p.Recovery.RevokeTokens(v.Context(), p.Tokens, v.Who, orgID, kinds)
	return err
}

func (p *pages) release(v *page.Visit) (page.Answer, error) {
	_, _, err := p.Recovery.Release(v.Context(), v.Org.Name)
	return page.See(links.Path(v.Org.Name, "-", "restore")), err
}

func (p *pages) releaseAll(v *page.Visit) (page.Answer, error) {
	_, _, err := p.Recovery.Release(v.Context(), "")
	return page.See(page.Back(v, "/-/server")), err
}
