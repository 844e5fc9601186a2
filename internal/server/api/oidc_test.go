package api_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
)

// TestOIDCIssuers makes the calls of the pulumiservice provider.
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
		if made.ID == "" || made.URL != issuer.URL+"/" || made.Issuer != issuer.URL || made.Created == "" || made.MaxExpiration != nil || made.Thumbprints != nil {
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

		// The provider sends null for thumbprints that are not set.
		l.do("PATCH", base+"/"+made.ID, map[string]any{"name": "ci 2", "thumbprints": nil, "maxExpiration": 3600}).want(200, nil)
		l.do("POST", base+"/"+made.ID+"/regenerate-thumbprints", nil).want(200, nil)
		l.do("GET", base+"/"+made.ID, nil).want(200, &got)
		if got.Name != "ci 2" || *got.MaxExpiration != 3600 || len(got.Thumbprints) != 1 || got.Thumbprints[0] != thumbprint {
			t.Errorf("changed issuer is %+v", got)
		}
		l.do("PATCH", base+"/"+made.ID, map[string]any{"thumbprints": []string{}}).want(200, nil)
		var list struct{ OidcIssuers []body }
		l.do("GET", base, nil).want(200, &list)
		if len(list.OidcIssuers) != 1 || list.OidcIssuers[0].ID != made.ID || list.OidcIssuers[0].Thumbprints != nil {
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
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: good.key}}})
	if err != nil {
		t.Fatal(err)
	}
	for want, body := range map[string]map[string]any{
		"name: ":                        {"url": issuer.URL},
		"name: it must be one line":     {"name": "a\nb", "url": issuer.URL},
		"url: it must be an absolute":   {"name": "x"},
		"url: it must begin with https": {"name": "x", "url": "http://issuer.example.com"},
		"url: it must not hold a user":  {"name": "x", "url": "https://a:b@issuer.example.com"},
		"url: it has more than":         {"name": "x", "url": "https://issuer.example.com/" + strings.Repeat("x", 1024)},
		"is not called":                 {"name": "x", "url": "https://169.254.169.254"},
		"names another issuer":          {"name": "x", "url": impostor.server.URL},
		"publishes no key":              {"name": "x", "url": empty.URL},
		"maxExpiration: ":               {"name": "x", "url": issuer.URL, "maxExpiration": 90001},
		"maxExpiration: it":             {"name": "x", "url": issuer.URL, "maxExpiration": -1},
		"must not be a JSON string":     {"name": "x", "url": issuer.URL, "maxExpiration": "1h"},
		"thumbprints[1]: the SHA-256":   {"name": "x", "url": issuer.URL, "thumbprints": []string{strings.Repeat("ab", 32), strings.Repeat("ab", 20)}},
		"jwks: ":                        {"name": "x", "url": issuer.URL, "jwks": "text"},
		"jwks.keys: at least one":       {"name": "x", "url": issuer.URL, "jwks": map[string]any{}},
		"jwks.keys[0]: it is not a pub": {"name": "x", "url": issuer.URL, "jwks": json.RawMessage(private)},
	} {
		l.do("POST", base, body).want(400, nil).says(want)
	}
	id := l.trust(issuer, nil)
	l.do("PATCH", base+"/"+id, map[string]any{"name": " "}).want(400, nil).says("name is required")
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

	// Only administrators decide whom the organization trusts.
	var plain struct{ TokenValue string }
	l.do("POST", "/api/orgs/acme/tokens", map[string]any{"name": "plain", "description": "", "expires": 0, "admin": false}).want(200, &plain)
	for _, auth := range []string{"token " + plain.TokenValue, "token " + l.poolToken} {
		l.send(call{Method: "GET", Path: base, Auth: auth}).want(403, nil)
		l.send(call{Method: "POST", Path: base, Body: map[string]any{"name": "x", "url": issuer.URL}, Auth: auth}).want(403, nil)
	}
	l.send(call{Method: "GET", Path: base, Auth: "none"}).want(401, nil)
}

