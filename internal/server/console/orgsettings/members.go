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

// The values of the parameter show of the list of members.
const (
	administrators = "administrators"
	noTeam         = "no-team"
)

// roles are the roles that members can have.
var roles = []view.Option{
	{Value: identity.RoleMember, Text: "Member"},
	{Value: identity.RoleAdmin, Text: "Administrator"},
	{Value: identity.RoleBillingManager, Text: "Billing manager"},
	{Value: identity.RoleCollaborator, Text: "Stack collaborator"},
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
	identity.MemberList
	Self          string // id of the visitor
	Words, Filter string // of the list
	First, Next   string // paths of other pages
	Permission    store.Permission
	membersForms
	// Invitations are those that wait, for administrators.
	Invitations []invitations.Listed
	Now         time.Time
	provider    func(issuer string) string
}

// membersForms are the forms of the page, with what is wrong with them.
type membersForms struct {
	Login, Role, problem string // of a new member
	For, Days, invite    string // of an invitation
	// Link is that of the invitation Made, which the page shows once.
	Link string
	Made store.Invitation
}

// newForms are the forms as they are at first.
func newForms() membersForms { return membersForms{Role: identity.RoleMember, Days: "7"} }

// show returns the path of the list with another filter.
func (m membersModel) show(filter string) string {
	of := url.Values{}
	if m.Words != "" {
		of.Set("q", m.Words)
	}
	if filter != "" {
		of.Set("show", filter)
	}
	return strings.TrimSuffix(m.path("members")+"?"+of.Encode(), "?")
}

// nothing says why the list is empty.
func (m membersModel) nothing() string {
	if m.Words != "" {
		return "No login, name, email address or team contains " + view.Visible(m.Words) + "."
	}
	return "No member of the organization matches the filter."
}

func (m membersModel) you(u identity.ListedMember) string {
	if u.UserID == m.Self {
		return ", you"
	}
	return ""
}

// ways says with what a member signs in, to administrators.
func (m membersModel) ways(u identity.ListedMember) string {
	if !m.Admin {
		return ""
	}
	var list []string
	if u.Passkey {
		list = append(list, "passkey")
	}
	for _, issuer := range u.Issuers {
		list = append(list, m.provider(issuer))
	}
	if len(list) == 0 && u.Token {
		list = append(list, "token only")
	}
	return sentence(list, "nothing yet")
}

func query(text string) string { return url.QueryEscape(text) }

func (p *pages) members(v *page.Visit) (view.Page, error) {
	return p.membersPage(v, newForms(), "")
}

func (p *pages) membersPage(v *page.Visit, forms membersForms, problem string) (view.Page, error) {
	m := membersModel{
		place: at(v), membersForms: forms, Self: v.Who.User.ID, Words: strings.TrimSpace(v.Query("q")), Filter: v.Query("show"), Permission: v.Org.StackPermission,
		Now: time.Now(), provider: p.Provider,
	}
	filter := store.MemberFilter{OrgID: v.Org.ID, Words: m.Words, Teams: true, NoTeam: m.Filter == noTeam, After: v.Query("after"), Limit: membersShown}
	if m.Filter == administrators {
		filter.Role = identity.RoleAdmin
	}
	var err error
	if m.MemberList, err = p.Identity.ListMembers(v.Context(), filter); err != nil {
		return view.Page{}, err
	}
	if m.Admin {
		if m.Invitations, err = p.Invitations.List(v.Context(), v.Org.ID); err != nil {
			return view.Page{}, err
		}
	}
	here := view.Filters{Path: m.path("members"), Values: url.Values{"q": {m.Words}, "show": {m.Filter}}, Parameters: []string{"q", "show"}, Place: "after"}
	if filter.After != "" {
		m.First = here.With()
	}
	if m.More {
		m.Next = here.With("after", m.List[len(m.List)-1].Login)
	}
	return p.settingsPage(v, "members", problem, members(m))
}

func (p *pages) addMember(v *page.Visit) (page.Answer, error) {
	forms := newForms()
	forms.Login, forms.Role = strings.TrimSpace(v.Form("login")), v.Form("role")
	_, err := p.Identity.AddMember(v.Context(), v.Org, forms.Login, forms.Role)
	return page.Changed(v, err, at(v).path("members"), func(v *page.Visit, problem string) (view.Page, error) {
		forms.problem = problem
		return p.membersPage(v, forms, "")
	})
}

// changedMember answers after a change of a member.
func (p *pages) changedMember(v *page.Visit, err error) (page.Answer, error) {
	return page.Changed(v, err, page.Back(v, at(v).path("members")), func(v *page.Visit, problem string) (view.Page, error) {
		return p.membersPage(v, newForms(), problem)
	})
}

// setRole changes the role of a member. Who gives up the own role of an administrator cannot undo that.
func (p *pages) setRole(v *page.Visit) (page.Answer, error) {
	login, role := v.Param("user"), v.Form("role")
	was, err := p.Identity.Role(v.Context(), v.Org, login)
	if err == nil {
		err = p.Identity.SetRole(v.Context(), v.Org, login, role)
	}
	a, failed := p.changedMember(v, err)
	if err == nil && was != role && login != v.Who.User.Login {
		a = a.Undo(login+" is now: "+strings.ToLower(roleName(role))+".", at(v).path("members", login, "role"), "role", was)
	}
	return a, failed
}

func (p *pages) removeMember(v *page.Visit) (page.Answer, error) {
	err := p.Identity.RemoveMember(v.Context(), v.Org, v.Param("user"))
	if err == nil && v.Param("user") == v.Who.User.Login {
		return page.See("/"), nil
	}
	return p.changedMember(v, err)
}
