package openid

import (
	"cmp"
	"slices"
	"strings"

	"workflowagent/internal/server/identity"
)

// claims are the claims of a verified token.
type claims map[string]any

func (c claims) text(name string) string {
	text, _ := c[name].(string)
	return text
}

// texts returns a claim that is a list of texts, or one text.
func (c claims) texts(name string) (list []string) {
	switch v := c[name].(type) {
	case string:
		return []string{v}
	case []any:
		for _, item := range v {
			if text, ok := item.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}

// email returns the address of the user, which the provider must have verified. Otherwise, users
// could choose the domain that lets them in.
func (c claims) email() string {
	if verified := c["email_verified"]; verified != true && verified != "true" {
		return ""
	}
	return c.text("email")
}

// lacks reports whether a claim is missing that decides about the user.
func (p *provider) lacks(c claims) bool {
	_, groups := c[p.GroupsClaim]
	_, email := c["email"]
	byGroup := len(p.AllowGroups) > 0 || slices.ContainsFunc(p.Roles, func(r Role) bool { return r.Group != "" }) ||
		slices.ContainsFunc(p.Teams, func(t Team) bool { return t.Group != "" })
	return byGroup && !groups || len(p.AllowDomains) > 0 && !email
}

// external returns what the provider says about a user.
func (p *provider) external(subject string, c claims) identity.External {
	groups := c.texts(p.GroupsClaim)
	e := identity.External{
		Issuer: p.Issuer, Subject: subject, Provider: p.Name,
		Login: p.login(c), Name: c.text("name"), Email: c.email(), Allowed: p.allows(c.email(), groups),
		Roles: map[string]string{},
	}
	for _, r := range p.Roles {
		have := e.Roles[r.Organization]
		if (r.Group == "" || slices.Contains(groups, r.Group)) && (have == "" || stronger(r.Role, have)) {
			have = r.Role
		}
		e.Roles[r.Organization] = have
	}
	e.Teams = p.teams(groups)
	return e
}

// teams returns the roles in all teams for which the provider decides, of a user of groups.
func (p *provider) teams(groups []string) []identity.ExternalTeam {
	type name struct{ organization, team string }
	roles := map[name]string{}
	for _, t := range p.Teams {
		n := name{t.Organization, t.Team}
		have := roles[n]
		if (t.Group == "" || slices.Contains(groups, t.Group)) && (have == "" || stronger(t.Role, have)) {
			have = t.Role
		}
		roles[n] = have
	}
	var list []identity.ExternalTeam
	for n, role := range roles {
		list = append(list, identity.ExternalTeam{Organization: n.organization, Team: n.team, Role: role})
	}
	slices.SortFunc(list, func(a, b identity.ExternalTeam) int {
		return cmp.Or(cmp.Compare(a.Organization, b.Organization), cmp.Compare(a.Team, b.Team))
	})
	return list
}

func (p *provider) login(c claims) string {
	if login := c.text(p.LoginClaim); login != "" {
		return login
	}
	name, _, _ := strings.Cut(c.email(), "@")
	return name
}

// allows reports whether the provider's user may use this server.
func (p *provider) allows(email string, groups []string) bool {
	if p.AllowEveryone || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(p.AllowGroups, g) }) {
		return true
	}
	// A second at sign could hide another domain: with "a@evil.com@example.com", mail goes to either.
	name, domain, _ := strings.Cut(email, "@")
	return name != "" && slices.Contains(p.AllowDomains, strings.ToLower(domain))
}

// stronger compares roles, which are listed from the strongest to the weakest.
func stronger(a, b string) bool {
	order := identity.Roles()
	return slices.Index(order, a) < slices.Index(order, b)
}
