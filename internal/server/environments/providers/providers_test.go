package providers

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"workflowagent/internal/dev/clouds"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// accounts are the clouds, which the process reaches by a proxy.
var accounts *clouds.Clouds

func TestMain(m *testing.M) {
	var err error
	if accounts, err = clouds.Start(clouds.Trust{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("HTTPS_PROXY", accounts.ProxyURL) // before the first request, which remembers it
	code := storetest.Main(m)
	accounts.Close()
	os.Exit(code)
}

var (
	acme = store.Organization{ID: "org-1", Name: "acme"}
	prod = Environment{ID: "env-1", Project: "app", Name: "prod"}
)

// site is a server with an issuer that others reach with https.
type site struct {
	*Service
	t      *testing.T
	issuer *issuer.Service
	roots  *x509.CertPool
	signed []Token
}

// newSite returns a site that can call the clouds, and 127.0.0.1 if the networks permit that.
func newSite(t *testing.T, networks ...string) *site {
	t.Helper()
	db := storetest.SQLite(t)
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertOrganization(store.Organization{ID: acme.ID, Name: acme.Name, CreatedAt: tx.Now()})
	}))
	mux := http.NewServeMux()
	documents := httptest.NewTLSServer(mux)
	t.Cleanup(documents.Close)
	s := &site{t: t, roots: x509.NewCertPool()}
	s.roots.AddCert(documents.Certificate())
	s.roots.AppendCertsFromPEM(accounts.CAPEM)
	secrets := must.Get(keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32)))(t)
	s.issuer = issuer.New(db, issuer.Options{Log: storetest.Log(), Secrets: secrets, URL: documents.URL + "/oidc", Audiences: []string{"jobs-only"}})
	must.OK(t, s.issuer.Maintain(t.Context()))
	serve := func(path string, document any) {
		mux.HandleFunc("GET /oidc"+path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(document) })
	}
	serve(issuer.ConfigurationPath, s.issuer.Configuration())
	serve(issuer.KeysPath, must.Get(s.issuer.KeySet(t.Context()))(t))
	accounts.Trust(func(trust *clouds.Trust) {
		*trust = clouds.Trust{Issuer: s.issuer.URL(), Audience: "aws:acme", Subject: "pulumi:environments:org:acme:env:app/prod", Roots: s.roots}
	})
	reach := outbound.Reach{Anywhere: true}
	if networks != nil {
		reach = outbound.Reach{}
		for _, n := range networks {
			if n != "" {
				reach.Internal = append(reach.Internal, netip.MustParsePrefix(n))
			}
		}
	}
	s.Service = New(Options{Issuer: s.issuer, Client: &outbound.Client{Roots: s.roots, Reach: reach}})
	return s
}

// open opens a provider of app/prod with inputs in JSON.
func (s *site) open(provider, inputs string, change ...func(*Call)) (wire.Value, error) {
	s.t.Helper()
	p, ok := Find(provider)
	if !ok {
		s.t.Fatalf("there is no provider %s", provider)
	}
	in := must.Get(valueOf([]byte(inputs), false))(s.t)
	c := Call{
		Inputs: in.Value.(map[string]wire.Value), Org: acme, Current: prod, Root: prod, User: "ann", Used: &Usage{},
		Signing: func(_ context.Context, t Token) error {
			s.signed = append(s.signed, t)
			return nil
		},
	}
	for _, do := range change {
		do(&c)
	}
	return s.Open(s.t.Context(), p, c)
}

// refuses opens a provider that must return an error, without anything that is planted.
func (s *site) refuses(provider, inputs, want string, change ...func(*Call)) {
	s.t.Helper()
	v, err := s.open(provider, inputs, change...)
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "planted") {
		s.t.Errorf("%s %.200s returned %v, %v, want %q", provider, inputs, v, err, want)
	}
}

// secretText returns a text in a value that must be a secret.
func (s *site) secretText(v wire.Value, path ...string) string {
	s.t.Helper()
	hidden := v.Secret
	for _, name := range path {
		members, _ := v.Value.(map[string]wire.Value)
		v = members[name]
		hidden = hidden || v.Secret
	}
	text, _ := v.Value.(string)
	if text == "" || !hidden {
		s.t.Errorf("%v is not a secret text: %+v", path, v)
	}
	return text
}

// claims verifies a token and returns its claims.
func (s *site) claims(text string) map[string]any {
	s.t.Helper()
	token := must.Get(jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.RS256}))(s.t)
	set := must.Get(s.issuer.KeySet(s.t.Context()))(s.t)
	var keys jose.JSONWebKeySet
	must.OK(s.t, json.Unmarshal(must.Get(json.Marshal(set))(s.t), &keys))
	var c map[string]any
	must.OK(s.t, token.Claims(&keys, &c))
	return c
}

