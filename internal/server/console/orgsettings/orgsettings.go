// Package orgsettings contains the pages with an organization's settings: what members may do, the
// members themselves, teams, tokens, trusted issuers of identity tokens, webhooks, and integrations.
package orgsettings

import (
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/forges"
	"workflowagent/internal/server/console/hooks"
	"workflowagent/internal/server/console/orgs"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/words"
)

// Deps are the services behind the pages.
type Deps struct {
	Deployments *deployments.Service
	Identity    *identity.Service
	Invitations *invitations.Service
	OIDC        *oidc.Service
	Pools       *pools.Service
	Webhooks    *webhooks.Service
	Forges      forges.Deps
	// Whole renames and deletes the organization.
	Whole orgs.Deps
	// Provider returns the name of an identity provider for an issuer.
	Provider func(issuer string) string
	// APIURL is the server's address for clients, without a trailing slash.
	APIURL string
	// Console is the console's address for browsers.
	Console links.Console
}

type pages struct{ Deps }

// Register registers the pages. Administrators of a team and of a stack change teams, too: the
// services check their rights.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const base = "/{org}/-/settings"
	admin, member := page.Admin, page.Member
	site.View(base, member, p.general)
	site.Action(base+"/permission", page.Fresh(admin), p.setPermission)
	site.Action(base+"/project-reads", page.Fresh(admin), p.setProjectReads)
	site.Action(base+"/pulumi-version", admin, p.setPulumiVersion)

	site.View(base+"/members", member, p.members)
	site.Action(base+"/members", page.Fresh(admin), p.addMember)
	site.Action(base+"/members/{user}/role", page.Fresh(admin), p.setRole)
	site.Action(base+"/members/{user}/remove", admin, p.removeMember)
	site.Action(base+"/invitations", page.Fresh(admin), p.invite)
	site.Action(base+"/invitations/{invitation}/revoke", admin, p.revokeInvitation)

	const team = base + "/teams/{team}"
	site.View(base+"/teams", member, p.teams)
	site.Action(base+"/teams", page.Fresh(admin), p.createTeam)
	site.View(team, member, p.team)
	site.Action(team+"/edit", member, p.editTeam)
	site.Action(team+"/members", page.Fresh(member), p.changeTeamMember)
	site.Action(team+"/stacks", page.Fresh(member), p.grantTeam)
	site.Action(team+"/delete", admin, p.deleteTeam)
	site.Action(team+"/tokens", page.Fresh(admin), p.createTeamToken)
	site.Action(team+"/tokens/{token}/revoke", admin, p.revokeTeamToken)

	site.View(base+"/tokens", admin, p.tokens)
	site.Action(base+"/tokens", page.Fresh(admin), p.createToken)
	site.Action(base+"/tokens/{token}/revoke", admin, p.revokeToken)

	site.View(base+"/audit", admin, p.audit)

	const issuer = base + "/issuers/{issuer}"
	site.View(base+"/issuers", admin, p.issuers)
	site.Action(base+"/issuers", page.Fresh(admin), p.registerIssuer)
	site.View(issuer, admin, p.issuer)
	site.Action(issuer+"/edit", page.Fresh(admin), p.editIssuer)
	site.Action(issuer+"/thumbprints", page.Fresh(admin), p.renewThumbprints)
	site.Action(issuer+"/policies", page.Fresh(admin), p.addPolicy)
	site.Action(issuer+"/policies/remove", page.Fresh(admin), p.removePolicy)
	site.Action(issuer+"/test", admin, p.testToken)
	site.Action(issuer+"/delete", admin, p.deleteIssuer)

	hooks.Register(site, d.Webhooks, hooks.Mount{
		Pattern: base + "/webhooks", Access: admin,
		Owner: func(v *page.Visit) webhooks.Owner { return webhooks.Owner{Org: v.Org} },
		Path: func(v *page.Visit, more ...string) string {
			return at(v).path(append([]string{"webhooks"}, more...)...)
		},
		Page: func(v *page.Visit, problem string, content templ.Component) (view.Page, error) {
			return p.settingsPage(v, "webhooks", problem, content)
		},
	})
	orgs.Register(site, d.Whole, orgs.Mount{
		Pattern: base + "/organization", Access: admin, After: "/",
		Name: func(v *page.Visit) string { return v.Org.Name },
		Path: func(name string, more ...string) string {
			return links.Path(append([]string{name, "-", "settings", "organization"}, more...)...)
		},
		Page: func(v *page.Visit, problem string, content templ.Component) (view.Page, error) {
			return p.settingsPage(v, "organization", problem, content)
		},
	})
	forges.Register(site, d.Forges, forges.Mount{
		Pattern: base + "/integrations",
		Path: func(v *page.Visit, more ...string) string {
			return at(v).path(append([]string{"integrations"}, more...)...)
		},
		Page: func(v *page.Visit, problem string, content templ.Component) (view.Page, error) {
			return p.settingsPage(v, "integrations", problem, content)
		},
	})
}

// place is where a visitor is, and what the visitor may do there.
type place struct {
	Org string
	// Admin reports whether the visitor administers the organization.
	Admin bool
	// Fresh reports whether the visitor has signed in recently, as forms that grant access require.
	Fresh bool
	// Here is the path of the page, to which a sign-in returns.
	Here string
}

func at(v *page.Visit) place {
	p := place{Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID), Fresh: v.Session.Fresh(time.Now())}
	p.Here = page.Here(v, p.path())
	return p
}

// signIn returns the path of a sign-in that leads back.
func (p place) signIn() string { return page.LoginPath(p.Here) }

// path returns the path of a page with settings.
func (p place) path(more ...string) string {
	return links.Path(append([]string{p.Org, "-", "settings"}, more...)...)
}

// parts are the pages with settings: the last segment of their paths, their texts, and whether only
// administrators see them.
var parts = []struct {
	path, text string
	admin      bool
}{
	{"", "General", false},
	{"members", "Members", false},
	{"teams", "Teams", false},
	{"tokens", "Tokens", true},
	{"issuers", "Issuers", true},
	{"webhooks", "Webhooks", true},
	{"integrations", "Integrations", true},
	{"audit", "Audit export", true},
	{"organization", "Name and end", true},
}

// settingsPage returns a page with the navigation between the settings. part is the first segment of its path.
func (p *pages) settingsPage(v *page.Visit, part, problem string, content templ.Component) (view.Page, error) {
	here := at(v)
	counts, err := p.Identity.CountSettings(v.Context(), v.Org.ID)
	if err != nil {
		return view.Page{}, err
	}
	out := view.Page{Section: "settings", Bar: &view.Bar{Title: "Settings", Count: v.Org.Name}}
	var tabs []view.Tab
	for _, s := range parts {
		if s.admin && !here.Admin {
			continue
		}
		tab := view.Tab{Text: s.text, Href: here.path(), Current: s.path == part}
		if n, ok := counts[s.path]; ok {
			tab.Count = words.Number(n)
		}
		if s.path != "" {
			tab.Href = here.path(s.path)
		}
		if tab.Current {
			out.Title = s.text + " · " + v.Org.Name
		}
		tabs = append(tabs, tab)
	}
	out.Body = view.FormPage("Settings", tabs, problem, body(content), nil)
	return out, nil
}
