package providers

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"time"

	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/issuer"
)

// exchangeLifetime is the lifetime of a token that the server sends to another server at once.
const exchangeLifetime = 5 * time.Minute

// subjectAttributes is the description of an input of all login providers.
const subjectAttributes = "what the subject of the identity token names instead of the environment, in this order: rootEnvironment.name, " +
	"currentEnvironment.name, pulumi.user.login, pulumi.organization.login"

// audience returns the audience of tokens for a platform. It is the organization's name alone in the default project, and for
// platforms without a prefix.
func (c *Call) audience(platform string) string {
	if platform == "" || c.Current.Project == environments.DefaultProject {
		return c.Org.Name
	}
	return platform + ":" + c.Org.Name
}

// subject returns the subject of a token, which consists only of what the server knows itself. None of the names can contain a
// colon.
func (c *Call) subject(attributes []string) (string, error) {
	if len(attributes) == 0 {
		return "pulumi:environments:org:" + c.Org.Name + ":env:" + c.Current.attribute(), nil
	}
	values := map[string]string{
		"rootEnvironment.name": c.Root.attribute(), "currentEnvironment.name": c.Current.attribute(),
		"pulumi.user.login": c.User, "pulumi.organization.login": c.Org.Name,
	}
	parts := []string{"pulumi:environments:pulumi.organization.login", c.Org.Name}
	for _, name := range attributes {
		value, ok := values[name]
		switch {
		case !ok:
			return "", fault.Invalid("the provider %s: subjectAttributes can contain rootEnvironment.name, currentEnvironment.name, "+
				"pulumi.user.login and pulumi.organization.login", c.provider)
		case value == "" || strings.ContainsAny(value, ":"):
			return "", fault.Invalid("the provider %s: %s has no value, because no user opens the environment", c.provider, name)
		}
		parts = append(parts, name, value)
	}
	return strings.Join(parts, ":"), nil
}

// token returns an identity token of the environment whose definition contains fn::open.
func (c *Call) token(ctx context.Context, audience string, attributes []string, lifetime time.Duration, more map[string]any) (string, error) {
	subject, err := c.subject(attributes)
	if err != nil {
		return "", err
	}
	others := map[string]any{
		"org": c.Org.Name, "env": c.Current.attribute(), "current_env": c.Current.String(), "root_env": c.Root.String(), "trigger_user": c.User,
	}
	maps.Copy(others, more)
	return c.sign(ctx, issuer.Claims{Subject: subject, Audience: audience, Lifetime: lifetime, Others: others})
}

// cloudToken is [Call.token] for a cloud, which verifies it with the keys that the issuer publishes with https.
func (c *Call) cloudToken(ctx context.Context, platform string, attributes []string, lifetime time.Duration) (string, error) {
	if c.opts.Issuer != nil {
		if err := c.opts.Issuer.CheckClouds(); err != nil {
			return "", fault.Invalid("the provider %s needs an issuer of identity tokens with https, and this server's issuer is %s; "+
				"its operator must set external_url or oidc_issuer_url to an https URL", c.provider, c.opts.Issuer.URL())
		}
	}
	return c.token(ctx, c.audience(platform), attributes, lifetime, nil)
}

// sign signs a token, after it was recorded.
func (c *Call) sign(ctx context.Context, claims issuer.Claims) (string, error) {
	switch {
	case c.opts.Issuer == nil:
		return "", fault.Invalid("this server issues no identity tokens")
	case c.Current == (Environment{}):
		return "", c.unnamed("needs an identity token, which names an environment")
	}
	shown := claims.Audience
	if u, err := url.Parse(shown); err == nil && c.provider == externalName {
		shown = u.Scheme + "://" + u.Host // the rest of a URL is often a secret
	}
	err := c.Signing(ctx, Token{Environment: c.Current, Subject: claims.Subject, Audience: shown})
	if err != nil {
		return "", err
	}
	token, err := c.opts.Issuer.Issue(ctx, claims)
	return token.Text, err
}

// unnamed returns the error for a definition that is not known as that of an environment.
func (c *Call) unnamed(what string) error {
	return fault.Invalid("the provider %s %s whose definition contains fn::open::%s: save the definition as an environment, and import that", c.provider, what, c.provider)
}