func TestRunnerTokens(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer := newTestIssuer(t)
		key := issuer.newKey("k")
		id := l.trust(issuer, map[string]any{"maxExpiration": 3600}, l.runnerPolicy("allow", "agent-*"), l.runnerPolicy("deny", "agent-bad"))
		token := issuer.token(key, nil)

		form := grant(token, "runner", "runner:"+l.pool)
		form.Set("expiration", "600")
		got := l.granted(form)
		if got.ExpiresIn != 600 || got.Scope != "runner:"+l.pool || got.IssuedTokenType != typePrefix+"runner" {
			t.Errorf("granted %+v", got)
		}
		if byName := l.granted(grant(token, "runner", "runner:p1")); byName.ExpiresIn != 3600 || byName.AccessToken == got.AccessToken {
			t.Errorf("granted by name %+v", byName)
		}
		// It does what the pool's own token does, and nothing else.
		want := l.deploy(l.deployable("dev"), "update")
		res, err := l.client.Poll(t.Context(), got.AccessToken, l.request("a", 0))
		if err != nil || res.Job == nil || res.Job.TypeSpecificID != want {
			t.Fatalf("polling: %+v, %v", res, err)
		}
		auth := "token " + got.AccessToken
		l.send(call{Method: "GET", Path: "/api/deployments/" + want + "/status", Auth: auth}).want(200, nil)
		for _, path := range []string{"/api/user", "/api/orgs/acme/agent-pools", "/api/stacks/acme/proj/dev", "/api/orgs/acme/oidc/issuers", "/api/workflow/jobs/" + res.Job.JobID} {
			if a := l.send(call{Method: "GET", Path: path, Auth: auth}); a.Status != http.StatusForbidden {
				t.Errorf("%s answered %d to a runner token", path, a.Status)
			}
		}
		var shown struct{ LastUsed string }
		l.do("GET", "/api/orgs/acme/oidc/issuers/"+id, nil).want(200, &shown)
		if shown.LastUsed == "" {
			t.Error("the issuer's last use was not noted")
		}

		other, _ := l.newPool("p2")
		l.newPool("twin")
		l.newPool("twin")
		const told = "the server's log says why"
		l.exchange(grant(issuer.token(key, map[string]any{"sub": "agent-bad"}), "runner", "runner:p1")).refused(400, "unauthorized_client", told, token)
		l.exchange(grant(issuer.token(key, map[string]any{"sub": "stranger"}), "runner", "runner:p1")).refused(400, "unauthorized_client", told, token)
		l.exchange(grant(issuer.token(key, map[string]any{"aud": "else"}), "runner", "runner:p1")).refused(400, "unauthorized_client", told, token)
		for _, scope := range []string{"runner:" + other, "runner:p2", "runner:twin", "runner:nope"} {
			l.exchange(grant(token, "runner", scope)).refused(400, "unauthorized_client", told, token)
		}
		for _, scope := range []string{"", "p1", "runner:", "user:admin", "admin"} {
			l.exchange(grant(token, "runner", scope)).refused(400, "invalid_scope", "runner:POOL", token)
		}

		// It ends when it says, without anybody sweeping.
		form.Set("expiration", "1")
		brief := l.granted(form)
		deadline := time.Now().Add(30 * time.Second)
		for l.send(call{Method: "GET", Path: "/api/deployments/" + want + "/status", Auth: "token " + brief.AccessToken}).Status != http.StatusUnauthorized {
			if time.Now().After(deadline) {
				t.Fatal("a token of one second lives on")
			}
			<-time.After(20 * time.Millisecond)
		}
		l.send(call{Method: "GET", Path: "/api/deployments/" + want + "/status", Auth: auth}).want(200, nil)
		// The pool and the issuer take along what was given.
		l.do("DELETE", "/api/orgs/acme/agent-pools/"+l.pool+"?force=true", nil).want(204, nil)
		l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: auth}).want(401, nil)
		l.exchange(grant(token, "runner", "runner:"+l.pool)).refused(400, "unauthorized_client", told, token)
	})
}

