package stacksettings

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
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

// may says what a permission allows.
var may = map[store.Permission]string{
	store.NoPermission: "nothing", store.ReadPermission: "read it, except secrets", store.WritePermission: "update and deploy",
	store.AdminPermission: "everything, also give permissions",
}

// rule is a reason that users have a permission on the stack.
type rule struct {
	Icon, Name, Href, Through string
	Permission                store.Permission
	// Kind and Subject are the values of the form that removes the rule; "" for rules that are set elsewhere.
	Kind, Subject string
}

type accessModel struct {
	St     store.Stack
	Rules  []rule
	Manage bool
	// Form is the form that gives a permission.
	Form accessForm
	// Names are suggestions for it.
	Names []view.Option
	// Grants are those of the stack and to it, and GrantForm the form that gives one.
	Grants    grants.Of
	GrantForm grantForm
	// Readers are suggestions for it: other stacks, as project/stack.
	Readers []string
}

type accessForm struct{ Who, Permission, Problem string }

// suggested bounds the suggestions of users, and of teams.
const suggested = 100

// teamPrefix precedes the name of a team in the form. Logins contain no slash.
const teamPrefix = "team/"

func (p *pages) access(v *page.Visit) (view.Page, error) {
	return p.accessPage(v, accessForm{}, grantForm{}, "")
}

func (p *pages) accessPage(v *page.Visit, form accessForm, grant grantForm, problem string) (view.Page, error) {
	access, err := p.Identity.StackAccess(v.Context(), v.Who, v.Stack)
	if err != nil {
		return view.Page{}, err
	}
	m := accessModel{St: v.Stack, Rules: rules(v, access), Manage: v.Who.Can(v.Stack, identity.Manage), Form: form, GrantForm: grant}
	if m.Grants, err = p.Grants.Of(v.Context(), v.Who, v.Stack); err != nil {
		return view.Page{}, err
	}
	if m.Form.Permission == "" {
		m.Form.Permission = permissions[0].Value
	}
	if m.Manage && v.Who.CanReadOrg(v.Org.ID) {
		if m.Names, err = p.names(v); err != nil {
			return view.Page{}, err
		}
		list, err := p.Stacks.Names(v.Context(), v.Who, v.Org.ID, page.Suggested)
		if err != nil {
			return view.Page{}, err
		}
		for _, name := range list {
			if name != v.Stack.Project+"/"+v.Stack.Name {
				m.Readers = append(m.Readers, name)
			}
		}
	}
	return p.settingsPage(v, "access", problem, accessList(m), nil)
}

// rules lists who may do what through which rule, those of the organization first.
func rules(v *page.Visit, access identity.StackAccess) []rule {
	st := v.Stack
	href := func(segments ...string) string {
		if !v.Who.CanReadOrg(st.OrgID) {
			return ""
		}
		return links.Path(append([]string{st.OrgName, "-", "settings"}, segments...)...)
	}
	out := []rule{
		{Icon: "shield", Name: "Administrators", Href: href("members"), Through: "role in " + st.OrgName, Permission: store.AdminPermission},
		{Icon: "users", Name: "All members", Href: href(), Through: "default of " + st.OrgName + " for every stack", Permission: st.OrgPermission},
	}
	if login := access.Creator.Login; login != "" {
		out = append(out, rule{Icon: "user", Name: login, Through: "created the stack", Permission: store.AdminPermission})
	}
	for _, t := range access.Teams {
		out = append(out, rule{Icon: "users", Name: t.Name, Href: href("teams", t.Name), Through: "team", Permission: t.Permission, Kind: "team", Subject: t.Name})
	}
	for _, c := range access.Collaborators {
		out = append(out, rule{Icon: "user", Name: c.Login, Through: "direct", Permission: c.Permission, Kind: "user", Subject: c.Login})
	}
	return out
}

// names suggests users and teams of the organization.
func (p *pages) names(v *page.Visit) ([]view.Option, error) {
	members, _, err := p.Identity.Members(v.Context(), v.Org.ID, "", "", suggested)
	if err != nil {
		return nil, err
	}
	teams, err := p.Identity.Teams(v.Context(), v.Who, v.Org.ID)
	var out []view.Option
	for _, t := range teams[:min(len(teams), suggested)] {
		out = append(out, view.Option{Value: teamPrefix + t.Name, Text: "team, " + words.Count(len(t.Members), "member")})
	}
	for _, m := range members {
		out = append(out, view.Option{Value: m.Login, Text: m.Name})
	}
	return out, err
}

func (p *pages) setAccess(v *page.Visit) (page.Answer, error) {
	form := accessForm{Who: strings.TrimSpace(v.Form("who")), Permission: v.Form("permission")}
	user, team := v.Form("user"), v.Form("team")
	if name, ok := strings.CutPrefix(form.Who, teamPrefix); ok {
		team = name
	} else if form.Who != "" {
		user = form.Who
	}
	n, wrong := strconv.ParseInt(form.Permission, 10, 64)
	to := store.Permission(n)
	was, err := p.given(v, user, team)
	switch {
	case err != nil:
		return page.Answer{}, err
	case wrong != nil:
		err = fault.Invalid("Choose a permission.")
	case user != "":
		err = p.Identity.SetCollaborator(v.Context(), v.Stack, user, to)
	case team != "":
		err = p.Identity.ChangeTeam(v.Context(), v.Who, v.Org, team, identity.TeamChange{
			Grants: []identity.StackGrant{{Project: v.Stack.Project, Stack: v.Stack.Name, Permission: to}},
		})
	default:
		err = fault.Invalid("Name a user or a team.")
	}
	a, failed := page.Changed(v, err, path(v.Stack, "access"), func(v *page.Visit, problem string) (view.Page, error) {
		if v.Form("user")+v.Form("team") == "" { // the form that gives a permission
			form.Problem, problem = problem, ""
		}
		return p.accessPage(v, form, grantForm{}, problem)
	})
	if to == store.NoPermission && was != to {
		text := "Removed the permission " + permissionName(was) + " of " + cmp.Or(user, team) + "."
		a = a.Undo(text, path(v.Stack, "access"), "user", user, "team", team, "permission", strconv.Itoa(int(was)))
	}
	return a, failed
}

// given returns the permission on the stack that a user, or else a team, has now: the page with the form can be old.
func (p *pages) given(v *page.Visit, user, team string) (store.Permission, error) {
	access, err := p.Identity.StackAccess(v.Context(), v.Who, v.Stack)
	for _, c := range access.Collaborators {
		if user != "" && c.Login == user {
			return c.Permission, err
		}
	}
	for _, t := range access.Teams {
		if user == "" && t.Name == team {
			return t.Permission, err
		}
	}
	return store.NoPermission, err
}