func TestAWS(t *testing.T) {
	s := newSite(t)
	const inputs = `{"oidc":{"roleArn":"` + clouds.RoleARN + `","sessionName":"esc-ann","duration":"1h"}}`
	v := must.Get(s.open("aws-login", inputs))(t)
	calls := accounts.Calls()
	last := calls[len(calls)-1]
	got := []string{s.secretText(v, "accessKeyId"), s.secretText(v, "secretAccessKey"), s.secretText(v, "sessionToken")}
	if !slices.Equal(got, last.Tokens) || last.Form["DurationSeconds"] != "3600" || last.Form["RoleSessionName"] != "esc-ann" {
		t.Errorf("AWS gave %q for %v, and the provider returned %q", last.Tokens, last.Form, got)
	}
	if len(s.signed) != 1 || s.signed[0].Audience != "aws:acme" || s.signed[0].Environment != prod {
		t.Errorf("the recorded tokens are %+v", s.signed)
	}
	s.refuses("aws-login", strings.Replace(inputs, `"1h"`, `"3h"`, 1), "longer than the role allows")
	accounts.Trust(func(trust *clouds.Trust) { trust.Subject = "planted" })
	s.refuses("aws-login", inputs, "status 403: the trust policy of the role")
	accounts.Trust(func(trust *clouds.Trust) { trust.Audience = "planted" })
	s.refuses("aws-login", inputs, "no identity provider for the issuer and the audience")
	accounts.Fail(1)
	s.refuses("aws-login", inputs, "status 503")
	v = must.Get(s.open("aws-login", `{"static":{"accessKeyId":"AKIA","secretAccessKey":"key"}}`))(t)
	if s.secretText(v, "secretAccessKey") != "key" || v.Value.(map[string]wire.Value)["sessionToken"].Value != "" {
		t.Errorf("static credentials are %+v", v)
	}
	for inputs, want := range map[string]string{
		`{}`:                         "either oidc or static",
		`{"oidc":{},"static":{}}`:    "either oidc or static",
		`{"static":{"planted":"x"}}`: "static.accessKeyId is missing",
		`{"static":{"accessKeyId":"a","secretAccessKey":"b","planted":"x"}}`:                                    "unknown input in static; the inputs are accessKeyId",
		`{"oidc":{"roleArn":"planted","sessionName":"x"}}`:                                                      "oidc.roleArn does not have the form",
		`{"oidc":{"roleArn":"arn:planted:iam::123456789012:role/x","sessionName":"xx"}}`:                        "oidc.roleArn does not have the form",
		`{"oidc":{"roleArn":"` + clouds.RoleARN + `","sessionName":"planted\n"}}`:                               "oidc.sessionName does not have",
		`{"oidc":{"roleArn":"` + clouds.RoleARN + `","sessionName":"xx","duration":"planted"}}`:                 "between 15m0s and 12h0m0s",
		`{"oidc":{"roleArn":"` + clouds.RoleARN + `","sessionName":"xx","duration":"13h"}}`:                     "between 15m0s and 12h0m0s",
		`{"oidc":{"roleArn":"` + clouds.RoleARN + `","sessionName":"xx","policyArns":["planted",1]}}`:           "policyArns must be a list",
		`{"oidc":{"roleArn":"` + clouds.RoleARN + `","sessionName":"xx","subjectAttributes":["planted.name"]}}`: "subjectAttributes can contain rootEnvironment.name",
		`{"oidc":"planted"}`: "oidc must be an object",
	} {
		s.refuses("aws-login", inputs, want)
	}
}

