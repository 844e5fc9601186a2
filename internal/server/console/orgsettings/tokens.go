package orgsettings

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// tokensShown is the number of tokens on a page.
const tokensShown = 50

// tokenList is a part of the tokens of an organization or a team.
type tokenList struct {
	List        []store.Token
	First, Next string // paths of other pages
	// Path is the path below which the tokens are.
	Path   []string
	Filter string
	Now    time.Time
	makers map[string]string // logins by id
}

// tokenList reads the selected tokens, whose pages are at a path.
func (p *pages) tokenList(v *page.Visit, f store.TokenFilter, path ...string) (tokenList, error) {
	l := tokenList{Path: append(path, "tokens"), Now: time.Now()}
	f.Limit, f.Contains = tokensShown, v.Query("q")
	l.Filter = f.Contains
	after, id, ok := strings.Cut(v.Query("after"), "-")
	if ok {
		micros, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return l, fault.Invalid("The position in the list is not valid.")
		}
		f.After = store.Token{ID: id, CreatedAt: time.UnixMicro(micros)}
	}
	var more bool
	var err error
	if l.List, more, err = p.Identity.Tokens(v.Context(), f); err != nil {
		return l, err
	}
	makers := make([]string, len(l.List))
	for i, t := range l.List {
		makers[i] = t.CreatedBy
	}
	if l.makers, err = p.Identity.Logins(v.Context(), makers); err != nil {
		return l, err
	}
	here, filter := v.R.URL.EscapedPath(), ""
	if f.Contains != "" {
		filter = "&q=" + url.QueryEscape(f.Contains)
	}
	if ok {
		l.First = here + "?" + strings.TrimPrefix(filter, "&")
	}
	if more {
		last := l.List[len(l.List)-1]
		l.Next = here + "?after=" + strconv.FormatInt(last.CreatedAt.UnixMicro(), 10) + "-" + url.QueryEscape(last.ID) + filter
	}
	return l, nil
}

// about says what a token may and who made it.
func (l tokenList) about(t store.Token) string {
	text := map[bool]string{true: "administers the organization", false: "member"}[t.Admin]
	if t.TeamID != "" {
		text = "team"
	}
	if maker := l.makers[t.CreatedBy]; maker != "" {
		text += ", made by " + maker
	}
	text += ", " + t.CreatedAt.UTC().Format("2 Jan 2006")
	if t.Description != "" {
		text += ": " + t.Description
	}
	return text
}

type tokensModel struct {
	place
	tokenList
	All    int64
	form   tokenForms
	Secret secret
	API    string
}

// tokenForms is the form for a new token, with what is wrong with it.
type tokenForms struct {
	Name, Description, Expires string
	Admin                      bool
	problem                    string
}

func newTokenForms() tokenForms { return tokenForms{Expires: "90"} }

// secret is a new token, which a page shows once.
type secret struct{ Name, Text string }

func (p *pages) tokens(v *page.Visit) (view.Page, error) {
	return p.tokensPage(v, newTokenForms(), secret{})
}

func (p *pages) tokensPage(v *page.Visit, form tokenForms, made secret) (view.Page, error) {
	list, err := p.tokenList(v, store.TokenFilter{Kind: store.OrgToken, OrgID: v.Org.ID})
	if err != nil {
		return view.Page{}, err
	}
	counts, err := p.Identity.CountSettings(v.Context(), v.Org.ID)
	if err != nil {
		return view.Page{}, err
	}
	return p.settingsPage(v, "tokens", "", tokens(tokensModel{at(v), list, counts["tokens"], form, made, p.APIURL}))
}

func (p *pages) createToken(v *page.Visit) (page.Answer, error) {
	return p.newToken(v, identity.NewTokenSpec{Kind: store.OrgToken, Admin: v.Form("admin") == "on"}, p.tokensPage)
}

func (p *pages) createTeamToken(v *page.Visit) (page.Answer, error) {
	t, err := p.Identity.Team(v.Context(), v.Org.ID, v.Param("team"))
	if err != nil {
		return page.Answer{}, err
	}
	return p.newToken(v, identity.NewTokenSpec{Kind: store.TeamToken, TeamID: t.ID}, func(v *page.Visit, form tokenForms, made secret) (view.Page, error) {
		forms := newTeamForms()
		forms.token, forms.Secret = form, made
		return p.teamPage(v, forms, "")
	})
}

// newToken creates a token. show shows it once above the list, or what is wrong with the form.
func (p *pages) newToken(v *page.Visit, spec identity.NewTokenSpec, show func(v *page.Visit, form tokenForms, made secret) (view.Page, error)) (page.Answer, error) {
	spec.OrgID, spec.CreatedBy = v.Org.ID, v.Who.User.ID
	spec.Name, spec.Description = strings.TrimSpace(v.Form("name")), v.Form("description")
	spec.Expires = view.Expiry(v.Form("expires"), time.Now())
	var text string
	err := fault.Invalid("The token needs a name.")
	if spec.Name != "" {
		text, _, err = p.Identity.CreateToken(v.Context(), spec)
	}
	if err != nil {
		return page.Changed(v, err, "", func(v *page.Visit, problem string) (view.Page, error) {
			return show(v, tokenForms{spec.Name, spec.Description, v.Form("expires"), spec.Admin, problem}, secret{})
		})
	}
	out, err := show(v, newTokenForms(), secret{spec.Name, text})
	return page.Once(out), err
}

// revoke revokes a token that match accepts.
func (p *pages) revoke(v *page.Visit, match func(store.Token) bool, back string) (page.Answer, error) {
	return page.See(back), p.Identity.DeleteToken(v.Context(), v.Param("token"), match)
}

func (p *pages) revokeToken(v *page.Visit) (page.Answer, error) {
	match := func(t store.Token) bool { return t.Kind == store.OrgToken && t.OrgID == v.Org.ID }
	return p.revoke(v, match, at(v).path("tokens"))
}

func (p *pages) revokeTeamToken(v *page.Visit) (page.Answer, error) {
	team, err := p.Identity.Team(v.Context(), v.Org.ID, v.Param("team"))
	if err != nil {
		return page.Answer{}, err
	}
	match := func(t store.Token) bool { return t.Kind == store.TeamToken && t.TeamID == team.ID }
	return p.revoke(v, match, at(v).path("teams", team.Name))
}
