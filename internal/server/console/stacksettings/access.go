package stacksettings

import (
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
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
	// Removed is the rule that the visitor has removed just now.
	Removed *rule
}

type accessForm struct{ Who, Permission, Problem string }

// suggested bounds the suggestions of users, and of teams.
const suggested = 100

// teamPrefix precedes the name of a team in the form. Logins contain no slash.
const teamPrefix = "team/"

func (p *pages) access(v *page.Visit) (view.Page, error) { return p.accessPage(v, accessForm{}, "") }

func (p *pages) accessPage(v *page.Visit, form accessForm, problem string) (view.Page, error) {
	access, err := p.Identity.StackAccess(v.Context(), v.Who, v.Stack)
	if err != nil {
		return view.Page{}, err
	}
	m := accessModel{St: v.Stack, Rules: rules(v, access), Manage: v.Who.Can(v.Stack, identity.Manage), Form: form}
	if m.Form.Permission == "" {
		m.Form.Permission = permissions[0].Value
	}
	if m.Manage && v.Who.CanReadOrg(v.Org.ID) {
		if m.Names, err = p.names(v); err != nil {
			return view.Page{}, err
		}
	}
	m.Removed = m.removed(v)
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

// removed returns the rule that the form has removed. Only an answer to a form offers to undo that: a link could name a rule
// that never existed, and the click would make it.
func (m accessModel) removed(v *page.Visit) *rule {
	n, err := strconv.ParseInt(v.Form("was"), 10, 64)
	r := rule{Kind: "user", Subject: v.Form("user"), Permission: store.Permission(n)}
	if team := v.Form("team"); team != "" {
		r.Kind, r.Subject = "team", team
	}
	if err != nil || !m.Manage || r.Subject == "" || permissionName(r.Permission) == "none" ||
		slices.ContainsFunc(m.Rules, func(other rule) bool { return other.Kind == r.Kind && other.Subject == r.Subject }) {
		return nil
	}
	return &r
}

func (p *pages) setAccess(v *page.Visit) (page.Answer, error) {
	form := accessForm{Who: strings.TrimSpace(v.Form("who")), Permission: v.Form("permission")}
	user, team := v.Form("user"), v.Form("team")
	if name, ok := strings.CutPrefix(form.Who, teamPrefix); ok {
		team = name
	} else if form.Who != "" {
		user = form.Who
	}
	n, err := strconv.ParseInt(form.Permission, 10, 64)
	to := store.Permission(n)
	switch {
	case err != nil:
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
	if err == nil && to == store.NoPermission && v.Form("was") != "" {
		shown, err := p.accessPage(v, accessForm{}, "")
		return page.Once(shown), err
	}
	return page.Changed(v, err, path(v.Stack, "access"), func(v *page.Visit, problem string) (view.Page, error) {
		if v.Form("user")+v.Form("team") == "" { // the form that gives a permission
			form.Problem, problem = problem, ""
		}
		return p.accessPage(v, form, problem)
	})
}
