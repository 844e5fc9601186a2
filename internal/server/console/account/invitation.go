package account

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

const (
	// invitationCookie is the name of the cookie that keeps the secret of an invitation's link.
	invitationCookie = "invitation"
	// openedField is the field of the forms that says which invitation the visitor has seen.
	openedField = "invitation"
	// invitationLasts is the time for which the browser keeps it.
	invitationLasts = time.Hour
	// maxSecret bounds the secret, because a cookie contains it.
	maxSecret = 200
)

var (
	errNoInvitation = fault.NotFound("Open the link of the invitation in this browser.")
	errProvider     = fault.Forbidden("This server creates users when they sign in at its identity provider. Sign in there.")
	errReplaced     = fault.Forbidden("This browser opened another invitation meanwhile. You joined no organization: open the link of the invitation again.")
	errSignedIn     = fault.Conflict("You are signed in. Join as this user, or sign out before you create another one.")
)

// invitation shows an invitation. The first visit moves the secret of the link to a cookie, so that no address that the
// browser shows or sends later contains it.
func (p *pages) invitation(v *page.Visit) (view.Page, error) {
	secret := v.Query("key")
	if secret == "" {
		return p.invitationPage(v, "")
	}
	if len(secret) > maxSecret {
		return view.Page{}, errNoInvitation
	}
	cookie := p.site.Secret(invitationCookie, secret, time.Now().Add(invitationLasts))
	return view.Page{}, page.Instead(page.See(links.InvitationPath).Cookie(cookie))
}

// invited is what the page about an invitation shows.
type invited struct {
	store.Invitation
	Opened      string // see [pages.opened]
	User        string // login of the visitor, or ""
	Member      bool   // whether the visitor belongs to the organization
	Providers   []openid.Config
	Login, Name string // the form
}

// signsUp reports whether the visitor can create a user.
func (i invited) signsUp() bool { return !i.Member && i.User == "" && len(i.Providers) == 0 }

// offer says who invites the visitor to what.
func (i invited) offer() string {
	as := map[string]string{
		identity.RoleAdmin: ", as an administrator", identity.RoleBillingManager: ", as a billing manager", identity.RoleCollaborator: ", as a stack collaborator",
	}[i.Role]
	return i.Inviter + " invites you to the organization " + i.Organization + as + "."
}

func (p *pages) invitationPage(v *page.Visit, problem string) (view.Page, error) {
	i, err := p.findInvitation(v)
	if err != nil {
		return view.Page{}, err
	}
	m := invited{Invitation: i, Opened: p.opened(v), User: v.Who.User.Login, Providers: p.Providers.Providers(), Login: v.Form("login"), Name: v.Form("name")}
	m.Member = v.Who.Roles[i.OrgID] != ""
	return view.Page{Title: "Invitation", Layout: view.Gate, Body: invitationBody(m, problem)}, nil
}

// findInvitation returns the invitation whose link the visitor has opened.
func (p *pages) findInvitation(v *page.Visit) (store.Invitation, error) {
	i, err := p.Invitations.Find(v.Context(), p.secretOf(v))
	return i, p.refuseLink(v, err)
}

func (p *pages) secretOf(v *page.Visit) string { return p.site.SecretOf(v, invitationCookie) }

// opened identifies the invitation that the browser keeps, without its secret; "" for none.
func (p *pages) opened(v *page.Visit) string {
	secret := p.secretOf(v)
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// sameInvitation returns an error if a form of [pages.invitation] showed another invitation than the browser keeps now:
// another tab, or another site, can open one that the visitor has not seen.
func (p *pages) sameInvitation(v *page.Visit) error {
	if opened := p.opened(v); opened != "" && opened != v.Form(openedField) {
		return errReplaced
	}
	return nil
}

// forget is an answer after which the browser no longer keeps the secret.
func (p *pages) forget(a page.Answer) page.Answer {
	return a.Cookie(p.site.Secret(invitationCookie, "", time.Time{}))
}

// refuseLink records the use of a link that lets no visitor join.
func (p *pages) refuseLink(v *page.Visit, err error) error {
	switch kind := fault.KindOf(err); {
	case kind == fault.KindNotFound && p.secretOf(v) == "":
		return errNoInvitation
	case kind == fault.KindNotFound, kind == fault.KindForbidden:
		return p.SignIn.Refuse(v.Context(), signin.WayInvitation, v.Who.User.Login, v.Address(), err)
	default:
		return err
	}
}

// accept lets the visitor join the organization.
func (p *pages) accept(v *page.Visit) (page.Answer, error) {
	if err := p.sameInvitation(v); err != nil {
		return page.Answer{}, err
	}
	i, err := p.Invitations.Accept(v.Context(), v.Who.User, p.secretOf(v))
	switch fault.KindOf(err) {
	case fault.KindConflict:
		return page.Changed(v, err, "", p.invitationPage)
	case "":
		return p.forget(page.See(links.Path(i.Organization))), err
	}
	return page.Answer{}, p.refuseLink(v, err)
}

// signUp creates a user who joins the organization, and signs the user in. Where an identity provider knows the users,
// they come from there.
func (p *pages) signUp(v *page.Visit) (page.Answer, error) {
	switch {
	case len(p.Providers.Providers()) > 0:
		return page.Answer{}, errProvider
	case v.SignedIn():
		return page.Answer{}, errSignedIn
	}
	if err := p.sameInvitation(v); err != nil {
		return page.Answer{}, err
	}
	newcomer := invitations.Newcomer{Login: v.Form("login"), Name: v.Form("name")}
	u, err := p.Invitations.SignUp(v.Context(), newcomer, p.secretOf(v))
	switch fault.KindOf(err) {
	case fault.KindConflict, fault.KindInvalid:
		return page.Changed(v, err, "", p.invitationPage)
	case "":
	default:
		return page.Answer{}, p.refuseLink(v, err)
	}
	if err != nil {
		return page.Answer{}, err
	}
	answer, err := p.open(v, signin.Proof{User: u, Way: signin.WayInvitation}, "/user/settings")
	return p.forget(answer), err
}

// joinFirst lets a user whom a provider has confirmed, and who belongs to no organization, use the invitation for whose
// sake the user has signed in. It returns where the user goes next. Others see the invitation first. begun identifies the
// invitation with which the sign-in began: another site can open one for another organization meanwhile, which the user
// has not seen.
func (p *pages) joinFirst(v *page.Visit, who identity.Principal, next, begun string) (string, error) {
	if next != links.InvitationPath || len(who.Roles) > 0 || who.User.SiteAdmin {
		return next, nil
	}
	if opened := p.opened(v); opened != "" && opened != begun {
		return "", errReplaced
	}
	i, err := p.Invitations.Accept(v.Context(), who.User, p.secretOf(v))
	if err != nil {
		return "", p.refuseLink(v, err)
	}
	return links.Path(i.Organization), nil
}
