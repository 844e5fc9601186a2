package account

import (
	"errors"
	"net/http"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// parts are the pages with the settings of a user.
var parts = []view.Part{{Name: "tokens", Text: "Access tokens"}, {Name: "", Text: "Account"}}

// yourPage returns a page with the settings of the user.
func yourPage(v *page.Visit, title, part, problem string, content templ.Component) view.Page {
	tabs := view.Tabs(parts, part, func(name ...string) string { return links.Path(append([]string{"user", "settings"}, name...)...) })
	return view.Page{
		Title: title, Section: "you", Bar: &view.Bar{Title: "Your settings", Count: v.Who.User.Login},
		Body: view.FormPage("Your settings", tabs, problem, content, nil),
	}
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
	// NewPasskey is the name of a passkey that could not be added, because of passkeyProblem.
	NewPasskey, passkeyProblem string
}

// aboutPasskeys says what passkeys are for, or why there are none.
func (y you) aboutPasskeys() string {
	if y.Origin == "" {
		return "Browsers offer passkeys only at a domain with https, or at localhost."
	}
	return "A passkey signs you in with this device, a phone or a security key, unlocked by a PIN or a finger."
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

// settingsPage shows a problem next to the form of a new passkey, if that was sent, and above the page otherwise.
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
	if v.R.URL.Path == "/user/settings/passkeys" && y.Origin != "" {
		y.NewPasskey, y.passkeyProblem, problem = v.Form("name"), problem, ""
	}
	return yourPage(v, "Your settings", "", problem, settings(y)), errors.Join(err1, err2, err3)
}

func (p *pages) endSession(v *page.Visit) (page.Answer, error) {
	return page.See("/user/settings"), p.SignIn.End(v.Context(), v.Who.User, v.Param("session"), signin.Ended)
}

func (p *pages) endOthers(v *page.Visit) (page.Answer, error) {
	return page.See("/user/settings"), p.SignIn.EndOthers(v.Context(), v.Who.User, v.Session.ID)
}

// tokensShown is the number of tokens on a page.
const tokensShown = 100

// tokensModel are the tokens of the user, and the form for a new one.
type tokensModel struct {
	List                 []store.Token
	More, Fresh          bool
	Made, API            string // a new token, which the page shows once, and where to use it
	Description, Expires string
	problem              string
	Now                  time.Time
}

// count is the number of tokens, if all are shown.
func (m tokensModel) count() string {
	if m.More {
		return ""
	}
	return words.Number(len(m.List))
}

func (p *pages) tokens(v *page.Visit) (view.Page, error) {
	return p.tokensPage(v, tokensModel{Expires: "90"})
}

func (p *pages) tokensPage(v *page.Visit, m tokensModel) (view.Page, error) {
	list, more, err := p.Identity.Tokens(v.Context(), store.TokenFilter{Kind: store.PersonalToken, UserID: v.Who.User.ID, Limit: tokensShown})
	m.List, m.More, m.API, m.Now = list, more, p.APIURL, time.Now()
	m.Fresh = v.Session.Fresh(m.Now)
	return yourPage(v, "Access tokens", "tokens", "", tokens(m)), err
}

func (p *pages) createToken(v *page.Visit) (page.Answer, error) {
	text, _, err := p.Identity.CreateToken(v.Context(), identity.NewTokenSpec{
		Kind: store.PersonalToken, Description: v.Form("description"), UserID: v.Who.User.ID, CreatedBy: v.Who.User.ID,
		Expires: view.Expiry(v.Form("expires"), time.Now()),
	})
	if status, _ := web.Classify(err); err != nil && status == http.StatusBadRequest {
		again, err := p.tokensPage(v, tokensModel{Description: v.Form("description"), Expires: v.Form("expires"), problem: page.Sentence(err)})
		return page.Again(again), err
	}
	if err != nil {
		return page.Answer{}, err
	}
	made, err := p.tokensPage(v, tokensModel{Expires: "90", Made: text})
	return page.Once(made), err
}

func (p *pages) revokeToken(v *page.Visit) (page.Answer, error) {
	err := p.Identity.DeleteToken(v.Context(), v.Param("token"), func(t store.Token) bool {
		return t.Kind == store.PersonalToken && t.UserID == v.Who.User.ID
	})
	return page.See("/user/settings/tokens"), err
}
