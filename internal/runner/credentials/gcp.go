package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"workflowagent/internal/redact"
)

const (
	fileGCP  = "gcp-credentials.json"
	gcpScope = "https://www.googleapis.com/auth/cloud-platform"
	jwtType  = "urn:ietf:params:oauth:token-type:jwt"
)

// gcpConfig is the configuration from which Google's libraries obtain and renew access tokens.
type gcpConfig struct {
	Type             string            `json:"type"`
	Audience         string            `json:"audience"`
	SubjectTokenType string            `json:"subject_token_type"`
	TokenURL         string            `json:"token_url"`
	ImpersonationURL string            `json:"service_account_impersonation_url"`
	Impersonation    *gcpImpersonation `json:"service_account_impersonation,omitempty"`
	UniverseDomain   string            `json:"universe_domain,omitempty"`
	Source           gcpSource         `json:"credential_source"`
}

type gcpImpersonation struct {
	Lifetime int64 `json:"token_lifetime_seconds"`
}

type gcpSource struct {
	File string `json:"file"`
}

const defaultUniverse = "googleapis.com"

// configGCP returns the configuration for the settings.
func (k *Keeper) configGCP(vars map[string]string) (gcpConfig, error) {
	s := k.opts.Settings.GCP
	universe := vars["GOOGLE_CLOUD_UNIVERSE_DOMAIN"]
	c := gcpConfig{Type: "external_account", SubjectTokenType: jwtType, Source: gcpSource{k.path(fileToken)}}
	if universe == "" {
		universe = defaultUniverse
	} else {
		c.UniverseDomain = universe
	}
	c.Audience = fmt.Sprintf("//iam.%s/projects/%s/locations/global/workloadIdentityPools/%s/providers/%s", universe, s.ProjectID, s.WorkloadPoolID, s.ProviderID)
	c.TokenURL = "https://sts." + universe + "/v1/token"
	c.ImpersonationURL = "https://iamcredentials." + universe + "/v1/projects/-/serviceAccounts/" + url.PathEscape(s.ServiceAccount) + ":generateAccessToken"
	if s.TokenLifetime != "" {
		d, err := time.ParseDuration(s.TokenLifetime)
		if err != nil {
			return c, fmt.Errorf("operationContext.oidc.gcp.tokenLifetime: %q: use a form like 30m or 1h", s.TokenLifetime)
		}
		c.Impersonation = &gcpImpersonation{int64(d / time.Second)}
	}
	return c, nil
}

// fetchGCP checks that Google Cloud accepts the identity, and configures the libraries to obtain
// access tokens themselves.
func (k *Keeper) fetchGCP(ctx context.Context, c *caller, env Env, identity token, out io.Writer) error {
	s := k.opts.Settings.GCP
	config, err := k.configGCP(env.Vars)
	if err != nil {
		return err
	}
	if err := k.checkGCP(ctx, c, config, identity); err != nil {
		return err
	}
	data, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encoding the Google Cloud configuration: %w", err)
	}
	if err := k.writeFile(fileGCP, data); err != nil {
		return err
	}
	vars := map[string]string{
		"GOOGLE_CREDENTIALS": string(data), "GOOGLE_APPLICATION_CREDENTIALS": k.path(fileGCP),
		"CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE": k.path(fileGCP),
	}
	if s.Region != "" {
		vars["GOOGLE_REGION"], vars["CLOUDSDK_COMPUTE_REGION"] = s.Region, s.Region
	}
	k.set(vars)
	fmt.Fprintf(out, "Google Cloud: can act as the service account %s\n", s.ServiceAccount)
	return nil
}

// checkGCP makes the two calls with which the libraries obtain an access token.
func (k *Keeper) checkGCP(ctx context.Context, c *caller, config gcpConfig, identity token) error {
	form := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {config.Audience}, "scope": {gcpScope},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"subject_token_type":   {jwtType}, "subject_token": {identity.text},
	}
	federated := ""
	err := c.do(ctx, request{
		doing: "Google Cloud: exchanging the identity at the provider " + config.Audience,
		url:   config.TokenURL, kind: "application/x-www-form-urlencoded", body: form.Encode(),
		transfer: func(status int, body []byte) (err error) {
			federated, err = parseGCP(status, body, identity.claims)
			return errors.Join(err, k.opts.Mask(redact.Secret{Name: "the Google Cloud access token", Value: federated}))
		},
	})
	if err != nil {
		return err
	}
	ask := map[string]any{"scope": []string{gcpScope}}
	if config.Impersonation != nil {
		ask["lifetime"] = strconv.FormatInt(config.Impersonation.Lifetime, 10) + "s"
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return fmt.Errorf("encoding a request to Google Cloud: %w", err)
	}
	return c.do(ctx, request{
		doing: "Google Cloud: acting as the service account " + k.opts.Settings.GCP.ServiceAccount,
		url:   config.ImpersonationURL, kind: "application/json", bearer: federated, body: string(body),
		transfer: func(status int, body []byte) error {
			access, err := parseGCP(status, body, identity.claims)
			return errors.Join(err, k.opts.Mask(redact.Secret{Name: "the Google Cloud access token", Value: access}))
		},
	})
}

// parseGCP reads an answer of Google's token service or of its service account credentials API.
func parseGCP(status int, body []byte, c claims) (access string, err error) {
	var answer struct {
		Exchanged    string          `json:"access_token"`
		Impersonated string          `json:"accessToken"`
		Error        json.RawMessage `json:"error"`
		Description  string          `json:"error_description"`
	}
	_ = json.Unmarshal(body, &answer) // a malformed answer has no member
	if access = answer.Exchanged + answer.Impersonated; status == 200 && access != "" {
		return access, nil
	}
	r := &refusal{status: status, host: "Google Cloud", text: answer.Description}
	var api struct{ Status, Message string }
	if json.Unmarshal(answer.Error, &r.code) != nil && json.Unmarshal(answer.Error, &api) == nil {
		r.code, r.text = api.Status, api.Message
	}
	r.advice, r.again = advise(gcpRules, r.code, r.text, c)
	return "", r
}
