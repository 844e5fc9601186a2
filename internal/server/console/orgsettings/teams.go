package orgsettings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

type teamsModel struct {
	place
	List    []identity.TeamInfo
	Form    store.Team
	problem string
}

func (p *pages) teams(v *page.Visit) (view.Page, error) { return p.teamsPage(v, store.Team{}, "") }

func (p *pages) teamsPage(v *page.Visit, form store.Team, problem string) (view.Page, error) {
	list, err := p.Identity.Teams(v.Context(), v.Who, v.Org.ID)
	if err != nil {
		return view.Page{}, err
	}
	return p.settingsPage(v, "teams", "", teams(teamsModel{at(v), list, form, problem}))
}

func (p *pages) createTeam(v *page.Visit) (page.Answer, error) {
	form := store.Team{Name: strings.TrimSpace(v.Form("name")), DisplayName: v.Form("displayName"), Description: v.Form("description")}
	_, err := p.Identity.CreateTeam(v.Context(), v.Org, form)
	return page.Changed(v, err, at(v).path("teams", form.Name), func(v *page.Visit, problem string) (view.Page, error) { return p.teamsPage(v, form, problem) })
}

type teamModel struct {
	place
	identity.TeamInfo
	// Manage reports whether the visitor administers the team.
	Manage bool
	Tokens tokenList
	// Candidates are members of the organization who are not in the team.
	Candidates []store.Member
	teamForms
	API string
}

// teamForms are the forms of the page, with what is wrong with them.
type teamForms struct {
	member                      struct{ Value, Problem string }
	GrantStack, GrantPermission string
	grant                       string
	token                       tokenForms
	Secret                      secret
}

// candidates is the number of members that the field for a new member suggests.
const candidates = 200

func called(u store.TeamMember) string { return cmp.Or(u.Name, u.Login) }

// people says how many members the team has, and how many of them administer it.
func (m teamModel) people() string {
	n := 0
	for _, u := range m.Members {
		if u.Role == identity.RoleAdmin {
			n++
		}
	}
	text := words.Count(len(m.Members), "member")
	if n > 0 {
		text += ", " + words.Number(n) + " of them " + map[bool]string{true: "administrator", false: "administrators"}[n == 1]
	}
	return text
}

// teamAdmin reports whether the visitor administers a team, as the service decides it.
func teamAdmin(v *page.Visit, t identity.TeamInfo) bool {
	if v.Who.CanAdminOrg(t.OrgID) {
		return true
	}
	for _, m := range t.Members {
		if m.UserID == v.Who.User.ID {
			return m.Role == identity.RoleAdmin
		}
	}
	return false
}

func newTeamForms() teamForms { return teamForms{GrantPermission: readOnly, token: newTokenForms()} }

func (p *pages) team(v *page.Visit) (view.Page, error) { return p.teamPage(v, newTeamForms(), "") }

func (p *pages) teamPage(v *page.Visit, forms teamForms, problem string) (view.Page, error) {
	t, err := p.Identity.TeamInfo(v.Context(), v.Who, v.Org.ID, v.Param("team"))
	if err != nil {
		return view.Page{}, err
	}
	m := teamModel{place: at(v), TeamInfo: t, Manage: teamAdmin(v, t), teamForms: forms, API: p.APIURL}
	// Who may not use a form does not see it.
	if !m.Manage {
		problem = cmp.Or(problem, forms.member.Problem)
	}
	if !m.Admin {
		problem = cmp.Or(problem, forms.grant)
	}
	if m.Admin {
		if m.Tokens, err = p.tokenList(v, store.TokenFilter{Kind: store.TeamToken, TeamID: t.ID}, "teams", t.Name); err != nil {
			return view.Page{}, err
		}
	}
	if m.Manage && m.Fresh {
		if m.Candidates, _, err = p.Identity.Members(v.Context(), v.Org.ID, "", "", candidates); err != nil {
			return view.Page{}, err
		}
		m.Candidates = slices.DeleteFunc(m.Candidates, func(c store.Member) bool {
			return slices.ContainsFunc(t.Members, func(u store.TeamMember) bool { return u.UserID == c.UserID })
		})
	}
	out, err := p.settingsPage(v, "teams", problem, team(m))
	out.Title, out.Bar = t.Name+" · "+v.Org.Name, nil
	out.Object = &view.Object{Icon: "users", Project: "Teams", Name: t.DisplayName, Facts: teamFacts(m), Actions: teamMenu(m)}
	return out, err
}

// changeTeam answers after a change of the team of the path. wrong puts a problem into the forms.
func (p *pages) changeTeam(v *page.Visit, c identity.TeamChange, wrong func(f *teamForms, problem string)) (page.Answer, error) {
	err := p.Identity.ChangeTeam(v.Context(), v.Who, v.Org, v.Param("team"), c)
	return p.changedTeam(v, err, at(v).path("teams", v.Param("team")), wrong)
}

