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

// invite makes an invitation and shows its link once.
func (p *pages) invite(v *page.Visit) (page.Answer, error) {
	days, err := strconv.Atoi(v.Form("days"))
	if err != nil || days < 1 || days > 30 {
		days = int(invitations.Lifetime / (24 * time.Hour))
	}
	spec := invitations.Spec{Role: v.Form("role"), For: v.Form("for"), Lifetime: time.Duration(days) * 24 * time.Hour}
	secret, made, err := p.Invitations.Make(v.Context(), v.Who, v.Org, spec)
	if err != nil {
		return p.changedMember(v, err)
	}
	out := settingsPage(v, "members", "", newInvitation(at(v), made, p.Console.Invitation(secret)))
	out.Title = "New invitation"
	return page.Once(out), nil
}

func (p *pages) revokeInvitation(v *page.Visit) (page.Answer, error) {
	return p.changedMember(v, p.Invitations.Revoke(v.Context(), v.Org, v.Param("invitation")))
}
