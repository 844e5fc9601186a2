package account

import (
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/links"
)

// providerCookie is the name of the cookie that ties a sign-in at an identity provider to the browser.
const providerCookie = "sign-in"

// goToProvider sends the browser to an identity provider. It answers a link, because the page's policy
// permits forms only to this site, also through redirects. Another site that opens an invitation in the browser, and
// begins a sign-in with it, must not make the user join: visitors who come from elsewhere see the invitation first.
func (p *pages) goToProvider(v *page.Visit) (view.Page, error) {
	next := page.SafeNext(v.Query("next"))
	if next == links.InvitationPath && fromElsewhere(v) {
		return view.Page{}, page.GoTo(next)
	}
	return p.leave(v, next, openid.Attempt{Next: next, Invitation: p.opened(v), Confirm: v.SignedIn()})
}

// connect sends the browser to an identity provider, to let the user sign in there from now on. Another
// site that signs the browser in at the provider as an attacker must not also connect that account:
// visitors who come from elsewhere see their settings.
func (p *pages) connect(v *page.Visit) (view.Page, error) {
	if fromElsewhere(v) {
		return view.Page{}, page.GoTo("/user/settings")
	}
	return p.leave(v, "/user/settings", openid.Attempt{Next: "/user/settings", UserID: v.Who.User.ID})
}

// fromElsewhere reports whether a page of another site sent the visitor.
func fromElsewhere(v *page.Visit) bool {
	from := v.R.Header.Get("Sec-Fetch-Site")
	return from == "cross-site" || from == "same-site"
}

func (p *pages) leave(v *page.Visit, next string, a openid.Attempt) (view.Page, error) {
	address, cookie, err := p.Providers.Start(v.Context(), v.Param("provider"), a)
	if fault.KindOf(err) == fault.KindNotFound {
		return view.Page{}, err
	}
	if err != nil {
		answer, err := again(err, func(problem string) view.Page { return p.loginPage(v, next, problem) })
		if err != nil {
			return view.Page{}, err
		}
		return view.Page{}, page.Instead(answer)
	}
	return view.Page{}, page.Instead(page.See(address).Cookie(p.site.Secret(providerCookie, cookie, time.Now().Add(openid.Lasts))))
}

// fromProvider receives the browser with the provider's answer.
func (p *pages) fromProvider(v *page.Visit) (view.Page, error) {
	id := v.Param("provider")
	done, err := p.Providers.Finish(v.Context(), id, p.site.SecretOf(v, providerCookie), v.Query)
	if fault.KindOf(err) == fault.KindNotFound {
		return view.Page{}, err
	}
	next := page.SafeNext(done.Next)
	var answer page.Answer
	switch {
	case err != nil:
		err = p.refuse(v, signin.WayProvider, id, err)
	case done.UserID != "" && done.UserID != v.Who.User.ID:
		err = fault.Forbidden("You signed out, or in as another user, before the account could be connected. Sign in, and connect it again.")
	case done.UserID != "":
		answer, err = p.changed(v, p.Identity.Connect(v.Context(), v.Who.User, done.External))
	default:
		answer, err = p.admit(v, done, next)
	}
	if err != nil {
		answer, err = again(err, func(problem string) view.Page { return p.loginPage(v, next, problem) })
	}
	if err != nil {
		return view.Page{}, err
	}
	return view.Page{}, page.Instead(answer.Cookie(p.site.Secret(providerCookie, "", time.Time{})))
}

// admit signs in a user whom a provider has confirmed.
func (p *pages) admit(v *page.Visit, done openid.Finished, next string) (page.Answer, error) {
	who, err := p.Identity.FromProvider(v.Context(), done.External)
	if err != nil {
		return page.Answer{}, p.refuse(v, signin.WayProvider, done.External.Provider+": "+done.External.Subject, err)
	}
	if next, err = p.joinFirst(v, who, next, done.Invitation); err != nil {
		return page.Answer{}, err
	}
	proof, err := p.SignIn.Vouch(v.Context(), who.User.ID, signin.WayProvider, done.External.Provider, v.Address())
	if err != nil {
		return page.Answer{}, err
	}
	proof.Confirmed = done.Confirmed
	return p.open(v, proof, next)
}

// refuse records a failed sign-in, if the visitor and not the server is the cause.
func (p *pages) refuse(v *page.Visit, way, who string, err error) error {
	switch fault.KindOf(err) {
	case fault.KindUnauthenticated, fault.KindForbidden:
		return p.SignIn.Refuse(v.Context(), way, who, v.Address(), err)
	default:
		return err
	}
}

func (p *pages) disconnect(v *page.Visit) (page.Answer, error) {
	return page.See("/user/settings"), p.Identity.Disconnect(v.Context(), v.Who.User, v.Form("issuer"), v.Form("subject"))
}
