package account

import (
	"errors"
	"net/http"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/store"
)

var settingsTabs = []view.Tab{{Text: "Settings", Href: "/user/settings"}, {Text: "Access tokens", Href: "/user/settings/tokens"}}

func tabsAt(at int) []view.Tab {
	tabs := append([]view.Tab{}, settingsTabs...)
	tabs[at].Current = true
	return tabs
}

// you is what the settings page shows about the user.
type you struct {
	User        store.User
	Sessions    []signin.Session
	Current     string // id of the session
	Way         string // on which the session began
	Fresh       bool
	Passkeys    []store.Passkey
	Origin      string // of the pages at which passkeys work, or ""
	Identities  []store.Identity
	Providers   []openid.Config
	Preferences preferences
}

// onlyWay reports whether an invitation has created the user, who has nothing yet with which to sign in again.
func (y you) onlyWay() bool {
	return y.Way == signin.WayInvitation && len(y.Passkeys) == 0 && len(y.Identities) == 0
}

// provider returns the name of an identity's provider. The operator can have removed it from the file.
func (y you) provider(issuer string) string {
	for _, p := range y.Providers {
		if p.Issuer == issuer {
			return p.Name
		}
	}
	return issuer
}

func (p *pages) settings(v *page.Visit) (view.Page, error) { return p.settingsPage(v, "") }

func (p *pages) settingsPage(v *page.Visit, problem string) (view.Page, error) {
	ctx, id := v.Context(), v.Who.User.ID
	y := you{
		User: v.Who.User, Current: v.Session.ID, Way: v.Session.Way, Fresh: v.Session.Fresh(time.Now()), Origin: p.Passkeys.Origin(), Providers: p.Providers.Providers(),
	}
	var err1, err2, err3 error
	y.Sessions, err1 = p.SignIn.Sessions(ctx, id)
	y.Passkeys, err2 = p.Passkeys.List(ctx, id)
	y.Identities, err3 = p.Identity.Identities(ctx, id)
	if y.Preferences = preferencesOf(v); y.Preferences.sent {
		y.Preferences.Problem, problem = problem, ""
	}
	return view.Page{Title: "Your settings", Section: "you", Bar: &view.Bar{Title: y.User.Login, Count: "your settings"}, Tabs: tabsAt(0), Body: settings(y, problem)}, errors.Join(err1, err2, err3)
}

func (p *pages) endSession(v *page.Visit) (page.Answer, error) {
	return page.See("/user/settings"), p.SignIn.End(v.Context(), v.Who.User, v.Param("session"), signin.Ended)
}

func (p *pages) endOthers(v *page.Visit) (page.Answer, error) {
	return page.See("/user/settings"), p.SignIn.EndOthers(v.Context(), v.Who.User, v.Session.ID)
}

// tokensShown is the number of tokens on a page.
const tokensShown = 100

func (p *pages) tokens(v *page.Visit) (view.Page, error) { return p.tokensPage(v, "", "") }

func (p *pages) tokensPage(v *page.Visit, made, problem string) (view.Page, error) {
	list, more, err := p.Identity.Tokens(v.Context(), store.TokenFilter{Kind: store.PersonalToken, UserID: v.Who.User.ID, Limit: tokensShown})
	return view.Page{
		Title: "Access tokens", Section: "you", Bar: &view.Bar{Title: "Access tokens"}, Tabs: tabsAt(1),
		Body: tokens(list, more, made, problem, p.APIURL, v.Session.Fresh(time.Now())),
	}, err
}

func (p *pages) createToken(v *page.Visit) (page.Answer, error) {
	text, _, err := p.Identity.CreateToken(v.Context(), identity.NewTokenSpec{
		Kind: store.PersonalToken, Description: v.Form("description"), UserID: v.Who.User.ID, CreatedBy: v.Who.User.ID,
		Expires: view.Expiry(v.Form("expires"), time.Now()),
	})
	if status, _ := web.Classify(err); err != nil && status == http.StatusBadRequest {
		again, err := p.tokensPage(v, "", page.Sentence(err))
		return page.Again(again), err
	}
	if err != nil {
		return page.Answer{}, err
	}
	made, err := p.tokensPage(v, text, "")
	return page.Once(made), err
}

func (p *pages) revokeToken(v *page.Visit) (page.Answer, error) {
	err := p.Identity.DeleteToken(v.Context(), v.Param("token"), func(t store.Token) bool {
		return t.Kind == store.PersonalToken && t.UserID == v.Who.User.ID
	})
	return page.See("/user/settings/tokens"), err
}
