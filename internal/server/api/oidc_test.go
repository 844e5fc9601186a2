package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/outbound"
)

// TestOIDCIssuers sends the requests that the pulumiservice provider sends.
func TestOIDCIssuers(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		const base = "/api/orgs/acme/oidc/issuers"
		issuer := newTestIssuer(t)
		issuer.newKey("k")
		thumbprint := outbound.Thumbprint(issuer.server.Certificate())
		type body struct {
			ID, Name, URL, Issuer, Created, Modified, LastUsed string
			Thumbprints                                        []string
			MaxExpiration                                      *int64
		}
		var made, got body
		l.do("POST", base, map[string]any{"name": "ci", "url": issuer.URL + "/"}).want(200, &made)
		if made.ID == "" || made.URL != issuer.URL+"/" || made.Issuer != issuer.URL || made.Created == "" || made.MaxExpiration != nil || made.Thumbprints == nil || len(made.Thumbprints) > 0 {
			t.Errorf("registered %+v", made)
		}
		l.do("POST", base, map[string]any{"name": "again", "url": issuer.URL}).want(409, nil).says("already")

		type set struct {
			ID       string
			Version  int64
			Policies []map[string]any
		}
		var policy, changed set
		l.do("GET", "/api/orgs/acme/auth/policies/oidcissuers/"+made.ID, nil).want(200, &policy)
		if policy.ID == "" || policy.Policies == nil || len(policy.Policies) != 0 {
			t.Errorf("the first policies are %+v", policy)
		}
		l.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "dream-team"}).want(201, nil)
		deny := l.runnerPolicy("deny", "x")
		l.do("PATCH", "/api/orgs/acme/auth/policies/"+policy.ID, map[string]any{"policies": []any{
			l.runnerPolicy("allow", "repo:*"), deny,
			map[string]any{"decision": "allow", "tokenType": "organization", "authorizedPermissions": []string{"admin"}, "rules": map[string]string{"sub": "a"}},
			map[string]any{"decision": "deny", "tokenType": "team", "teamName": "dream-team", "authorizedPermissions": nil, "rules": map[string]string{"sub": "a"}},
		}}).want(200, &changed)
		if changed.ID != policy.ID || changed.Version <= policy.Version || len(changed.Policies) != 4 {
			t.Errorf("changed policies are %+v", changed)
		}
		l.do("GET", "/api/orgs/acme/auth/policies/oidcissuers/"+made.ID, nil).want(200, &policy)
		if len(policy.Policies) != 4 || policy.Policies[0]["rules"].(map[string]any)["sub"] != "repo:*" || policy.Policies[3]["teamName"] != "dream-team" {
			t.Errorf("stored policies are %+v", policy)
		}

		// The provider sends null for unset thumbprints.
		l.do("PATCH", base+"/"+made.ID, map[string]any{"name": "ci 2", "thumbprints": nil, "maxExpiration": 3600}).want(200, nil)
		l.do("POST", base+"/"+made.ID+"/regenerate-thumbprints", nil).want(200, nil)
		l.do("GET", base+"/"+made.ID, nil).want(200, &got)
		if got.Name != "ci 2" || *got.MaxExpiration != 3600 || len(got.Thumbprints) != 1 || got.Thumbprints[0] != thumbprint {
			t.Errorf("changed issuer is %+v", got)
		}
		l.do("PATCH", base+"/"+made.ID, map[string]any{"thumbprints": []string{}}).want(200, nil).says(`"thumbprints":[]`)
		var list struct{ OidcIssuers []body }
		l.do("GET", base, nil).want(200, &list)
		if len(list.OidcIssuers) != 1 || list.OidcIssuers[0].ID != made.ID || len(list.OidcIssuers[0].Thumbprints) > 0 {
			t.Errorf("the list is %+v", list)
		}

		l.do("DELETE", base+"/"+made.ID, nil).want(204, nil)
		for _, c := range []call{
			{Method: "DELETE", Path: base + "/" + made.ID},
			{Method: "GET", Path: base + "/" + made.ID},
			{Method: "PATCH", Path: base + "/" + made.ID, Body: map[string]any{"name": "x"}},
			{Method: "POST", Path: base + "/" + made.ID + "/regenerate-thumbprints"},
			{Method: "GET", Path: "/api/orgs/acme/auth/policies/oidcissuers/" + made.ID},
			{Method: "PATCH", Path: "/api/orgs/acme/auth/policies/" + policy.ID, Body: map[string]any{"policies": []any{deny}}},
		} {
			l.send(c).want(404, nil)
		}
	})
}

