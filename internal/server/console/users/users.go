// Package users contains the pages with which administrators of the server manage its users.
package users

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

// shown is the number of users on a page.
const shown = 50

// Deps are the services behind the pages.
type Deps struct {
	Identity *identity.Service
	SignIn   *signin.Service
}

type pages struct{ Deps }

const all = "/-/server/users"

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const one = all + "/{user}"
	site.View(all, page.SiteAdmin, p.list)
	site.View(one, page.SiteAdmin, p.show)
	site.Action(one+"/disable", page.Fresh(page.SiteAdmin), p.disable)
	site.Action(one+"/enable", page.Fresh(page.SiteAdmin), p.enable)
	site.Action(one+"/hand-over", page.Fresh(page.SiteAdmin), p.handOver)
	site.Action(one+"/end-sessions", page.SiteAdmin, p.endSessions)
	site.Action(one+"/delete", page.Fresh(page.SiteAdmin), p.remove)
}

// path returns the path of a page about a user.
func path(login string, more ...string) string {
	return links.Path(append([]string{"-", "server", "users", login}, more...)...)
}

type listModel struct {
	List        []identity.UserSummary
	Words       string // of the filter
	First, Next string // paths of other pages
}

func (p *pages) list(v *page.Visit) (view.Page, error) {
	m := listModel{Words: strings.TrimSpace(v.Query("q"))}
	list, more, err := p.Identity.Users(v.Context(), m.Words, v.Query("after"), shown)
	if err != nil {
		return view.Page{}, err
	}
	m.List = list
	of := url.Values{}
	if m.Words != "" {
		of.Set("q", m.Words)
	}
	if v.Query("after") != "" {
		m.First = all + "?" + of.Encode()
	}
	if more {
		of.Set("after", list[len(list)-1].Login)
		m.Next = all + "?" + of.Encode()
	}
	return view.ServerPage("Users", "users", "", listBody(m)), nil
}

// userModel is what the page about a user shows.
type userModel struct {
	identity.UserSummary
	Holdings identity.Holdings
	Sessions int64
	Fresh    bool
	Here     string // the path of the page, to which a sign-in returns
	To       string // the form
	// wrong is what is wrong with the forms, by their names; "confirm" is a field.
	wrong page.Wrong
}

// organizations returns the names of the user's organizations in order.
func organizations(u identity.UserSummary) []string { return slices.Sorted(maps.Keys(u.Roles)) }

func (p *pages) show(v *page.Visit) (view.Page, error) { return p.userPage(v, nil) }

func (p *pages) userPage(v *page.Visit, wrong page.Wrong) (view.Page, error) {
	login := v.Param("user")
	u, err := p.Identity.UserSummary(v.Context(), login)
	if err != nil {
		return view.Page{}, err
	}
	m := userModel{UserSummary: u, Fresh: v.Session.Fresh(time.Now()), Here: page.Here(v, path(login)), To: v.Form("to"), wrong: wrong}
	if m.Holdings, err = p.Identity.Holdings(v.Context(), v.Who, login); err != nil {
		return view.Page{}, err
	}
	sessions, err := p.SignIn.Sessions(v.Context(), u.ID)
	m.Sessions = int64(len(sessions))
	problem := wrong[""]
	if m.Disabled() { // without the form
		problem = cmp.Or(problem, wrong["disable"])
	}
	out := view.ServerPage(u.Login, "users", problem, userBody(m))
	out.Bar, out.Object = nil, &view.Object{Icon: "user", Project: "Users", Name: u.Login, Badges: marks(m.UserSummary), Facts: facts(m)}
	return out, err
}

// holdingIcon is the icon of a kind of what users own.
func holdingIcon(kind store.HoldingKind) string {
	switch kind {
	case store.HeldStack:
		return "stacks"
	case store.HeldSchedule:
		return "clock"
	case store.HeldWebhook:
		return "hook"
	case store.HeldIntegration:
		return "branch"
	case store.HeldEnvironment:
		return "folder"
	default:
		return "key"
	}
}

// changed answers after a change of a user. A problem is shown next to a field of the form.
func (p *pages) changed(v *page.Visit, err error, next, field string) (page.Answer, error) {
	return page.Changed(v, err, next, func(v *page.Visit, problem string) (view.Page, error) {
		return p.userPage(v, page.Wrong{field: problem})
	})
}

func (p *pages) disable(v *page.Visit) (page.Answer, error) {
	err := v.Who.CheckSuccessor(successor(v))
	if err == nil {
		_, err = p.Identity.DisableUser(v.Context(), v.Who, v.Param("user"), successor(v))
	}
	return p.changed(v, err, path(v.Param("user")), "disable")
}

// successor returns the login in the form of the user who takes over, or "".
func successor(v *page.Visit) string { return strings.TrimSpace(v.Form("to")) }

func (p *pages) enable(v *page.Visit) (page.Answer, error) {
	return p.changed(v, p.Identity.EnableUser(v.Context(), v.Param("user")), path(v.Param("user")), "")
}

func (p *pages) handOver(v *page.Visit) (page.Answer, error) {
	err := v.Who.CheckSuccessor(successor(v))
	if err == nil {
		_, err = p.Identity.HandOver(v.Context(), v.Who, v.Param("user"), successor(v))
	}
	return p.changed(v, err, path(v.Param("user")), "hand-over")
}

func (p *pages) endSessions(v *page.Visit) (page.Answer, error) {
	u, err := p.Identity.UserByLogin(v.Context(), v.Param("user"))
	if err == nil {
		_, err = p.SignIn.EndAll(v.Context(), u)
	}
	return p.changed(v, err, path(v.Param("user")), "")
}

func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	err, field := fault.Invalid("This is not the login of the user."), "confirm"
	if v.Form("confirm") == v.Param("user") {
		field = "delete"
		err = v.Who.CheckSuccessor(successor(v))
	}
	if err == nil {
		_, err = p.Identity.DeleteUser(v.Context(), v.Who, v.Param("user"), successor(v))
	}
	return p.changed(v, err, all, field)
}
