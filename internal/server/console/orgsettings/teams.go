package orgsettings

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

type teamsModel struct {
	place
	List []identity.TeamInfo
	Form store.Team
}

func (p *pages) teams(v *page.Visit) (view.Page, error) { return p.teamsPage(v, store.Team{}, "") }

func (p *pages) teamsPage(v *page.Visit, form store.Team, problem string) (view.Page, error) {
	list, err := p.Identity.Teams(v.Context(), v.Who, v.Org.ID)
	return settingsPage(v, "teams", problem, teams(teamsModel{at(v), list, form})), err
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

func (p *pages) team(v *page.Visit) (view.Page, error) { return p.teamPage(v, "") }

func (p *pages) teamPage(v *page.Visit, problem string) (view.Page, error) {
	t, err := p.Identity.TeamInfo(v.Context(), v.Who, v.Org.ID, v.Param("team"))
	if err != nil {
		return view.Page{}, err
	}
	m := teamModel{place: at(v), TeamInfo: t, Manage: teamAdmin(v, t)}
	if m.Admin {
		if m.Tokens, err = p.tokenList(v, store.TokenFilter{Kind: store.TeamToken, TeamID: t.ID}, "teams", t.Name); err != nil {
			return view.Page{}, err
		}
	}
	out := settingsPage(v, "teams", problem, team(m))
	out.Title = t.Name + " · " + v.Org.Name
	out.Crumbs = append(out.Crumbs, view.Crumb{Text: t.Name})
	return out, nil
}

// changeTeam answers after a change of the team of the path.
func (p *pages) changeTeam(v *page.Visit, c identity.TeamChange) (page.Answer, error) {
	err := p.Identity.ChangeTeam(v.Context(), v.Who, v.Org, v.Param("team"), c)
	return page.Changed(v, err, at(v).path("teams", v.Param("team")), p.teamPage)
}

func (p *pages) editTeam(v *page.Visit) (page.Answer, error) {
	return p.changeTeam(v, identity.TeamChange{DisplayName: v.Form("displayName"), Description: v.Form("description")})
}

func (p *pages) changeTeamMember(v *page.Visit) (page.Answer, error) {
	return p.changeTeam(v, identity.TeamChange{Member: strings.TrimSpace(v.Form("member")), Action: v.Form("action")})
}

func (p *pages) grantTeam(v *page.Visit) (page.Answer, error) {
	to, err := permission(v)
	if err != nil {
		return page.Changed(v, err, "", p.teamPage)
	}
	project, name, _ := strings.Cut(strings.TrimSpace(v.Form("stack")), "/")
	return p.changeTeam(v, identity.TeamChange{Grants: []identity.StackGrant{{Project: project, Stack: name, Permission: to}}})
}

func (p *pages) deleteTeam(v *page.Visit) (page.Answer, error) {
	err := p.Identity.DeleteTeam(v.Context(), v.Org.ID, v.Param("team"))
	return page.Changed(v, err, at(v).path("teams"), p.teamPage)
}