func (p *pages) changedTeam(v *page.Visit, err error, next string, wrong func(f *teamForms, problem string)) (page.Answer, error) {
	return page.Changed(v, err, next, func(v *page.Visit, problem string) (view.Page, error) {
		forms := newTeamForms()
		if wrong == nil {
			return p.teamPage(v, forms, problem)
		}
		wrong(&forms, problem)
		return p.teamPage(v, forms, "")
	})
}

func (p *pages) editTeam(v *page.Visit) (page.Answer, error) {
	return p.changeTeam(v, identity.TeamChange{DisplayName: v.Form("displayName"), Description: v.Form("description")}, nil)
}

func (p *pages) changeTeamMember(v *page.Visit) (page.Answer, error) {
	c := identity.TeamChange{Member: strings.TrimSpace(v.Form("member")), Action: v.Form("action")}
	if opposite := map[string]string{"promote": "demote", "demote": "promote"}[c.Action]; opposite != "" {
		admin, err := p.adminsTeam(v, c.Member)
		if err != nil {
			return page.Answer{}, err
		}
		a, err := p.changeTeam(v, c, nil)
		if admin == (c.Action == "promote") {
			return a, err
		}
		role := map[string]string{"promote": "administrator", "demote": "member"}[c.Action]
		return a.Undo(c.Member+" is now "+role+" of the team.", at(v).path("teams", v.Param("team"), "members"), "member", c.Member, "action", opposite), err
	}
	if c.Action != "add" {
		return p.changeTeam(v, c, nil)
	}
	err := p.Identity.ChangeTeam(v.Context(), v.Who, v.Org, v.Param("team"), c)
	if fault.KindOf(err) == fault.KindNotFound && c.Member != "" {
		found, _, findErr := p.Identity.Members(v.Context(), v.Org.ID, c.Member, "", likely)
		if findErr != nil {
			return page.Answer{}, findErr
		}
		err = fault.Invalid("%s", notMember(c.Member, v.Org.Name, found))
	}
	return p.changedTeam(v, err, at(v).path("teams", v.Param("team")), func(f *teamForms, problem string) { f.member.Value, f.member.Problem = c.Member, problem })
}

// likely is the number of members that the problem of a field for a new member names.
const likely = 3

// notMember says that words are not the login of a member, and which members they can mean. It chooses none, because
// users choose their names.
func notMember(words, org string, found []store.Member) string {
	if len(found) == 0 {
		return fmt.Sprintf("%q is not a member of %s", words, org)
	}
	var names []string
	for _, m := range found {
		names = append(names, fmt.Sprintf("%s (%s)", m.Login, m.Name))
	}
	return fmt.Sprintf("%q is not the login of a member of %s. Enter a login, such as %s.", words, org, strings.Join(names, ", "))
}

func (p *pages) grantTeam(v *page.Visit) (page.Answer, error) {
	wrong := func(f *teamForms, problem string) {
		f.GrantStack, f.GrantPermission, f.grant = v.Form("stack"), v.Form("permission"), problem
	}
	to, err := permission(v)
	if err != nil {
		return p.changedTeam(v, err, "", wrong)
	}
	project, name, _ := strings.Cut(strings.TrimSpace(v.Form("stack")), "/")
	was, err := p.granted(v, project, name)
	if err != nil {
		return page.Answer{}, err
	}
	a, err := p.changeTeam(v, identity.TeamChange{Grants: []identity.StackGrant{{Project: project, Stack: name, Permission: to}}}, wrong)
	if was != to {
		text := "The team has the permission " + permissionName(to) + " on " + project + "/" + name + "."
		if to == store.NoPermission {
			text = "The team has no more permission on " + project + "/" + name + "."
		}
		a = a.Undo(text, at(v).path("teams", v.Param("team"), "stacks"), "stack", project+"/"+name, "permission", number(was))
	}
	return a, err
}

// adminsTeam reports whether a member administers the team of the path.
func (p *pages) adminsTeam(v *page.Visit, login string) (bool, error) {
	t, err := p.Identity.TeamInfo(v.Context(), v.Who, v.Org.ID, v.Param("team"))
	return slices.ContainsFunc(t.Members, func(m store.TeamMember) bool { return m.Login == login && m.Role == identity.RoleAdmin }), err
}

// granted returns the permission that the team of the path has on a stack.
func (p *pages) granted(v *page.Visit, project, name string) (store.Permission, error) {
	t, err := p.Identity.TeamInfo(v.Context(), v.Who, v.Org.ID, v.Param("team"))
	for _, s := range t.Stacks {
		if s.Project == project && s.Stack == name {
			return s.Permission, err
		}
	}
	return store.NoPermission, err
}

func (p *pages) deleteTeam(v *page.Visit) (page.Answer, error) {
	err := p.Identity.DeleteTeam(v.Context(), v.Org.ID, v.Param("team"))
	return p.changedTeam(v, err, at(v).path("teams"), nil)
}
