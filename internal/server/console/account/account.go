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
	"workflowagent/internal/server/signin"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the pages.
type Deps struct {
	Identity *identity.Service
	SignIn   *signin.Service
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
	site.Action("/-/logout", page.Anyone, p.logout)
	site.View("/user/settings", page.SignedIn, p.settings)
	site.Action("/user/settings/preferences", page.SignedIn, p.preferences)
	site.Action("/user/settings/sessions/{session}/end", page.SignedIn, p.endSession)
	site.Action("/user/settings/sessions/end", page.SignedIn, p.endOthers)
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
			return view.Page{}, page.GoTo(view.Path(o.Name))
		}
	}
	if len(v.Orgs()) > 0 {
		return view.Page{}, page.GoTo(view.Path(v.Orgs()[0].Name))
	}
	return view.Page{Title: "No organization", Body: noOrganization()}, nil
}

func (p *pages) login(v *page.Visit) (view.Page, error) {
	if v.SignedIn() && v.Session.Fresh(time.Now()) {
		return view.Page{}, page.GoTo(page.SafeNext(v.Query("next")))
	}
	return p.loginPage(v, page.SafeNext(v.Query("next")), ""), nil
}

func (p *pages) loginPage(v *page.Visit, next, problem string) view.Page {
	return view.Page{Title: "Sign in", Body: login(next, problem, p.site.URL(), v.Who.User.Login, p.SignIn.Tokens())}
}

func (p *pages) useToken(v *page.Visit) (page.Answer, error) {
	next := page.SafeNext(v.Form("next"))
	u, tokenID, err := p.SignIn.UseToken(v.Context(), v.Form("token"), v.Address())
	if err != nil {
		status, message := web.Classify(err)
		if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable {
			return page.Answer{}, err
		}
		return page.Again(p.loginPage(v, next, message)), nil
	}
	return p.open(v, u, signin.WayToken, tokenID, next)
}

// open starts a session and ends the one that the browser has.
func (p *pages) open(v *page.Visit, u store.User, way, tokenID, next string) (page.Answer, error) {
	cookie, session, err := p.SignIn.Open(v.Context(), u.ID, way, tokenID, v.Address(), v.R.UserAgent())
	if err != nil {
		return page.Answer{}, err
	}
	if v.SignedIn() {
		if err := p.SignIn.End(v.Context(), v.Who.User.ID, v.Session.ID); err != nil {
			return page.Answer{}, err
		}
	}
	return page.See(next).Cookie(p.site.SessionCookie(cookie, session.Created.Add(signin.Longest))), nil
}

func (p *pages) link(v *page.Visit) (view.Page, error) {
	return view.Page{Title: "Sign in", Body: link(v.Query("key"), page.SafeNext(v.Query("next")), "")}, nil
}

func (p *pages) useLink(v *page.Visit) (page.Answer, error) {
	next := page.SafeNext(v.Form("next"))
	u, err := p.SignIn.UseLink(v.Context(), v.Form("key"), v.Address())
	if err != nil {
		status, message := web.Classify(err)
		if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable {
			return page.Answer{}, err
		}
		return page.Again(view.Page{Title: "Sign in", Body: link("", next, message)}), nil
	}
	return p.open(v, u, signin.WayLink, "", next)
}

func (p *pages) logout(v *page.Visit) (page.Answer, error) {
	if v.SignedIn() {
		if err := p.SignIn.End(v.Context(), v.Who.User.ID, v.Session.ID); err != nil {
			return page.Answer{}, err
		}
	}
	return page.See(page.LoginPath("")).Cookie(p.site.SessionCookie("", time.Time{})), nil
}
