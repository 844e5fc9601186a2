package credentials

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"workflowagent/internal/redact"
)

// azureCloud is one of the separate clouds of Azure.
type azureCloud struct{ authority, management string }

var azurePublic = azureCloud{"https://login.microsoftonline.com", "https://management.azure.com"}

// azureClouds are the clouds by the names that ARM_ENVIRONMENT and AZURE_ENVIRONMENT can have.
var azureClouds = map[string]azureCloud{
	"usgovernment": {"https://login.microsoftonline.us", "https://management.usgovcloudapi.net"},
	"china":        {"https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"},
}

// azureCloudOf returns the cloud that the environment selects.
func azureCloudOf(vars map[string]string) azureCloud {
	cloud := azurePublic
	for _, name := range []string{"AZURE_ENVIRONMENT", "ARM_ENVIRONMENT"} {
		selected := strings.ToLower(vars[name])
		selected = strings.TrimSuffix(strings.TrimPrefix(selected, "azure"), "cloud")
		if c, ok := azureClouds[selected]; ok {
			cloud = c
		}
	}
	if host := strings.TrimRight(vars["AZURE_AUTHORITY_HOST"], "/"); host != "" {
		if !strings.Contains(host, "://") {
			host = "https://" + host
		}
		cloud.authority = host
		for _, c := range azureClouds {
			if c.authority == host {
				cloud = c
			}
		}
	}
	return cloud
}

// fetchAzure checks that Azure accepts the identity, and configures the libraries to obtain tokens
// themselves. Most Azure providers read ARM_OIDC_TOKEN and ARM_OIDC_TOKEN_FILE_PATH only once, and
// fail when that token has expired. They ask ARM_OIDC_REQUEST_URL each time.
func (k *Keeper) fetchAzure(ctx context.Context, c *caller, env Env, identity token, out io.Writer) error {
	s := k.opts.Settings.Azure
	cloud := azureCloudOf(env.Vars)
	form := url.Values{
		"client_id": {s.ClientID}, "scope": {cloud.management + "/.default"}, "grant_type": {"client_credentials"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {identity.text},
	}
	err := c.do(ctx, request{
		doing: "Azure: signing in as the application " + s.ClientID,
		url:   cloud.authority + "/" + url.PathEscape(s.TenantID) + "/oauth2/v2.0/token",
		kind:  "application/x-www-form-urlencoded", body: form.Encode(),
		transfer: func(status int, body []byte) error { return k.checkAzure(status, body, identity.claims) },
	})
	if err != nil {
		return err
	}
	local, err := k.serveTokens()
	if err != nil {
		return err
	}
	k.set(map[string]string{
		"ARM_CLIENT_ID": s.ClientID, "ARM_TENANT_ID": s.TenantID, "ARM_SUBSCRIPTION_ID": s.SubscriptionID,
		"ARM_USE_OIDC": "true", "ARM_OIDC_REQUEST_URL": local.url, "ARM_OIDC_REQUEST_TOKEN": local.bearer,
		// Providers that know only the names of GitHub.
		"ACTIONS_ID_TOKEN_REQUEST_URL": local.url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": local.bearer,
		// Azure's own libraries, which read the file again.
		"AZURE_CLIENT_ID": s.ClientID, "AZURE_TENANT_ID": s.TenantID, "AZURE_SUBSCRIPTION_ID": s.SubscriptionID,
		"AZURE_FEDERATED_TOKEN_FILE": k.path(fileToken),
	})
	fmt.Fprintf(out, "Azure: signed in as the application %s of the tenant %s\n", s.ClientID, s.TenantID)
	return nil
}

var azureCode = regexp.MustCompile(`^(AADSTS[0-9]+): ?(.*)`)

// checkAzure reads an answer of Azure's token endpoint.
func (k *Keeper) checkAzure(status int, body []byte, c claims) error {
	var answer struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(body, &answer) // a malformed answer has no member
	if err := k.opts.Mask(redact.Secret{Name: "the Azure access token", Value: answer.AccessToken}); err != nil {
		return err
	}
	if status == 200 && answer.AccessToken != "" {
		return nil
	}
	// The description continues with identifiers of the request.
	text, _, _ := strings.Cut(answer.Description, " Trace ID:")
	r := &refusal{status: status, host: "Azure", code: answer.Error, text: text}
	if m := azureCode.FindStringSubmatch(strings.ReplaceAll(text, "\r\n", " ")); m != nil {
		r.code, r.text = m[1], m[2]
	}
	r.advice, r.again = advise(azureRules, r.code, r.text, c)
	return r
}
