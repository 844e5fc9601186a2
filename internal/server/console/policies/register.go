// Package policies contains the pages about policies: packs, groups, issues, the compliance of stacks, evaluations of their
// states, and exceptions.
package policies

import (
	"net/url"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the pages.
type Deps struct {
	Identity    *identity.Service
	Policies    *policies.Service
	Results     *results.Service
	Exceptions  *exceptions.Service
	Evaluations *evaluations.Service
	Stacks      *stacks.Service
	Estate      *estate.Service
	Pools       *pools.Service
}

type pages struct{ Deps }

// Register registers the pages. Members read them; administrators of the organization change packs, groups and
// exceptions, and those who may write to a stack its issues, which the service checks.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const (
		base   = "/{org}/-/policies"
		pack   = base + "/packs/{pack}"
		groups = base + "/groups"
		group  = groups + "/{group}"
	)
	site.View(base, page.Member, p.packs)
	site.View(pack, page.Member, p.pack)
	site.Action(pack+"/remove", page.Fresh(page.Admin), p.removePack)
	site.Raw("/{org}/insights/policypacks/{pack}/{version}", page.Member, printed)

	site.View(groups, page.Member, p.groups)
	site.Action(groups, page.Admin, p.createGroup)
	site.View(group, page.Member, p.group)
	site.Action(group+"/edit", page.Admin, p.editGroup)
	site.Action(group+"/stacks", page.Admin, p.changeMember)
	site.Raw(group+"/packs", page.Admin, chosen)
	site.Action(group+"/delete", page.Fresh(page.Admin), p.deleteGroup)
	site.View(group+"/packs/{pack}", page.Admin, p.config)
	site.Action(group+"/packs/{pack}", page.Admin, p.sendConfig)
	site.Action(group+"/packs/{pack}/remove", page.Admin, p.disablePack)

	const (
		issue      = base + "/issues/{issue}"
		exceptions = base + "/exceptions"
	)
	site.View(base+"/issues", page.Member, p.issues)
	site.View(issue, page.Member, p.issue)
	site.Action(issue, page.Member, p.changeIssue)
	site.View(base+"/compliance", page.Member, p.compliance)
	site.View(base+"/evaluations", page.Member, p.evaluations)
	site.Action(base+"/evaluations", page.Member, p.evaluate)
	site.View(exceptions, page.Member, p.exceptions)
	site.View(exceptions+"/new", page.Admin, p.newException)
	site.Action(exceptions, page.Fresh(page.Admin), p.createException)
	site.View(exceptions+"/{exception}", page.Member, p.exception)
	site.Action(exceptions+"/{exception}/remove", page.Admin, p.removeException)

	const evaluation = "/{org}/{project}/{stack}/evaluations/{evaluation}"
	site.View(evaluation, page.Stack(identity.StateRead), p.evaluation)
	site.Action(evaluation+"/cancel", page.Stack(identity.Operate), p.cancelEvaluation)
}

// place is where a page is, and what its visitor may do.
type place struct {
	Org   string
	Admin bool
	Fresh bool
	// SignIn is the path of a sign-in that leads back to the page.
	SignIn string
}

func at(v *page.Visit) place {
	return place{
		Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID) && v.Who.CanGrant(), Fresh: v.Session.Fresh(now()), SignIn: page.LoginPath(page.Here(v, links.Path(v.Org.Name, "-", "policies"))),
	}
}

// query returns a parameter of a URL.
func query(name, value string) string { return url.Values{name: {value}}.Encode() }

// path returns the path of a page about policies.
func (p place) path(more ...string) string {
	return links.Path(append([]string{p.Org, "-", "policies"}, more...)...)
}

// parts are the lists.
var parts = []view.Part{{Name: "", Text: "Packs"}, {Name: "groups", Text: "Groups"}, {Name: "issues", Text: "Issues"}, {Name: "compliance", Text: "Compliance"}, {Name: "evaluations", Text: "Evaluations"}, {Name: "exceptions", Text: "Exceptions"}}

// bar is the head of a list.
func (p place) bar(part, count string) *view.Bar {
	return &view.Bar{Title: "Policies", Count: count, Label: "Policies", Tabs: view.Tabs(parts, part, p.path)}
}

// title returns the title of a list in the window.
func (p place) title(part string) string {
	for _, each := range parts {
		if each.Name == part {
			return each.Text + " · Policies · " + p.Org
		}
	}
	return "Policies · " + p.Org
}

// errGrant is the error of those who signed in with an exchanged token.
var errGrant = fault.Forbidden("An exchanged token may not change policies.")

// mayChange returns an error unless a visitor may change policies.
func mayChange(v *page.Visit) error {
	if !v.Who.CanGrant() {
		return errGrant
	}
	return nil
}

// namesOf joins the names of groups or packs for a row.
func namesOf[T any](list []T, name func(T) string) string {
	var names []string
	for _, each := range list {
		names = append(names, name(each))
	}
	return strings.Join(names, ", ")
}

func label(tag string, number int64) string { return policies.Label(tag, number) }

// groupNames are the names of the groups that use a pack.
func groupNames(list []store.PackUse) string {
	return namesOf(list, func(u store.PackUse) string { return u.Group })
}
