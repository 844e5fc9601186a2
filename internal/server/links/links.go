// Package links builds the paths of the console's pages, and their URLs for messages, answers of the API
// and webhooks. Clients of Pulumi Cloud build the same URLs themselves.
package links

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Console is the console's address for browsers, without a trailing slash. Its methods return ""
// if it is "".
type Console string

// Of returns the address of the console of a server whose clients use externalURL. The pulumi CLI
// applies the same rule: the console of api.X is app.X.
func Of(externalURL string) Console {
	u, err := url.Parse(externalURL)
	if err != nil {
		return Console(externalURL)
	}
	if rest, ok := strings.CutPrefix(u.Host, "api."); ok {
		u.Host = "app." + rest
	}
	return Console(u.Scheme + "://" + u.Host)
}

// Domain returns the host, with the port, that tells the pulumi CLI the address of the console in
// PULUMI_CONSOLE_DOMAIN.
func (c Console) Domain() string {
	u, err := url.Parse(string(c))
	if err != nil {
		return ""
	}
	return u.Host
}

// Derived reports whether the pulumi CLI finds the console without PULUMI_CONSOLE_DOMAIN.
func (c Console) Derived(externalURL string) bool {
	u, err := url.Parse(externalURL)
	return err == nil && strings.HasPrefix(u.Host, "api.") && Of(externalURL) == c
}

// SignInPath returns the path of the page that signs a user in once, with the link's secret.
func SignInPath(key string) string { return "/-/login/link?key=" + url.QueryEscape(key) }

// InvitationPath is the path of the page on which the holder of an invitation joins an organization.
const InvitationPath = "/-/invitation"

// Invitation returns the URL of an invitation with its secret, or only the path if the console's address is not known.
func (c Console) Invitation(secret string) string {
	return string(c) + InvitationPath + "?key=" + url.QueryEscape(secret)
}

// Stack returns the URL of a stack.
func (c Console) Stack(org, project, stack string) string { return c.path(org, project, stack) }

// Access returns the URL of the page with the permissions on a stack.
func (c Console) Access(org, project, stack string) string {
	return c.path(org, project, stack, "settings", "access")
}

// Update returns the URL of an update by its version.
func (c Console) Update(org, project, stack string, version int64) string {
	return c.path(org, project, stack, "updates", strconv.FormatInt(version, 10))
}

// Preview returns the URL of a preview.
func (c Console) Preview(org, project, stack, id string) string {
	return c.path(org, project, stack, "previews", id)
}

// Deployment returns the URL of a deployment by its version.
func (c Console) Deployment(org, project, stack string, version int64) string {
	return c.path(org, project, stack, "deployments", strconv.FormatInt(version, 10))
}

// GitHubApp returns the URL of the page that creates a GitHub App for an organization.
func (c Console) GitHubApp(org string) string {
	return c.path(org, "-", "settings", "integrations", "github-app")
}

func (c Console) path(segments ...string) string {
	if c == "" {
		return ""
	}
	return string(c) + Path(segments...)
}

// Path returns the path of a page from its unescaped segments.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// reserved are the first segments of the server's own paths.
var reserved = strings.Fields("api user users signin signup login logout claim welcome cli-login releases healthz readyz metrics oidc workflow " +
	"static assets favicon robots new")

// Reserved reports whether a name must not be the name of an organization or user, because the
// server's own pages use it.
func Reserved(name string) bool {
	return slices.Contains(reserved, strings.ToLower(name)) || strings.HasPrefix(name, "-")
}