func TestDeletedIssuerTakesItsTokensAlong(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer, second := newTestIssuer(t), newTestIssuer(t)
		key, key2 := issuer.newKey("k"), second.newKey("k")
		id := l.trust(issuer, nil, l.runnerPolicy("allow", "*"))
		l.trust(second, nil, l.runnerPolicy("allow", "*"))
		first := l.granted(grant(issuer.token(key, nil), "runner", "runner:p1"))
		kept := l.granted(grant(second.token(key2, nil), "runner", "runner:p1"))
		l.do("DELETE", "/api/orgs/acme/oidc/issuers/"+id, nil).want(204, nil)
		for token, want := range map[string]int{first.AccessToken: 401, kept.AccessToken: 204, l.poolToken: 204} {
			if a := l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: "token " + token}); a.Status != want {
				t.Errorf("polling answered %d, want %d", a.Status, want)
			}
		}
		l.exchange(grant(issuer.token(key, nil), "runner", "runner:p1")).refused(400, "invalid_grant", "does not trust", "")
	})
}

func TestOrganizationTokensByExchange(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	key := issuer.newKey("k")
	policy := func(sub string, permissions ...string) map[string]any {
		return map[string]any{"decision": "allow", "tokenType": "organization", "authorizedPermissions": permissions, "rules": map[string]string{"sub": sub}}
	}
	l.trust(issuer, nil, policy("ci", "standard"), policy("boss", "admin"))
	ci, boss := issuer.token(key, map[string]any{"sub": "ci"}), issuer.token(key, map[string]any{"sub": "boss"})

	plain := l.granted(grant(ci, "organization", ""))
	if plain.ExpiresIn != 7200 || plain.Scope != "" {
		t.Errorf("granted %+v", plain)
	}
	auth := "token " + plain.AccessToken
	l.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "by-ci"}, Auth: auth}).want(200, nil)
	l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: auth}).want(403, nil)
	var who struct {
		GithubLogin string
		TokenInfo   struct{ Name, Organization string }
	}
	l.send(call{Method: "GET", Path: "/api/user", Auth: auth}).want(200, &who)
	if who.GithubLogin != "acme" || who.TokenInfo.Name != "oidc:test issuer" {
		t.Errorf("the token is of %+v", who)
	}
	l.exchange(grant(ci, "organization", "admin")).refused(400, "unauthorized_client", "", ci)

	// Nobody becomes an administrator without asking.
	quiet := l.granted(grant(boss, "organization", ""))
	l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: "token " + quiet.AccessToken}).want(403, nil)
	admin := l.granted(grant(boss, "organization", "admin"))
	auth = "token " + admin.AccessToken
	l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: auth}).want(200, nil)
	// Its rights end with it: it makes no tokens that live on.
	l.send(call{Method: "POST", Path: "/api/orgs/acme/tokens", Body: map[string]any{"name": "x"}, Auth: auth}).want(403, nil).says("exchange")
	l.send(call{Method: "DELETE", Path: "/api/orgs/acme/tokens/x", Auth: auth}).want(403, nil)
	l.exchange(grant(boss, "organization", "runner:p1")).refused(400, "invalid_scope", `empty or "admin"`, boss)

	var list struct{ Tokens []struct{ Name string } }
	l.do("GET", "/api/orgs/acme/tokens", nil).want(200, &list)
	if len(list.Tokens) != 0 {
		t.Errorf("exchanged tokens are listed: %+v", list)
	}
}