func TestGoogleCloud(t *testing.T) {
	s := newSite(t)
	accounts.Trust(func(trust *clouds.Trust) { trust.Audience = "gcp:acme" })
	const inputs = `{"project":` + clouds.ProjectID + `,"oidc":{"workloadPoolId":"` + clouds.PoolID + `","providerId":"` + clouds.ProviderID + `","serviceAccount":"` + clouds.ServiceAccount + `"}}`
	v := must.Get(s.open("gcp-login", inputs))(t)
	calls := accounts.Calls()
	access := s.secretText(v, "accessToken")
	if last := calls[len(calls)-1]; !slices.Equal(last.Tokens, []string{access}) || last.Host != "iamcredentials.googleapis.com" {
		t.Errorf("Google gave %q, and the provider returned %q", last.Tokens, access)
	}
	members := v.Value.(map[string]wire.Value)
	if members["project"].Value != json.Number(clouds.ProjectID) || members["tokenType"].Value != "Bearer" || members["expiry"].Value == "" {
		t.Errorf("the other outputs are %+v", members)
	}
	again := must.Get(s.open("gcp-login", `{"project":1,"accessToken":{"accessToken":"`+access+`","serviceAccount":"`+clouds.ServiceAccount+`"}}`))(t)
	if s.secretText(again, "accessToken") == access {
		t.Error("the service account was not used")
	}
	if same := must.Get(s.open("gcp-login", `{"project":1,"accessToken":{"accessToken":"ya29"}}`))(t); s.secretText(same, "accessToken") != "ya29" {
		t.Errorf("an access token is %+v", same)
	}
	s.refuses("gcp-login", strings.Replace(inputs, `"oidc":{`, `"oidc":{"tokenLifetime":"2h",`, 1), "tokenLifetime is longer than")
	s.refuses("gcp-login", strings.Replace(inputs, `"oidc":{`, `"oidc":{"region":"us-central1",`, 1), "does not exist, or is disabled")
	for _, part := range []string{clouds.PoolID, clouds.ProviderID, clouds.ServiceAccount} {
		s.refuses("gcp-login", strings.Replace(inputs, `"`+part+`"`, `"planted/../x?y=z"`, 1), "does not have the form of")
	}
	s.refuses("gcp-login", `{"project":"007","accessToken":{"accessToken":"x"}}`, "project must be a number")
	s.refuses("gcp-login", `{"project":"planted","accessToken":{"accessToken":"x"}}`, "project must be a number")
	accounts.Trust(func(trust *clouds.Trust) { trust.Audience = "planted" })
	s.refuses("gcp-login", inputs, "the issuer or the audience")
}

func TestAzure(t *testing.T) {
	s := newSite(t)
	const inputs = `{"clientId":"c","tenantId":"t","subscriptionId":"s","oidc":true}`
	v := must.Get(s.open("azure-login", inputs))(t)
	c := s.claims(s.secretText(v, "oidc", "token"))
	for name, want := range map[string]any{
		"iss": s.issuer.URL(), "sub": "pulumi:environments:org:acme:env:app/prod", "aud": "azure:acme", "org": "acme",
		"env": "app/prod", "current_env": "app/prod", "root_env": "app/prod", "trigger_user": "ann",
	} {
		if c[name] != want {
			t.Errorf("the claim %s is %v, want %v", name, c[name], want)
		}
	}
	if lifetime := c["exp"].(float64) - c["iat"].(float64); lifetime != 3600 {
		t.Errorf("the token is valid for %v s", lifetime)
	}
	v = must.Get(s.open("azure-login", `{"clientId":"c","tenantId":"t","subscriptionId":"s","clientSecret":"planted"}`))(t)
	if s.secretText(v, "clientSecret") != "planted" {
		t.Errorf("with a secret: %+v", v)
	}
	s.refuses("azure-login", `{"clientId":"c"}`, "tenantId is missing")
	s.refuses("azure-login", `{"clientId":"c","tenantId":"t","subscriptionId":"s","oidc":"planted"}`, "oidc must be true or false")
	signed := len(s.signed)
	s.refuses("azure-login", inputs, "save the definition as an environment", func(c *Call) { c.Current, c.Root = Environment{}, Environment{} })
	if len(s.signed) != signed {
		t.Error("a token was recorded that was not issued")
	}
	s.refuses("azure-login", inputs, "not recorded", func(c *Call) {
		c.Signing = func(context.Context, Token) error { return fmt.Errorf("not recorded") }
	})
}

