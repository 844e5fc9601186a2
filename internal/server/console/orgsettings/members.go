package orgsettings

import (
	"net/url"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/store"
)

// membersShown is the number of members on a page.
const membersShown = 50

// roles are the roles that members can have.
var roles = []view.Option{
	{Value: identity.RoleMember, Text: "member"},
	{Value: identity.RoleAdmin, Text: "administrator"},
	{Value: identity.RoleBillingManager, Text: "billing manager"},
	{Value: identity.RoleCollaborator, Text: "stack collaborator"},
}

func roleName(role string) string {
	for _, r := range roles {
		if r.Value == role {
			return r.Text
		}
	}
	return role
}

type membersModel struct {
	place
	List        []store.Member
	Self        string // id of the visitor
	Words       string // of the filter
	First, Next string // paths of other pages
	Login, Role string // the form
	// Invitations are those that wait, for administrators.
	Invitations []invitations.Listed
	Now         time.Time
}

func (p *pages) members(v *page.Visit) (view.Page, error) {
	return p.membersPage(v, membersModel{Role: identity.RoleMember}, "")
}

func (p *pages) membersPage(v *page.Visit, m membersModel, problem string) (view.Page, error) {
	words := strings.TrimSpace(v.Query("q"))
	list, more, err := p.Identity.Members(v.Context(), v.Org.ID, words, v.Query("after"), membersShown)
	if err != nil {
		return view.Page{}, err
	}
	m.place, m.List, m.Self, m.Words, m.Now = at(v), list, v.Who.User.ID, words, time.Now()
	if m.Admin {
		if m.Invitations, err = p.Invitations.List(v.Context(), v.Org.ID); err != nil {
			return view.Page{}, err
		}
	}
	of := url.Values{}
	if words != "" {
		of.Set("q", words)
	}
	if v.Query("after") != "" {
		m.First = m.path("members") + "?" + of.Encode()
	}
	if more {
		of.Set("after", list[len(list)-1].Login)
		m.Next = m.path("members") + "?" + of.Encode()
	}
	return settingsPage(v, "members", problem, members(m)), nil
}

func (p *pages) addMember(v *page.Visit) (page.Answer, error) {
	m := membersModel{Login: strings.TrimSpace(v.Form("login")), Role: v.Form("role")}
	_, err := p.Identity.AddMember(v.Context(), v.Org, m.Login, m.Role)
	return page.Changed(v, err, at(v).path("members"), func(v *page.Visit, problem string) (view.Page, error) { return p.membersPage(v, m, problem) })
}

// changedMember answers after a change of a member.
func (p *pages) changedMember(v *page.Visit, err error) (page.Answer, error) {
	return page.Changed(v, err, page.Back(v, at(v).path("members")), func(v *page.Visit, problem string) (view.Page, error) {
		return p.membersPage(v, membersModel{Role: identity.RoleMember}, problem)
	})
}

func (p *pages) setRole(v *page.Visit) (page.Answer, error) {
	return p.changedMember(v, p.Identity.SetRole(v.Context(), v.Org, v.Param("user"), v.Form("role")))
}

func (p *pages) removeMember(v *page.Visit) (page.Answer, error) {
	err := p.Identity.RemoveMember(v.Context(), v.Org, v.Param("user"))
	if err == nil && v.Param("user") == v.Who.User.Login {
		return page.See("/"), nil
	}
	return p.changedMember(v, err)
}