// TestPersonalTokensByExchange lets the administrators of one organization get
// tokens of a user who also has a say elsewhere: they get nothing of that.
func TestPersonalTokensByExchange(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer := newTestIssuer(t)
		key := issuer.newKey("k")
		now := time.Now()
		err := l.db.Write(t.Context(), func(tx *store.Tx) error {
			admin, err := tx.UserByLogin("admin")
			if err != nil {
				return err
			}
			for _, err := range []error{
				tx.InsertOrganization(store.Organization{ID: "o2", Name: "globex", CreatedAt: now}),
				tx.InsertMember(store.Member{OrgID: "o2", UserID: admin.ID, Role: identity.RoleAdmin, CreatedAt: now}),
				tx.InsertUser(store.User{ID: "u2", Login: "outsider", CreatedAt: now}),
				tx.InsertMember(store.Member{OrgID: "o2", UserID: "u2", Role: identity.RoleAdmin, CreatedAt: now}),
			} {
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		l.trust(issuer, nil, map[string]any{"decision": "allow", "tokenType": "personal", "userLogin": "admin", "rules": map[string]string{"sub": "agent-1"}})
		token := issuer.token(key, nil)
		got := l.granted(grant(token, "personal", "user:admin"))
		auth := "token " + got.AccessToken
		var who struct {
			GithubLogin   string
			SiteAdmin     bool
			Organizations []struct{ GithubLogin, Role string }
		}
		l.send(call{Method: "GET", Path: "/api/user", Auth: auth}).want(200, &who)
		if who.GithubLogin != "admin" || who.SiteAdmin || len(who.Organizations) != 1 || who.Organizations[0].GithubLogin != "acme" || who.Organizations[0].Role != "admin" {
			t.Errorf("the token is of %+v", who)
		}
		l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: auth}).want(200, nil)
		l.send(call{Method: "GET", Path: "/api/orgs/globex", Auth: auth}).want(404, nil)
		l.send(call{Method: "POST", Path: "/api/stacks/globex/proj", Body: map[string]any{"stackName": "x"}, Auth: auth}).want(404, nil)
		l.send(call{Method: "POST", Path: "/api/user/tokens", Body: map[string]any{"description": "for ever"}, Auth: auth}).want(403, nil).says("exchange")
		l.send(call{Method: "DELETE", Path: "/api/user/tokens/x", Auth: auth}).want(403, nil)
		l.send(call{Method: "POST", Path: "/api/user/organizations/acme/default", Auth: auth}).want(403, nil)
		for _, scope := range []string{"user:outsider", "user:nobody", "user:Admin"} {
			l.exchange(grant(token, "personal", scope)).refused(400, "unauthorized_client", "", token)
		}
		l.exchange(grant(token, "personal", "")).refused(400, "invalid_scope", "user:LOGIN", token)
		form := grant(token, "personal", "user:admin")
		form.Set("audience", "urn:pulumi:org:globex")
		l.exchange(form).refused(400, "invalid_grant", "does not trust", token)
	})
}