// TestSubjects checks what identity tokens say about environments.
func TestSubjects(t *testing.T) {
	legacy, lib := Environment{ID: "e2", Project: "default", Name: "dev"}, Environment{ID: "e3", Project: "lib", Name: "login"}
	for _, c := range []struct {
		current, root Environment
		user          string
		attributes    []string
		subject       string
	}{
		{prod, prod, "ann", nil, "pulumi:environments:org:acme:env:app/prod"},
		{lib, prod, "ann", nil, "pulumi:environments:org:acme:env:lib/login"}, // never what imports it
		{legacy, legacy, "ann", nil, "pulumi:environments:org:acme:env:dev"},
		{lib, prod, "ann", []string{"currentEnvironment.name", "pulumi.user.login"}, "pulumi:environments:pulumi.organization.login:acme:currentEnvironment.name:lib/login:pulumi.user.login:ann"},
		{lib, prod, "ann", []string{"rootEnvironment.name"}, "pulumi:environments:pulumi.organization.login:acme:rootEnvironment.name:app/prod"},
		{legacy, legacy, "", []string{"currentEnvironment.name", "pulumi.organization.login"}, "pulumi:environments:pulumi.organization.login:acme:currentEnvironment.name:dev:pulumi.organization.login:acme"},
		{prod, prod, "", []string{"pulumi.user.login"}, ""},
		{prod, prod, "ann:x", []string{"pulumi.user.login"}, ""},
		{prod, prod, "ann", []string{"pulumi.user.name"}, ""},
	} {
		call := Call{Org: acme, Current: c.current, Root: c.root, User: c.user, provider: "x"}
		if got, err := call.subject(c.attributes); got != c.subject || (err == nil) != (c.subject != "") {
			t.Errorf("%+v: the subject is %q (%v)", c, got, err)
		}
	}
	call := Call{Org: acme, Current: prod}
	if got := []string{call.audience("aws"), call.audience("")}; !slices.Equal(got, []string{"aws:acme", "acme"}) {
		t.Errorf("the audiences are %q", got)
	}
	if call.Current = legacy; call.audience("aws") != "acme" {
		t.Errorf("in the default project, the audience is %s", call.audience("aws"))
	}
}

// TestCustomAudience checks tokens whose audience the author chooses: they must not pass for others.
func TestCustomAudience(t *testing.T) {
	s := newSite(t)
	v := must.Get(s.open("oidc", `{"audience":"https://registry.example.com","duration":"15m","identityToken":{"version":"v2"}}`))(t)
	c := s.claims(s.secretText(v))
	for name, want := range map[string]any{
		"iss": s.issuer.URL() + "/v2", "sub": "pulumi:org:org-1:env:env-1", "aud": "https://registry.example.com",
		"https://pulumi.com/org": "acme", "https://pulumi.com/org_id": "org-1", "https://pulumi.com/current_env": "app/prod",
		"https://pulumi.com/root_env_id": "env-1", "https://pulumi.com/actor": "ann", "org": nil, "current_env": nil,
	} {
		if c[name] != want {
			t.Errorf("the claim %s is %v, want %v", name, c[name], want)
		}
	}
	if lifetime := c["exp"].(float64) - c["iat"].(float64); lifetime != 900 {
		t.Errorf("the token is valid for %v s", lifetime)
	}
	for audience, want := range map[string]string{
		"": "audience is missing", "  ": "not only spaces", strings.Repeat("x", 513): "1 to 512 bytes",
		"acme": "name of an organization", "aws:other": "login providers", "Azure:acme": "login providers", "jobs-only": "tokens of deployments",
	} {
		s.refuses("oidc", `{"audience":"`+audience+`","identityToken":{"version":"v2"}}`, want)
	}
	for inputs, want := range map[string]string{
		`{"audience":"x"}`: "identityToken must be",
		`{"audience":"x","identityToken":{"version":"v1"}}`:                           "identityToken must be",
		`{"audience":"x","identityToken":{"version":"v2","planted":1}}`:               "unknown input",
		`{"audience":"x","identityToken":{"version":"v2"},"subjectAttributes":["x"]}`: "unknown input",
		`{"audience":"x","identityToken":{"version":"v2"},"duration":"2h"}`:           "between 1m0s and 1h0m0s",
	} {
		s.refuses("oidc", inputs, want)
	}
	s.refuses("oidc", `{"audience":"x","identityToken":{"version":"v2"}}`, "save the definition as an environment", func(c *Call) { c.Current = Environment{} })
}

// TestSchemas checks the schemas that editors and the evaluator get.
func TestSchemas(t *testing.T) {
	names := Names()
	if !slices.IsSorted(names) || len(names) != 8 {
		t.Errorf("the providers are %q", names)
	}
	var check func(at string, schema map[string]any)
	check = func(at string, schema map[string]any) {
		if schema["type"] == nil {
			t.Errorf("%s has no type", at)
		}
		members, _ := schema["properties"].(map[string]any)
		for name, member := range members {
			if member.(map[string]any)["description"] == nil {
				t.Errorf("%s.%s has no description", at, name)
			}
			check(at+"."+name, member.(map[string]any))
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if members[name.(string)] == nil {
				t.Errorf("%s requires %s, which does not exist", at, name)
			}
		}
	}
	schemas := map[string]json.RawMessage{"context": ContextSchema()}
	for _, p := range providers {
		schemas[p.Name+" inputs"], schemas[p.Name+" outputs"] = p.Inputs, p.Outputs
		if p.Description == "" {
			t.Errorf("%s has no description", p.Name)
		}
	}
	for at, text := range schemas {
		var schema map[string]any
		must.OK(t, json.Unmarshal(text, &schema))
		check(at, schema)
	}
}
