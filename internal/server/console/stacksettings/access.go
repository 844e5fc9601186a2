package stacksettings

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

// permissions are the permissions that users can have on a stack.
var permissions = []view.Option{
	{Value: strconv.Itoa(int(store.ReadPermission)), Text: "read"},
	{Value: strconv.Itoa(int(store.WritePermission)), Text: "write"},
	{Value: strconv.Itoa(int(store.AdminPermission)), Text: "admin"},
}

func permissionName(p store.Permission) string {
	at := slices.IndexFunc(permissions, func(o view.Option) bool { return o.Value == strconv.Itoa(int(p)) })
	if at < 0 {
		return "none"
	}
	return permissions[at].Text
}

type accessModel struct {
	St     store.Stack
	Access identity.StackAccess
	Manage bool
}

func (p *pages) access(v *page.Visit) (view.Page, error) { return p.accessPage(v, "") }

func (p *pages) accessPage(v *page.Visit, problem string) (view.Page, error) {
	access, err := p.Identity.StackAccess(v.Context(), v.Who, v.Stack)
	if err != nil {
		return view.Page{}, err
	}
	return p.settingsPage(v, "access", problem, accessList(accessModel{v.Stack, access, v.Who.Can(v.Stack, identity.Manage)}))
}

func (p *pages) setAccess(v *page.Visit) (page.Answer, error) {
	n, err := strconv.ParseInt(v.Form("permission"), 10, 64)
	to := store.Permission(n)
	switch {
	case err != nil:
		err = fault.Invalid("Choose a permission.")
	case v.Form("user") != "":
		err = p.Identity.SetCollaborator(v.Context(), v.Stack, v.Form("user"), to)
	case v.Form("team") != "":
		err = p.Identity.ChangeTeam(v.Context(), v.Who, v.Org, v.Form("team"), identity.TeamChange{
			Grants: []identity.StackGrant{{Project: v.Stack.Project, Stack: v.Stack.Name, Permission: to}},
		})
	default:
		err = fault.Invalid("Name a user or a team.")
	}
	return answer(v, err, "access", p.accessPage)
}

type optionsModel struct {
	St             store.Stack
	Manage, Delete bool
	// Fresh reports whether the visitor has signed in recently, as a transfer and a deletion require.
	Fresh bool
	// SignIn is the path of a sign-in that leads back to the page.
	SignIn                string
	Orgs                  []view.Option
	Name, Project, Wanted string
	Kept                  time.Duration // for which a deleted stack can be restored
}

func (p *pages) options(v *page.Visit) (view.Page, error) { return p.optionsPage(v, "") }

func (p *pages) optionsPage(v *page.Visit, problem string) (view.Page, error) {
	m := optionsModel{
		St: v.Stack, Manage: v.Who.Can(v.Stack, identity.Manage), Delete: v.Who.Can(v.Stack, identity.DeleteStack),
		Fresh: v.Session.Fresh(time.Now()), SignIn: page.LoginPath(page.Here(v, path(v.Stack, "options"))),
		Name: v.Stack.Name, Project: v.Stack.Project, Wanted: v.Stack.Project + "/" + v.Stack.Name,
		Kept: p.Stacks.KeepsDeleted(),
	}
	for _, o := range v.Orgs() {
		if o.ID != v.Stack.OrgID && v.Who.CanTransfer(v.Stack, o.ID) {
			m.Orgs = append(m.Orgs, view.Option{Value: o.Name, Text: o.Name})
		}
	}
	return p.settingsPage(v, "options", problem, optionsView(m))
}

// errNotConfirmed is the error of a dangerous action whose confirmation differs.
var errNotConfirmed = fault.Invalid("Nothing was changed: type the project and the name of the stack exactly as they are shown.")

func confirmed(v *page.Visit) error {
	if v.Form("confirm") != v.Stack.Project+"/"+v.Stack.Name {
		return errNotConfirmed
	}
	return nil
}

func (p *pages) rename(v *page.Visit) (page.Answer, error) {
	name, project := v.Form("name"), v.Form("project")
	_, err := p.Stacks.Rename(v.Context(), v.Who, v.Stack, name, project)
	if err != nil {
		return answer(v, err, "options", p.optionsPage)
	}
	renamed := v.Stack
	if name != "" {
		renamed.Name = name
	}
	if project != "" {
		renamed.Project = project
	}
	return page.See(path(renamed, "options")), nil
}

func (p *pages) transfer(v *page.Visit) (page.Answer, error) {
	err := confirmed(v)
	var to store.Organization
	if err == nil {
		to, err = p.Identity.Organization(v.Context(), v.Who, v.Form("to"))
	}
	if err == nil {
		err = p.Stacks.Transfer(v.Context(), v.Who, v.Stack, to)
	}
	if err != nil {
		return answer(v, err, "options", p.optionsPage)
	}
	return page.See(links.Path(to.Name, v.Stack.Project, v.Stack.Name)), nil
}

func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	force := v.Form("force") == "on"
	err := confirmed(v)
	if err == nil && force {
		err = v.Who.Check(v.Stack, identity.Manage)
	}
	if err == nil {
		err = p.Stacks.Delete(v.Context(), v.Who, v.Stack, force)
	}
	if err != nil && !errors.Is(err, errNotConfirmed) && fault.KindOf(err) == fault.KindNotFound {
		return page.Answer{}, err
	}
	if err != nil {
		return answer(v, err, "options", p.optionsPage)
	}
	return page.See(links.Path(v.Stack.OrgName, "-", "stacks")), nil
}
