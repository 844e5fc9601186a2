package providers

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/outbound"
)

var gcpLogin = Provider{
	Name:        "gcp-login",
	Description: "Logs in to Google Cloud: with OpenID Connect as a service account, or with an access token.",
	Inputs: encode(objectOf("the project, and either oidc or accessToken", []string{"project"}, fields{
		"project": map[string]any{"type": "number", "description": "the number of the project"},
		"oidc": objectOf("the service account to act as", []string{"workloadPoolId", "providerId", "serviceAccount"}, fields{
			"workloadPoolId":    textOf("the short id of the workload identity pool"),
			"providerId":        textOf("the short id of the provider in the pool"),
			"serviceAccount":    textOf("the e-mail address of the service account"),
			"region":            textOf("the location of the pool; global by default"),
			"tokenLifetime":     textOf("how long the access token is valid, at most 1h unless the organization's policy allows 12h; 1h by default"),
			"subjectAttributes": textsOf(subjectAttributes),
		}),
		"accessToken": objectOf("an access token that exists", []string{"accessToken"}, fields{
			"accessToken":    textOf("the access token"),
			"serviceAccount": textOf("the service account to act as, if any"),
			"tokenLifetime":  textOf("how long the token of the service account is valid"),
		}),
	})),
	Outputs: encode(objectOf("an access token", []string{"project", "accessToken", "tokenType"}, fields{
		"project":     map[string]any{"type": "number", "description": "the number of the project"},
		"accessToken": secretOf("the access token"),
		"tokenType":   textOf("the type of the access token"),
		"expiry":      textOf("when the access token expires, if that is known"),
	})),
	open:  openGCP,
	calls: true,
}

const (
	gcpTokens   = "https://sts.googleapis.com/v1/token"
	gcpAccounts = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"
	gcpScope    = "https://www.googleapis.com/auth/cloud-platform"
	gcpLongest  = 12 * time.Hour
)

var (
	gcpID      = newForm(`^[a-z0-9-]{1,64}$`)
	gcpAccount = newForm(`^[a-z0-9-]{1,100}@[a-z0-9.-]{1,150}$`)
)

// gcpAdvice explains the codes of Google that the provider knows.
var gcpAdvice = map[string]string{
	"invalid_grant":       "the issuer or the audience of the identity token differs from those of the pool's provider, or Google cannot fetch the issuer's keys",
	"invalid_target":      "the pool or its provider does not exist, or is disabled",
	"invalid_request":     "an input is not accepted; region must be the location of the pool, usually global",
	"unauthorized_client": "the condition of the pool's provider does not accept the identity token",
	"PERMISSION_DENIED":   "the identity may not act as the service account, or the account does not exist",
	"UNAUTHENTICATED":     "the access token is not valid",
	"INVALID_ARGUMENT":    "tokenLifetime is longer than the organization's policy allows",
	"NOT_FOUND":           "the service account does not exist",
}

func openGCP(ctx context.Context, c *Call) (wire.Value, error) {
	in := c.inputs()
	project := in.number("project")
	oidc, token := in.exclusive("oidc", "accessToken")
	out := map[string]wire.Value{"project": {Value: json.Number(project)}, "tokenType": plain("Bearer")}
	var access, account string
	var lifetime time.Duration
	if err := in.done(); err != nil {
		return wire.Value{}, err
	}
	if oidc != nil {
		pool, provider := oidc.like("workloadPoolId", gcpID, "my-pool"), oidc.like("providerId", gcpID, "my-provider")
		account = oidc.like("serviceAccount", gcpAccount, "name@project.iam.gserviceaccount.com")
		region, attributes := oidc.text("region"), oidc.texts("subjectAttributes")
		if region == "" {
			region = "global"
		}
		if !gcpID.MatchString(region) {
			oidc.fail("oidc.region does not have the form of global")
		}
		lifetime = oidc.duration("tokenLifetime", time.Second, gcpLongest, time.Hour)
		if err := oidc.done(); err != nil {
			return wire.Value{}, err
		}
		var err error
		access, err = c.federate(ctx, "//iam.googleapis.com/projects/"+project+"/locations/"+region+"/workloadIdentityPools/"+pool+"/providers/"+provider, attributes)
		if err != nil {
			return wire.Value{}, err
		}
	} else {
		access = token.required("accessToken")
		if token.text("serviceAccount") != "" {
			account = token.like("serviceAccount", gcpAccount, "name@project.iam.gserviceaccount.com")
		}
		lifetime = token.duration("tokenLifetime", time.Second, gcpLongest, time.Hour)
		if err := token.done(); err != nil {
			return wire.Value{}, err
		}
	}
	if account != "" {
		var expiry string
		var err error
		if access, expiry, err = c.impersonate(ctx, access, account, lifetime); err != nil {
			return wire.Value{}, err
		}
		out["expiry"] = plain(expiry)
	}
	out["accessToken"] = secret(access)
	return result(out), nil
}

// federate exchanges an identity token for an access token of a pool.
func (c *Call) federate(ctx context.Context, provider string, attributes []string) (string, error) {
	token, err := c.cloudToken(ctx, "gcp", attributes, exchangeLifetime)
	if err != nil {
		return "", err
	}
	form := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {provider}, "scope": {gcpScope},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:jwt"}, "subject_token": {token},
	}
	answer, err := c.do(ctx, outbound.Call{
		Method: "POST", URL: gcpTokens, Body: []byte(form.Encode()),
		Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
	})
	if err != nil {
		return "", err
	}
	var got struct {
		Access string `json:"access_token"`
		Error  string `json:"error"`
	}
	ok := decode(answer.Body, &got)
	switch {
	case answer.Status != 200:
		return "", c.refused("Google's token service", answer.Status, gcpAdvice[got.Error])
	case !ok || got.Access == "":
		return "", c.unexpected("Google's token service")
	}
	return got.Access, nil
}

// impersonate exchanges an access token for one of a service account.
func (c *Call) impersonate(ctx context.Context, access, account string, lifetime time.Duration) (token, expiry string, err error) {
	body, _ := json.Marshal(map[string]any{ // texts can be encoded
		"scope": []string{gcpScope}, "lifetime": strconv.Itoa(int(lifetime.Seconds())) + "s",
	})
	answer, err := c.do(ctx, outbound.Call{
		Method: "POST", URL: gcpAccounts + url.PathEscape(account) + ":generateAccessToken", Body: body,
		Header: map[string]string{"Content-Type": "application/json", "Accept": "application/json", "Authorization": "Bearer " + access},
	})
	if err != nil {
		return "", "", err
	}
	var got struct {
		Access string    `json:"accessToken"`
		Expiry time.Time `json:"expireTime"`
		Error  struct {
			Status string `json:"status"`
		} `json:"error"`
	}
	ok := decode(answer.Body, &got)
	switch {
	case answer.Status != 200:
		return "", "", c.refused("Google's service for credentials of service accounts", answer.Status, gcpAdvice[got.Error.Status])
	case !ok || got.Access == "":
		return "", "", c.unexpected("Google's service for credentials of service accounts")
	}
	return got.Access, got.Expiry.UTC().Format(time.RFC3339), nil
}
