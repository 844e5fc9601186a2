package providers

import (
	"context"
	"strings"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/identity/issuer"
)

var oidc = Provider{
	Name:        "oidc",
	Description: "Issues an identity token for an audience of your choice, which a service that trusts this server's second issuer accepts.",
	Inputs: encode(objectOf("what the token says", []string{"audience", "identityToken"}, fields{
		"audience":      textOf("the audience (claim aud), of at most 512 bytes"),
		"duration":      textOf("how long the token is valid: 1m to 1h; 1h by default"),
		"identityToken": objectOf("the form of the token", []string{"version"}, fields{"version": textOf("v2")}),
	})),
	Outputs: encode(secretOf("the signed token")),
	open:    openOIDC,
}

// openOIDC issues a token whose audience is of the author's choice. So it has a separate issuer and subject.
func openOIDC(ctx context.Context, c *Call) (wire.Value, error) {
	in := c.inputs()
	audience := in.required("audience")
	lifetime := in.duration("duration", time.Minute, time.Hour, time.Hour)
	if form := in.object("identityToken"); form == nil || form.text("version") != "v2" || form.done() != nil {
		in.fail("identityToken must be {version: v2}")
	}
	if len(audience) > issuer.MaxCustomAudience || strings.TrimSpace(audience) == "" {
		in.fail("audience must have 1 to %d bytes, and not only spaces", issuer.MaxCustomAudience)
	}
	if err := in.done(); err != nil {
		return wire.Value{}, err
	}
	others := map[string]any{
		"org": c.Org.Name, "org_id": c.Org.ID, "current_env": c.Current.String(), "current_env_id": c.Current.ID,
		"root_env": c.Root.String(), "actor": c.User,
	}
	if c.Root.ID != "" {
		others["root_env_id"] = c.Root.ID
	}
	token, err := c.sign(ctx, issuer.Claims{
		Subject:  "pulumi:org:" + c.Org.ID + ":env:" + c.Current.ID,
		Audience: audience, Lifetime: lifetime, Custom: true, Others: others,
	})
	return secret(token), err
}
