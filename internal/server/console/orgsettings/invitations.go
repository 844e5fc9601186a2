package orgsettings

import (
	"strconv"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity/invitations"
)

// lifetimes are the times after which forms let invitations expire, in days.
var lifetimes = []view.Option{{Value: "1", Text: "1 day"}, {Value: "7", Text: "7 days"}, {Value: "30", Text: "30 days"}}

// invite makes an invitation and shows its link once, above the members.
func (p *pages) invite(v *page.Visit) (page.Answer, error) {
	days, err := strconv.Atoi(v.Form("days"))
	if err != nil || days < 1 || days > 30 {
		days = int(invitations.Lifetime / (24 * time.Hour))
	}
	forms := newForms()
	spec := invitations.Spec{Role: v.Form("role"), For: v.Form("for"), Lifetime: time.Duration(days) * 24 * time.Hour}
	secret, made, err := p.Invitations.Make(v.Context(), v.Who, v.Org, spec)
	if err != nil {
		return page.Changed(v, err, "", func(v *page.Visit, problem string) (view.Page, error) {
			forms.Role, forms.For, forms.Days, forms.invite = spec.Role, spec.For, strconv.Itoa(days), problem
			return p.membersPage(v, forms, "")
		})
	}
	forms.Link, forms.Made = p.Console.Invitation(secret), made
	out, err := p.membersPage(v, forms, "")
	return page.Once(out), err
}

func (p *pages) revokeInvitation(v *page.Visit) (page.Answer, error) {
	return p.changedMember(v, p.Invitations.Revoke(v.Context(), v.Org, v.Param("invitation")))
}
