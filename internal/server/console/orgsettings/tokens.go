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

const (
	// tokensShown is the number of tokens on a page.
	tokensShown = 50
	// soon is the time before the expiry of a token at which the list marks it.
	soon = 7 * 24 * time.Hour
)

// tokenList is a part of the tokens of an organization or a team.
type tokenList struct {
	List        []store.Token
	First, Next string // paths of other pages
	// Path is the path below which the tokens are.
	Path []string
	Now  time.Time
}

// tokenList reads the selected tokens, whose pages are at a path.
func (p *pages) tokenList(v *page.Visit, f store.TokenFilter, path ...string) (tokenList, error) {
	l := tokenList{Path: append(path, "tokens"), Now: time.Now()}
	f.Limit, f.Contains = tokensShown, v.Query("q")
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

// expiry returns the mark of a token that expires soon or has expired, or "".
func (l tokenList) expiry(t store.Token) string {
	switch {
	case t.ExpiresAt.IsZero() || t.ExpiresAt.After(l.Now.Add(soon)):
		return ""
	case t.ExpiresAt.After(l.Now):
		return "expires soon"
	default:
		return "expired"
	}
}

type tokensModel struct {
	place
	tokenList
	Filter string
}

func (p *pages) tokens(v *page.Visit) (view.Page, error) { return p.tokensPage(v, "") }

func (p *pages) tokensPage(v *page.Visit, problem string) (view.Page, error) {
	list, err := p.tokenList(v, store.TokenFilter{Kind: store.OrgToken, OrgID: v.Org.ID})
	return settingsPage(v, "tokens", problem, tokens(tokensModel{at(v), list, v.Query("q")})), err
}

func (p *pages) createToken(v *page.Visit) (page.Answer, error) {
	return p.newToken(v, identity.NewTokenSpec{Kind: store.OrgToken, Admin: v.Form("admin") == "on"}, "tokens", p.tokensPage)
}

func (p *pages) createTeamToken(v *page.Visit) (page.Answer, error) {
	t, err := p.Identity.Team(v.Context(), v.Org.ID, v.Param("team"))
	if err != nil {
		return page.Answer{}, err
	}
	return p.newToken(v, identity.NewTokenSpec{Kind: store.TeamToken, TeamID: t.ID}, "teams", p.teamPage)
}

// newToken creates a token and shows it once, as a page of a part of the settings.
func (p *pages) newToken(v *page.Visit, spec identity.NewTokenSpec, part string, again func(v *page.Visit, problem string) (view.Page, error)) (page.Answer, error) {
	spec.OrgID, spec.CreatedBy = v.Org.ID, v.Who.User.ID
	spec.Name, spec.Description = strings.TrimSpace(v.Form("name")), v.Form("description")
	spec.Expires = view.Expiry(v.Form("expires"), time.Now())
	var text string
	err := fault.Invalid("The token needs a name.")
	if spec.Name != "" {
		text, _, err = p.Identity.CreateToken(v.Context(), spec)
	}
	if err != nil {
		return page.Changed(v, err, "", again)
	}
	out := settingsPage(v, part, "", newToken(at(v), spec.Name, text, p.APIURL))
	out.Title = "New token"
	return page.Once(out), nil
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