func TestOIDCIssuersThatAreRefused(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	const base = "/api/orgs/acme/oidc/issuers"
	issuer, empty := newTestIssuer(t), newTestIssuer(t)
	good := issuer.newKey("k")
	impostor := newTestIssuer(t)
	impostor.newKey("k")
	impostor.URL = issuer.URL
	prying := newTestIssuer(t)
	prying.keysURL = "http://127.0.0.1:1/keys"
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: good.key}}})
	if err != nil {
		t.Fatal(err)
	}
	for want, body := range map[string]map[string]any{
		"name: ":                              {"url": issuer.URL},
		"name: must be one line":              {"name": "a\nb", "url": issuer.URL},
		"url: must be an absolute":            {"name": "x"},
		"url: must begin with https":          {"name": "x", "url": "http://issuer.example.com"},
		"url: must not contain a user":        {"name": "x", "url": "https://a:b@issuer.example.com"},
		"url: must be at most":                {"name": "x", "url": "https://issuer.example.com/" + strings.Repeat("x", 1024)},
		"cannot be called":                    {"name": "x", "url": "https://169.254.169.254"},
		"names a different issuer":            {"name": "x", "url": impostor.server.URL},
		"its keys does not begin with https":  {"name": "x", "url": prying.URL},
		"publishes no key":                    {"name": "x", "url": empty.URL},
		"maxExpiration: ":                     {"name": "x", "url": issuer.URL, "maxExpiration": 90001},
		"maxExpiration: must":                 {"name": "x", "url": issuer.URL, "maxExpiration": -1},
		"must not be a JSON string":           {"name": "x", "url": issuer.URL, "maxExpiration": "1h"},
		"thumbprints[1]: must be the SHA-256": {"name": "x", "url": issuer.URL, "thumbprints": []string{strings.Repeat("ab", 32), strings.Repeat("ab", 20)}},
		"jwks: ":                              {"name": "x", "url": issuer.URL, "jwks": "text"},
		"jwks.keys: at least one":             {"name": "x", "url": issuer.URL, "jwks": map[string]any{}},
		"jwks.keys[0]: is not a pub":          {"name": "x", "url": issuer.URL, "jwks": json.RawMessage(private)},
	} {
		l.do("POST", base, body).want(400, nil).says(want)
	}
	id := l.trust(issuer, nil)
	l.do("PATCH", base+"/"+id, map[string]any{"name": " "}).want(400, nil).says("name: is required")
	l.do("PATCH", base+"/"+id, map[string]any{"jwks": jose.JSONWebKeySet{Keys: []jose.JSONWebKey{good.public()}}}).want(400, nil).says("jwks: ")

	var policy struct{ ID string }
	l.do("GET", "/api/orgs/acme/auth/policies/oidcissuers/"+id, nil).want(200, &policy)
	patch := func(p map[string]any) answer {
		return l.do("PATCH", "/api/orgs/acme/auth/policies/"+policy.ID, map[string]any{"policies": []any{p}})
	}
	l.do("PATCH", "/api/orgs/acme/auth/policies/"+policy.ID, map[string]any{}).want(400, nil).says("policy definition can not be empty")
	patch(map[string]any{"decision": "allow", "tokenType": "runner", "runnerID": "nope", "rules": map[string]string{"sub": "x"}}).want(400, nil).says("policies[0].runnerID")
	patch(map[string]any{"decision": "allow", "tokenType": "personal", "userLogin": "nobody", "rules": map[string]string{"sub": "x"}}).want(400, nil).says("policies[0].userLogin")
	patch(map[string]any{"decision": "allow", "tokenType": "runner", "runnerID": l.pool, "rules": map[string]any{"sub": 1}}).want(400, nil).says("rules")

	var plain struct{ TokenValue string }
	l.do("POST", "/api/orgs/acme/tokens", map[string]any{"name": "plain", "description": "", "expires": 0, "admin": false}).want(200, &plain)
	for _, auth := range []string{"token " + plain.TokenValue, "token " + l.poolToken} {
		l.send(call{Method: "GET", Path: base, Auth: auth}).want(403, nil)
		l.send(call{Method: "POST", Path: base, Body: map[string]any{"name": "x", "url": issuer.URL}, Auth: auth}).want(403, nil)
	}
	l.send(call{Method: "GET", Path: base, Auth: "none"}).want(401, nil)
}
