package orgsettings

import (
	"cmp"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
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
	grant, describe             string
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
	if c.Action != "add" {
		return p.changeTeam(v, c, nil)
	}
	return p.changeTeam(v, c, func(f *teamForms, problem string) { f.member.Value, f.member.Problem = c.Member, problem })
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
	return p.changeTeam(v, identity.TeamChange{Grants: []identity.StackGrant{{Project: project, Stack: name, Permission: to}}}, wrong)
}

func (p *pages) deleteTeam(v *page.Visit) (page.Answer, error) {
	err := p.Identity.DeleteTeam(v.Context(), v.Org.ID, v.Param("team"))
	return p.changedTeam(v, err, at(v).path("teams"), nil)
}