func TestSubjectTokensThatAreRefused(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer, foreign := newTestIssuer(t), newTestIssuer(t)
	key := issuer.newKey("k")
	thief := foreign.newKey("k")
	l.trust(issuer, nil, l.runnerPolicy("allow", "*"))
	good := issuer.token(key, nil)
	l.granted(grant(good, "runner", "runner:p1"))
	now := time.Now().Unix()
	parts := strings.Split(good, ".")
	raw := base64.RawURLEncoding.EncodeToString
	unsigned := raw([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	kid := map[jose.HeaderKey]any{"kid": "k"}
	whole, err := jose.ParseSignedCompact(good, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ token, code, want string }{
		"junk":               {"junk", "invalid_grant", "no JSON web token"},
		"unsigned":           {unsigned, "invalid_grant", "asymmetric"},
		"none, signed":       {raw([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + parts[2], "invalid_grant", "asymmetric"},
		"the key as secret":  {sign(t, jose.HS256, derOf(t, key.key.Public()), kid, issuer.claims(nil)), "invalid_grant", "asymmetric"},
		"JSON serialization": {whole.FullSerialize(), "invalid_grant", "no JSON web token"},
		"without signature":  {parts[0] + "." + parts[1] + ".", "invalid_grant", ""},
		"changed claims":     {parts[0] + "." + raw([]byte(`{"iss":"`+issuer.URL+`","exp":9999999999}`)) + "." + parts[2], "invalid_grant", "signature"},
		"another key":        {issuer.token(thief, nil), "invalid_grant", "signature"},
		"its own key along": {
			sign(t, jose.ES256, thief.key, map[jose.HeaderKey]any{"jwk": thief.public(), "kid": "k"}, issuer.claims(nil)),
			"invalid_grant", "signature",
		},
		"an unknown header that matters": {
			sign(t, jose.ES256, key.key, map[jose.HeaderKey]any{"kid": "k", "crit": []string{"x"}, "x": 1}, issuer.claims(nil)),
			"invalid_grant", "",
		},
		"no JSON":            {parts[0] + "." + raw([]byte("x")) + "." + parts[2], "invalid_grant", "claims"},
		"expired":            {issuer.token(key, map[string]any{"exp": now - 31}), "invalid_grant", "expired"},
		"no end":             {issuer.token(key, map[string]any{"exp": nil}), "invalid_grant", "exp is missing"},
		"an end as text":     {issuer.token(key, map[string]any{"exp": "9999999999"}), "invalid_grant", "exp"},
		"an end out of time": {issuer.token(key, map[string]any{"exp": 1e300}), "invalid_grant", "exp"},
		"not yet":            {issuer.token(key, map[string]any{"nbf": now + 60}), "invalid_grant", "nbf"},
		"from the future":    {issuer.token(key, map[string]any{"iat": now + 60}), "invalid_grant", "iat"},
		"another issuer":     {foreign.token(thief, nil), "invalid_grant", "does not trust"},
		"almost the issuer":  {issuer.token(key, map[string]any{"iss": issuer.URL + "/"}), "invalid_grant", "does not trust"},
		"no issuer":          {issuer.token(key, map[string]any{"iss": nil}), "invalid_grant", "does not trust"},
		"issuer as list":     {issuer.token(key, map[string]any{"iss": []string{issuer.URL}}), "invalid_grant", "does not trust"},
		"too large":          {issuer.token(key, map[string]any{"x": strings.Repeat("x", 16<<10)}), "invalid_grant", "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			a := l.exchange(grant(tt.token, "runner", "runner:p1"))
			a.t = t
			a.refused(400, tt.code, tt.want, tt.token)
		})
	}
	// Clocks may differ a little.
	for _, changes := range []map[string]any{{"exp": now - 5}, {"nbf": now + 5}, {"iat": now + 5}} {
		l.granted(grant(issuer.token(key, changes), "runner", "runner:p1"))
	}
	if n := foreign.fetches.Load(); n != 0 {
		t.Errorf("an issuer that nobody trusts was asked %d times", n)
	}
	if n := issuer.fetches.Load(); n != 2 { // at the registration, and at the first token
		t.Errorf("the issuer was asked %d times", n)
	}
}

func TestKeyRotation(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	old := issuer.newKey("old")
	id := l.trust(issuer, nil, l.runnerPolicy("allow", "*"))
	l.granted(grant(issuer.token(old, nil), "runner", "runner:p1"))
	fresh := issuer.newKey("fresh", old)
	// The issuer was asked a moment ago: not yet, but soon.
	a := l.exchange(grant(issuer.token(fresh, nil), "runner", "runner:p1"))
	a.refused(503, "temporarily_unavailable", "fresh", "")
	if a.Header.Get("Retry-After") != "30" {
		t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
	}
	l.granted(grant(issuer.token(old, nil), "runner", "runner:p1"))
	l.do("PATCH", "/api/orgs/acme/oidc/issuers/"+id, map[string]any{"name": "touched"}).want(200, nil)
	l.granted(grant(issuer.token(fresh, nil), "runner", "runner:p1"))
	l.granted(grant(issuer.token(old, nil), "runner", "runner:p1"))

	issuer.server.Close()
	l.granted(grant(issuer.token(fresh, nil), "runner", "runner:p1"))
	l.do("PATCH", "/api/orgs/acme/oidc/issuers/"+id, map[string]any{"name": "touched again"}).want(200, nil)
	l.exchange(grant(issuer.token(fresh, nil), "runner", "runner:p1")).refused(503, "temporarily_unavailable", "cannot be had", "")
}

func TestStaticKeys(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	first := issuer.newKey("first")
	nameless := issuer.newKey("")
	issuer.server.Close() // never asked
	set := func(keys ...signer) jose.JSONWebKeySet {
		var s jose.JSONWebKeySet
		for _, k := range keys {
			s.Keys = append(s.Keys, k.public())
		}
		return s
	}
	id := l.trust(issuer, map[string]any{"jwks": set(first, nameless)}, l.runnerPolicy("allow", "*"))
	path := "/api/orgs/acme/oidc/issuers/" + id
	l.granted(grant(issuer.token(first, nil), "runner", "runner:p1"))
	l.granted(grant(issuer.token(signer{"", first.key}, nil), "runner", "runner:p1")) // a token may name no key
	var shown struct{ JWKS jose.JSONWebKeySet }
	l.do("GET", path, nil).want(200, &shown)
	if len(shown.JWKS.Keys) != 2 || shown.JWKS.Keys[0].KeyID != "first" {
		t.Errorf("the keys are %+v", shown)
	}
	l.do("POST", path+"/regenerate-thumbprints", nil).want(400, nil).says("statically configured")
	l.do("PATCH", path, map[string]any{"jwks": set(nameless)}).want(200, nil)
	l.exchange(grant(issuer.token(first, nil), "runner", "runner:p1")).refused(400, "invalid_grant", `the key "first"`, "")
	l.exchange(grant(issuer.token(signer{"", first.key}, nil), "runner", "runner:p1")).refused(400, "invalid_grant", "signature", "")
}

func TestExchangeRequests(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	key := issuer.newKey("k")
	l.trust(issuer, nil, l.runnerPolicy("allow", "*"))
	token := issuer.token(key, nil)
	change := func(name string, values ...string) url.Values {
		form := grant(token, "runner", "runner:p1")
		form[name] = values
		return form
	}
	for _, tt := range []struct {
		form       url.Values
		code, want string
	}{
		{url.Values{}, "invalid_request", "grant_type"},
		{change("grant_type", "refresh_token"), "unsupported_grant_type", exchangeGrant},
		{change("audience"), "invalid_request", "audience"},
		{change("audience", "acme"), "invalid_request", "audience"},
		{change("audience", "urn:pulumi:org:"), "invalid_request", "audience"},
		{change("audience", "urn:pulumi:org:nobody"), "invalid_target", "nobody"},
		{change("audience", "urn:pulumi:org:ACME"), "invalid_target", "ACME"},
		{change("subject_token"), "invalid_request", "subject_token"},
		{change("subject_token_type", "urn:ietf:params:oauth:token-type:access_token"), "invalid_request", "subject_token_type"},
		{change("requested_token_type", "runner"), "invalid_request", "requested_token_type"},
		{change("requested_token_type", typePrefix+"pool"), "invalid_request", "requested_token_type"},
		{change("requested_token_type", typePrefix+"team"), "invalid_request", "no teams"},
		{change("expiration", "soon"), "invalid_request", "expiration"},
		{change("expiration", "0"), "invalid_request", "expiration"},
		{change("expiration", "-5"), "invalid_request", "expiration"},
		{change("expiration", "1.5"), "invalid_request", "expiration"},
		{change("scope", "runner:p1", "runner:p1"), "invalid_request", "more than once"},
		{change("scope", strings.Repeat("x", 1025)), "invalid_request", "at most"},
	} {
		l.exchange(tt.form).refused(400, tt.code, tt.want, token)
	}
	for seconds, want := range map[string]int64{"1000": 1000, "90000": 90000, "90001": 90000, "9223372036854775807": 90000} {
		if got := l.granted(change("expiration", seconds)); got.ExpiresIn != want {
			t.Errorf("expiration %s gave %d s, want %d", seconds, got.ExpiresIn, want)
		}
	}
	// JSON does as well, with a number or a text, and any Content-Type or none.
	body := map[string]any{
		"grant_type": exchangeGrant, "audience": acmeAudience, "subject_token_type": idTokenType, "subject_token": token,
		"requested_token_type": typePrefix + "runner", "scope": "runner:p1", "client_id": "ignored",
	}
	for _, expiration := range []any{60, "60"} {
		body["expiration"] = expiration
		var got granted
		l.send(call{Method: "POST", Path: "/api/oauth/token", Body: body, Auth: "none"}).want(200, &got)
		if got.ExpiresIn != 60 || got.AccessToken == "" {
			t.Errorf("JSON with %v gave %+v", expiration, got)
		}
	}
	post := func(body string) answer {
		return l.send(call{Method: "POST", Path: "/api/oauth/token", Body: body, Auth: "none"})
	}
	post(`{"subject_token": "`+token+`"`).refused(400, "invalid_request", "JSON", token)
	post(`{"subject_token": 7}`).refused(400, "invalid_request", "subject_token", "")
	post("%zz").refused(400, "invalid_request", "neither", "")
	post("").refused(400, "invalid_request", "grant_type", "")
	post(strings.Repeat("x", 64<<10+1)).refused(413, "invalid_request", "larger", "")
	l.send(call{Method: "GET", Path: "/api/oauth/token?" + grant(token, "runner", "runner:p1").Encode(), Auth: "none"}).want(405, nil)
}
