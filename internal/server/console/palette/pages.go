package palette

import (
	"net/url"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
)

func query(name, value string) string { return url.Values{name: {value}}.Encode() }

// pagesOf returns the pages that a visitor may open: those of the organization of the parameter org, of the server, and
// the visitor's own.
func pagesOf(v *page.Visit) []item {
	var items []item
	add := func(text, icon, href string) {
		items = append(items, item{Group: "Pages", Text: text, Kind: "page", Icon: icon, Href: href})
	}
	for _, o := range v.Orgs() {
		if o.Name != v.Query("org") {
			continue
		}
		member, admin := v.Who.CanReadOrg(o.ID), v.Who.CanAdminOrg(o.ID)
		for _, s := range view.Sections(member) {
			add(s.Text, s.Icon, s.Path(o.Name))
		}
		add("Calendar", "clock", links.Path(o.Name, "-", "activity", "calendar"))
		add("Deleted stacks", "trash", links.Path(o.Name, "-", "stacks", "deleted"))
		if v.Who.CanCreateEnvironment(o.ID) {
			add("New environment", "plus", links.Path(o.Name, "-", "environments", "new"))
		}
		settings := func(text, icon string, part ...string) {
			add(text, icon, links.Path(append([]string{o.Name, "-", "settings"}, part...)...))
		}
		if member {
			policies := func(text, icon, part string) { add(text, icon, links.Path(o.Name, "-", "policies", part)) }
			policies("Policies: groups", "group", "groups")
			policies("Policies: issues", "shield", "issues")
			policies("Policies: compliance", "shield", "compliance")
			policies("Policies: exceptions", "lock", "exceptions")
			settings("Settings: members", "users", "members")
			settings("Settings: teams", "users", "teams")
		}
		if admin {
			add("New exception from a policy", "lock", links.Path(o.Name, "-", "policies", "exceptions", "new"))
			settings("Settings: tokens of the organization", "key", "tokens")
			settings("Settings: issuers", "shield", "issuers")
			settings("Settings: webhooks", "hook", "webhooks")
			settings("Settings: audit log", "activity", "audit")
			settings("Settings: integrations with git hosts", "branch", "integrations")
			settings("Settings: name and end of the organization", "settings", "organization")
		}
	}
	add("Your settings", "user", "/user/settings")
	add("Access tokens", "key", "/user/settings/tokens")
	if v.Who.User.SiteAdmin {
		add("Server", "agents", "/-/server")
		add("Users of the server", "users", "/-/server/users")
		add("Organizations", "group", "/-/server/organizations")
		add("Audit log of the server", "activity", "/-/server/audit")
	}
	for _, o := range v.Orgs() {
		if o.Name != v.Query("org") {
			items = append(items, item{Group: "Organizations", Text: o.Name, Kind: "organization", Icon: "group", Href: links.Path(o.Name)})
		}
	}
	return items
}
