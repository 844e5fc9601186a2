// Package account contains the pages about the visitor: sign-in and sign-out, sessions, access
// tokens, preferences, and the sign-in of the pulumi CLI.
package account

import (
	"net/http"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/identity/signin/passkey"
	"workflowagent/internal/server/links"
)

// Deps are the services behind the pages.
type Deps struct {
	Identity  *identity.Service
	SignIn    *signin.Service
	Providers *openid.Service
	Passkeys  *passkey.Service
	// Invitations let visitors join organizations.
	Invitations *invitations.Service
	// APIURL is the server's address for clients, without a trailing slash.
	APIURL string
}

type pages struct {
	Deps
	site *page.Site
}

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d, site}
	site.View("/", page.Anyone, p.start)
	site.View("/-/login", page.Anyone, p.login)
	site.Action("/-/login", page.Anyone, p.useToken)
	site.View("/-/login/link", page.Anyone, p.link)
	site.Action("/-/login/link", page.Anyone, p.useLink)
	site.View("/-/login/with/{provider}", page.Anyone, p.goToProvider)
	site.View("/-/login/with/{provider}/return", page.Anyone, p.fromProvider)
	site.Raw("/-/login/passkey", page.Anyone, p.askForPasskey)
	site.Action("/-/login/passkey", page.Anyone, p.usePasskey)
	site.Action("/-/logout", page.Anyone, p.logout)
	site.View(links.InvitationPath, page.Anyone, p.invitation)
	site.Action(links.InvitationPath+"/accept", page.SignedIn, p.accept)
	site.Action(links.InvitationPath+"/sign-up", page.Anyone, p.signUp)
	site.View("/user/settings", page.SignedIn, p.settings)
	site.Action(preferencesPath, page.SignedIn, p.savePreferences)
	site.Action("/user/settings/sessions/{session}/end", page.SignedIn, p.endSession)
	site.Action("/user/settings/sessions/end", page.SignedIn, p.endOthers)
	site.Raw("/user/settings/passkeys/new", page.Fresh(page.SignedIn), p.askForNewPasskey)
	site.Action("/user/settings/passkeys", page.Fresh(page.SignedIn), p.addPasskey)
	site.Action("/user/settings/passkeys/{passkey}/rename", page.SignedIn, p.renamePasskey)
	site.Action("/user/settings/passkeys/{passkey}/remove", page.Fresh(page.SignedIn), p.removePasskey)
	site.View("/user/settings/connect/{provider}", page.Fresh(page.SignedIn), p.connect)
	site.Action("/user/settings/identities/remove", page.Fresh(page.SignedIn), p.disconnect)
	site.View("/user/settings/tokens", page.SignedIn, p.tokens)
	site.Action("/user/settings/tokens", page.Fresh(page.SignedIn), p.createToken)
	site.Action("/user/settings/tokens/{token}/revoke", page.SignedIn, p.revokeToken)
	site.View("/cli-login", page.Fresh(page.SignedIn), p.cli)
	site.Action("/cli-login", page.Fresh(page.SignedIn), p.cliLogin)
	site.View("/welcome/cli", page.Anyone, p.welcome)
}

// start sends the visitor to the organization, or to the sign-in.
func (p *pages) start(v *page.Visit) (view.Page, error) {
	if !v.SignedIn() {
		return view.Page{}, page.GoTo(page.LoginPath(""))
	}
	for _, o := range v.Orgs() {
		if o.Name == v.Who.User.DefaultOrg {
			return view.Page{}, page.GoTo(links.Path(o.Name))
		}
	}
	if home := v.Home(); home != "" {
		return view.Page{}, page.GoTo(home)
	}
	return view.Page{Title: "No organization", Bar: &view.Bar{Title: "No organization"}, Body: noOrganization()}, nil
}

func (p *pages) login(v *page.Visit) (view.Page, error) {
	if v.SignedIn() && v.Session.Fresh(time.Now()) {
		return view.Page{}, page.GoTo(page.SafeNext(v.Query("next")))
	}
	return p.loginPage(v, page.SafeNext(v.Query("next")), ""), nil
}

// ways are the ways to sign in that a page offers.
type ways struct {
	Providers []openid.Config
	// PasskeyOrigin is the origin of the pages at which passkeys work, or "".
	PasskeyOrigin string
	Tokens        bool
}

func (p *pages) loginPage(v *page.Visit, next, problem string) view.Page {
	w := ways{Providers: p.Providers.Providers(), PasskeyOrigin: p.Passkeys.Origin(), Tokens: p.SignIn.Tokens()}
	return view.Page{Title: "Sign in", Layout: view.Gate, Body: login(next, problem, p.site.URL(), v.Who.User.Login, w)}
}

// again answers a failed sign-in with the page for another attempt. Failures of the server remain
// errors.
func again(err error, show func(problem string) view.Page) (page.Answer, error) {
	status, _ := web.Classify(err)
	if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable {
		return page.Answer{}, err
	}
	if status < http.StatusInternalServerError {
		status = http.StatusUnprocessableEntity
	}
	return page.Failed(status, show(page.Sentence(err))), nil
}

func (p *pages) useToken(v *page.Visit) (page.Answer, error) {
	next := page.SafeNext(v.Form("next"))
	proof, err := p.SignIn.UseToken(v.Context(), v.Form("token"), v.Address())
	if err != nil {
		return again(err, func(problem string) view.Page { return p.loginPage(v, next, problem) })
	}
	return p.open(v, proof, next)
}

// open starts a session and ends the one that the browser has.
func (p *pages) open(v *page.Visit, proof signin.Proof, next string) (page.Answer, error) {
	cookie, session, err := p.SignIn.Open(v.Context(), proof, v.Address(), v.R.UserAgent())
	if err != nil {
		return page.Answer{}, err
	}
	if v.SignedIn() {
		if err := p.SignIn.End(v.Context(), v.Who.User, v.Session.ID, signin.Replaced); err != nil {
			return page.Answer{}, err
		}
	}
	return page.See(next).Cookie(p.site.SessionCookie(cookie, session.Ends)), nil
}

func (p *pages) link(v *page.Visit) (view.Page, error) {
	return view.Page{Title: "Sign in", Layout: view.Gate, Body: link(v.Query("key"), page.SafeNext(v.Query("next")), "")}, nil
}

func (p *pages) useLink(v *page.Visit) (page.Answer, error) {
	next := page.SafeNext(v.Form("next"))
	proof, err := p.SignIn.UseLink(v.Context(), v.Form("key"), v.Address())
	if err != nil {
		return again(err, func(problem string) view.Page {
			return view.Page{Title: "Sign in", Layout: view.Gate, Body: link("", next, problem)}
		})
	}
	return p.open(v, proof, next)
}

func (p *pages) logout(v *page.Visit) (page.Answer, error) {
	if v.SignedIn() {
		if err := p.SignIn.End(v.Context(), v.Who.User, v.Session.ID, signin.SignedOut); err != nil {
			return page.Answer{}, err
		}
	}
	return page.See(page.LoginPath("")).Cookie(p.site.SessionCookie("", time.Time{})), nil
}
