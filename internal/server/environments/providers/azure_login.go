package providers

import (
	"context"
	"time"

	"workflowagent/internal/esc/wire"
)

var azureLogin = Provider{
	Name:        "azure-login",
	Description: "Logs in to Azure: with an identity token, or with a client secret.",
	Inputs: encode(objectOf("the application, and how it logs in", []string{"clientId", "tenantId", "subscriptionId"}, fields{
		"clientId":          textOf("the id of the application"),
		"tenantId":          textOf("the id of the tenant"),
		"subscriptionId":    textOf("the id of the subscription"),
		"clientSecret":      textOf("the secret of the application, if it logs in with one"),
		"oidc":              flagOf("whether to log in with an identity token (default: false)"),
		"subjectAttributes": textsOf(subjectAttributes),
	})),
	Outputs: encode(objectOf("the inputs, and what logs in", []string{"clientId", "tenantId", "subscriptionId"}, fields{
		"clientId":       textOf("the id of the application"),
		"tenantId":       textOf("the id of the tenant"),
		"subscriptionId": textOf("the id of the subscription"),
		"clientSecret":   secretOf("the secret of the application, if it logs in with one"),
		"oidc":           objectOf("the login with an identity token", nil, fields{"token": secretOf("the identity token, which is valid for an hour")}),
	})),
	open: openAzure,
}

// azureLifetime is the lifetime of the token, which clients of Azure send themselves, some of them repeatedly.
const azureLifetime = time.Hour

func openAzure(ctx context.Context, c *Call) (wire.Value, error) {
	in := c.inputs()
	out := map[string]wire.Value{}
	for _, name := range []string{"clientId", "tenantId", "subscriptionId"} {
		out[name] = plain(in.required(name))
	}
	if text := in.text("clientSecret"); text != "" {
		out["clientSecret"] = secret(text)
	}
	useToken, attributes := in.flag("oidc", false), in.texts("subjectAttributes")
	if err := in.done(); err != nil || !useToken {
		return result(out), err
	}
	token, err := c.cloudToken(ctx, "azure", attributes, azureLifetime)
	if err != nil {
		return wire.Value{}, err
	}
	out["oidc"] = result(map[string]wire.Value{"token": secret(token)})
	return result(out), nil
}
