package account

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/store"
)

// preferencesPath is the address of the form.
const preferencesPath = "/user/settings/preferences"

// preferences are how the user wants to see the console.
type preferences struct {
	Scheme, Density, Zone string
	Keys                  bool
	Problem               string // with the zone, or ""
	sent                  bool   // the form was sent, and refused
}

// preferencesOf returns what the user has chosen. Those of a form that was refused are the ones of the form.
func preferencesOf(v *page.Visit) preferences {
	cookie := func(name string) string {
		c, err := v.R.Cookie(name)
		if err != nil {
			return ""
		}
		return c.Value
	}
	u := v.Who.User
	p := preferences{Scheme: u.Scheme, Density: u.Density, Zone: u.Zone, Keys: cookie(page.KeysCookie) != "off"}
	if p.Scheme == "" {
		p.Scheme = cookie(page.ThemeCookie)
	}
	if p.sent = v.R.URL.Path == preferencesPath; p.sent {
		p.Scheme, p.Density, p.Zone, p.Keys = v.Form("theme"), v.Form("density"), v.Form("zone"), v.Form("keys") == "on"
	}
	return p
}

// savePreferences stores the preferences with the user. Those that a page needs before the sign-in, and the keys, which
// belong to a keyboard, are also cookies.
func (p *pages) savePreferences(v *page.Visit) (page.Answer, error) {
	keys, scheme := "off", v.Form("theme")
	if v.Form("keys") == "on" {
		keys = "on"
	}
	if scheme != "light" && scheme != "dark" {
		scheme = "system"
	}
	u := store.User{ID: v.Who.User.ID, Zone: strings.TrimSpace(v.Form("zone")), Density: v.Form("density"), Scheme: scheme}
	failure := p.Identity.SetPreferences(v.Context(), u)
	answer, err := page.Changed(v, failure, "/user/settings", p.settingsPage)
	if failure == nil {
		answer = answer.Cookie(p.site.Preference(page.ThemeCookie, scheme)).Cookie(p.site.Preference(page.KeysCookie, keys))
	}
	return answer, err
}
