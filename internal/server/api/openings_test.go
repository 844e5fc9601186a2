package api_test

import (
	"encoding/base64"
	"testing"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/store"
)

// TestOpeningRoutes makes the calls that open environments. The program that evaluates is missing; package opening and the
// tests with the stock CLI have one.
func TestOpeningRoutes(t *testing.T) {
	f := newFixture(t, options{})
	env := f.environment("prod")
	const org, missing = "/api/esc/environments/acme", "workflow-esc is missing"
	f.do("POST", env+"/check", nil).want(503, nil).says(missing)
	f.do("POST", env+"/versions/latest/check?showSecrets=true", nil).want(503, nil).says(missing)
	f.do("POST", env+"/check?showSecrets=maybe", nil).want(400, nil)
	f.do("POST", env+"/open?duration=2h0m0s", nil).want(503, nil).says(missing)
	f.do("POST", env+"/open?duration=long", nil).want(400, nil)
	f.do("POST", env+"/open?duration=25h", nil).want(400, nil).says("at most 24 hours")
	f.do("POST", env+"/versions/7/open", nil).want(404, nil).says("has no version")
	f.do("GET", env+"/open/absent", nil).want(404, nil).says("belongs to another token")
	f.do("POST", org+"/yaml/check?showSecrets=false", "imports: [app/prod]\n").want(503, nil).says(missing)
	f.do("POST", org+"/yaml/open?duration=2h0m0s", "imports: [app/prod]\n").want(503, nil).says(missing)
	f.do("POST", org+"/yaml/open?environmentOverrides=x", "{}").want(400, nil).says("environmentOverrides")
	overrides := base64.RawURLEncoding.EncodeToString([]byte(`{"app/prod": "not a name/x/y"}`))
	f.do("POST", org+"/yaml/open?environmentOverrides="+overrides, "{}").want(400, nil).says("does not name an environment")
	f.do("GET", org+"/yaml/open/absent", nil).want(404, nil)
	f.do("POST", "/api/esc/environments/absent/yaml/open", "{}").want(404, nil)

	ann := f.person("ann", "acme", "member")
	session := func() answer { return f.send(call{Method: "GET", Path: env + "/open/absent", Auth: ann}) }
	session().want(404, nil)
	f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "read"}).want(200, nil)
	session().want(403, nil).says("needs the permission") // it ends with the permission

	var sealed struct{ Ciphertexts []string }
	f.do("POST", env+"/encrypt-secrets", map[string]any{"plaintexts": [][]byte{[]byte("planted")}}).want(200, &sealed)
	if len(sealed.Ciphertexts) != 1 {
		t.Fatalf("got %q", sealed.Ciphertexts)
	}
	f.do("POST", env+"/decrypt-secrets", map[string]any{"ciphertexts": sealed.Ciphertexts}).want(200, nil).
		says(base64.StdEncoding.EncodeToString([]byte("planted")))
	other := f.environment("other")
	f.do("POST", other+"/decrypt-secrets", map[string]any{"ciphertexts": sealed.Ciphertexts}).want(400, nil).says("another environment")

	f.do("POST", env+"/hooks", map[string]any{"name": "chat", "displayName": "chat", "payloadUrl": "https://127.0.0.1:1/x"}).want(201, nil)
	f.do("GET", env+"/hooks/chat", nil).want(200, nil).says("chat")

	runner := "token " + f.issue(store.Token{Kind: store.RunnerToken, JobID: "j", DeploymentID: "d"})
	known := func(auth, job string) answer {
		return f.send(call{Method: "GET", Path: "/api/workflow/jobs/" + job + "/opened-secrets?known=0", Auth: auth})
	}
	known(runner, "j").want(200, nil).says(`{"count":0}`)
	known(runner, "other").want(404, nil)
	job := "token " + f.issue(store.Token{Kind: store.JobToken, JobID: "j", DeploymentID: "d", StackID: "s", Scope: identity.Scope{}.String()})
	known(job, "j").want(403, nil)
}

// TestProviderRoutes reads what editors show about providers.
func TestProviderRoutes(t *testing.T) {
	f := newFixture(t, options{})
	f.do("GET", "/api/esc/providers?orgName=acme", nil).want(200, nil).says(`"aws-login","azure-login","external"`)
	var p struct {
		Name, Description string
		Inputs, Outputs   struct {
			Type       string
			Properties map[string]struct{ Description string }
		}
	}
	f.do("GET", "/api/esc/providers/external/schema", nil).want(200, &p)
	if p.Name != "external" || p.Description == "" || p.Inputs.Type != "object" || p.Inputs.Properties["url"].Description == "" || p.Outputs.Properties["response"].Description == "" {
		t.Errorf("the provider is %+v", p)
	}
	f.do("GET", "/api/esc/providers/absent/schema", nil).want(404, nil).says("has no provider of that name")
	f.do("GET", "/api/esc/context/schema", nil).want(200, nil).says(`{"schema":{`).says("currentEnvironment")
	f.send(call{Method: "GET", Path: "/api/esc/providers", Auth: "none"}).want(401, nil)

	var configuration issuer.Configuration
	f.send(call{Method: "GET", Path: "/oidc/v2/.well-known/openid-configuration", Auth: "none"}).want(200, &configuration)
	if configuration.Issuer != f.issuer.URL()+"/v2" || configuration.KeysURL != f.issuer.URL()+"/v2/.well-known/jwks" {
		t.Errorf("the second issuer is %+v", configuration)
	}
	f.send(call{Method: "GET", Path: "/oidc/v2/.well-known/jwks", Auth: "none"}).want(200, nil).says(`"keys":[`)
}
