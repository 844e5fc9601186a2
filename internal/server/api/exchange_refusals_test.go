package api_test

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

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
		"junk":               {"junk", "invalid_grant", "not a JSON web token"},
		"unsigned":           {unsigned, "invalid_grant", "asymmetric"},
		"none, signed":       {raw([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + parts[2], "invalid_grant", "asymmetric"},
		"the key as secret":  {sign(t, jose.HS256, derOf(t, key.key.Public()), kid, issuer.claims(nil)), "invalid_grant", "asymmetric"},
		"JSON serialization": {whole.FullSerialize(), "invalid_grant", "not a JSON web token"},
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
	// Clocks can differ a little.
	for _, changes := range []map[string]any{{"exp": now - 5}, {"nbf": now + 5}, {"iat": now + 5}} {
		l.granted(grant(issuer.token(key, changes), "runner", "runner:p1"))
	}
	if n := foreign.fetches.Load(); n != 0 {
		t.Errorf("the server sent %d requests to an untrusted issuer", n)
	}
	if n := issuer.fetches.Load(); n != 2 { // at registration and for the first token
		t.Errorf("the server sent %d requests to the issuer, want 2", n)
	}
}

func TestKeyRotation(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	old := issuer.newKey("old")
	id := l.trust(issuer, nil, l.runnerPolicy("allow", "*"))
	l.granted(grant(issuer.token(old, nil), "runner", "runner:p1"))
	fresh := issuer.newKey("fresh", old)
	// The server has just fetched the keys, so the client must retry later.
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
	l.exchange(grant(issuer.token(fresh, nil), "runner", "runner:p1")).refused(503, "temporarily_unavailable", "are unavailable", "")
}

func TestStaticKeys(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	first := issuer.newKey("first")
	nameless := issuer.newKey("")
	issuer.server.Close() // the server must not contact it
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
	l.granted(grant(issuer.token(signer{"", first.key}, nil), "runner", "runner:p1")) // a token need not name its key
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
		{change("requested_token_type", typePrefix+"team"), "invalid_scope", "team:NAME"},
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

// TestPoliciesLeaveTheWriterToOthers evaluates policies while another transaction writes. Hostile
// patterns take long, and must not delay the writes of other tenants.
func TestPoliciesLeaveTheWriterToOthers(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	key := issuer.newKey("k")
	l.trust(issuer, nil, l.runnerPolicy("allow", "nobody"))
	writing, written, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		failed <- l.db.Write(t.Context(), scope.Server(), func(*store.Tx) error {
			close(writing)
			select {
			case <-written:
				return nil
			case <-time.After(20 * time.Second):
				return errors.New("the exchange waited for the transaction")
			}
		})
	}()
	<-writing
	l.exchange(grant(issuer.token(key, nil), "runner", "runner:p1")).refused(400, "unauthorized_client", "policies", "")
	close(written)
	if err := <-failed; err != nil {
		t.Error(err)
	}
}
