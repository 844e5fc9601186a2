// Package environments contains the pages about environments (Pulumi ESC): the list, and of each environment its definition,
// revisions, referrers and settings.
package environments

import (
	"net/url"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Deps are the services behind the pages.
type Deps struct {
	Heads
	Identity *identity.Service
	Grants   *grants.Service
}

type pages struct{ Deps }

// The patterns of the pages.
const (
	base = "/{org}/-/environments"
	// Pattern is that of the pages about one environment.
	Pattern = base + "/{project}/{environment}"
)

// Register registers the pages. All who belong to the organization may ask for them: the service decides what each visitor
// sees of which environment.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View(base, page.Belongs, p.list)
	site.View(base+"/new", page.Belongs, p.newForm)
	site.Action(base, page.Belongs, p.create)
	site.View(Pattern, page.Belongs, p.definition)

	const revisions = Pattern + "/revisions"
	site.View(revisions, page.Belongs, p.revisions)
	site.View(revisions+"/compare", page.Belongs, p.compare)
	site.Action(revisions+"/rollback", page.Belongs, p.rollBack)
	site.Action(revisions+"/retract", page.Belongs, p.retract)
	site.Action(revisions+"/tags", page.Belongs, p.setVersion)

	site.View(Pattern+"/users", page.Belongs, p.users)

	const settings = Pattern + "/settings"
	site.View(settings, page.Belongs, p.settings)
	site.Action(settings+"/tags", page.Belongs, p.changeTag)
	site.Action(settings+"/protection", page.Belongs, p.protect)
	site.Action(settings+"/access", page.Fresh(page.Belongs), p.changeAccess)
	site.Action(settings+"/grants", page.Fresh(page.Belongs), p.setGrant)
	site.Action(settings+"/clone", page.Belongs, p.clone)
	site.Action(settings+"/delete", page.Fresh(page.Belongs), p.remove)
}

// section is the place in the navigation.
const section = "environments"

// place is where a page is, and what its visitor may do.
type place struct {
	Org    string
	Create bool
	Fresh  bool
	// SignIn is the path of a sign-in that leads back to the page.
	SignIn string
}

func at(v *page.Visit) place {
	return place{
		Org: v.Org.Name, Create: v.Who.CanCreateEnvironment(v.Org.ID), Fresh: v.Session.Fresh(now()),
		SignIn: page.LoginPath(page.Here(v, links.Path(v.Org.Name, "-", "environments"))),
	}
}

// path returns the path of a page about environments.
func (p place) path(more ...string) string {
	return links.Path(append([]string{p.Org, "-", "environments"}, more...)...)
}

// Path returns the path of a page about an environment.
func Path(e store.Environment, more ...string) string {
	return links.Path(append([]string{e.OrgName, "-", "environments", e.Project, e.Name}, more...)...)
}

// VersionPath returns the path of the definition of a version of an environment: a number or a version tag.
func VersionPath(e store.Environment, version string) string {
	return Path(e) + "?" + url.Values{"version": {version}}.Encode()
}

// topics are the notifications of what the audit log records, such as all changes and openings of environments.
func topics(v *page.Visit) []view.Topic {
	return []view.Topic{{Channel: audit.Topic, About: v.Org.ID}}
}

// Heads makes the heads of all pages about an environment.
type Heads struct{ Environments *environments.Service }

// The tabs of an environment: the last segments of their paths.
const (
	Definition = ""
	Edit       = "edit"   // of package definition
	Values     = "values" // of package definition
	Revisions  = "revisions"
	Users      = "users"
	Settings   = "settings"
)

// tabs are the pages about an environment, with the permission that each one needs.
var tabs = []struct {
	view.Part
	need store.EnvironmentPermission
}{
	{view.Part{Name: Definition, Text: "Definition"}, store.ReadEnvironment},
	{view.Part{Name: Edit, Text: "Edit"}, store.WriteEnvironment},
	{view.Part{Name: Values, Text: "Values"}, store.OpenEnvironment},
	{view.Part{Name: Revisions, Text: "Revisions"}, store.ReadEnvironment},
	{view.Part{Name: Users, Text: "Used by"}, store.ReadEnvironment},
	{view.Part{Name: Settings, Text: "Settings"}, store.ReadEnvironment},
}

// Find returns the environment of a path, on which the visitor must have a permission.
func (h Heads) Find(v *page.Visit, need store.EnvironmentPermission) (environments.Listed, error) {
	return h.Environments.Get(v.Context(), v.Who, need, v.Org.Name, v.Param("project"), v.Param("environment"))
}

// Page returns a page about the environment of a path with its head, its tabs and its live topics, and the environment. tab is
// the current tab, and the visitor must have the permission need.
func (h Heads) Page(v *page.Visit, tab string, need store.EnvironmentPermission) (view.Page, environments.Listed, error) {
	e, err := h.Find(v, need)
	if err != nil {
		return view.Page{}, e, err
	}
	return headOf(v, e, tab), e, nil
}

func headOf(v *page.Visit, e environments.Listed, tab string) view.Page {
	m := head{place: at(v), Listed: e}
	var seen []view.Part
	for _, t := range tabs {
		if e.Permission >= t.need {
			seen = append(seen, t.Part)
		}
	}
	o := &view.Object{
		Icon: "lock", Project: e.Project, Name: e.Name, Badges: badges(m), Facts: facts(m), Label: "Environment",
		Tabs: view.Tabs(seen, tab, func(name ...string) string { return Path(e.Environment, name...) }),
	}
	title := e.Project + "/" + e.Name + " · " + e.OrgName
	for i, t := range o.Tabs {
		switch seen[i].Name {
		case Revisions:
			o.Tabs[i].Count = number(e.LastNumber)
		case Users:
			if n := e.Referrers.Environments + e.Referrers.Stacks; n > 0 {
				o.Tabs[i].Count = words.Number(n)
			}
		}
		if t.Current && tab != Definition {
			o.Href, title = Path(e.Environment), t.Text+" of "+title
		}
	}
	return view.Page{Title: title, Section: section, Object: o, Live: topics(v)}
}
