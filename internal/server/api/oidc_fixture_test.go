package api_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"
	idTokenType   = "urn:ietf:params:oauth:token-type:id_token"
	typePrefix    = "urn:pulumi:token-type:access_token:"
	acmeAudience  = "urn:pulumi:org:acme"
)

// issuerRoots returns a pool that trusts the certificate of all httptest TLS servers.
var issuerRoots = sync.OnceValue(func() *x509.CertPool {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
})

// testIssuer is an OIDC issuer that can issue invalid tokens of every kind. The real provider in
// the end-to-end tests issues only valid ones.
type testIssuer struct {
	t       *testing.T
	URL     string
	keysURL string // as the issuer reports it
	server  *httptest.Server
	fetches atomic.Int64

	mu        sync.Mutex
	published []jose.JSONWebKey
}

type signer struct {
	kid string
	key *ecdsa.PrivateKey
}

func newTestIssuer(t *testing.T) *testIssuer {
	t.Helper()
	i := &testIssuer{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		i.answer(w, map[string]string{"issuer": i.URL, "jwks_uri": i.keysURL})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.answer(w, jose.JSONWebKeySet{Keys: i.published})
	})
	i.server = httptest.NewUnstartedServer(mux)
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.StartTLS()
	t.Cleanup(i.server.Close)
	i.URL, i.keysURL = i.server.URL, i.server.URL+"/keys"
	return i
}

func (i *testIssuer) answer(w io.Writer, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		i.t.Errorf("writing the issuer's response: %v", err)
	}
}

// newKey creates a key, and publishes it together with others.
func (i *testIssuer) newKey(kid string, others ...signer) signer {
	i.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	s := signer{kid, private}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.published = nil
	for _, k := range append(others, s) {
		i.published = append(i.published, k.public())
	}
	return s
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.kid, Use: "sig", Algorithm: "ES256"}
}

// claims returns valid claims after applying changes. A nil value removes a claim.
func (i *testIssuer) claims(changes map[string]any) map[string]any {
	now := time.Now().Unix()
	claims := map[string]any{"iss": i.URL, "sub": "agent-1", "aud": acmeAudience, "iat": now, "exp": now + 300}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

func (i *testIssuer) token(s signer, changes map[string]any) string {
	i.t.Helper()
	return sign(i.t, jose.ES256, s.key, map[jose.HeaderKey]any{"kid": s.kid, "typ": "JWT"}, i.claims(changes))
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, header map[jose.HeaderKey]any, claims map[string]any) string {
	t.Helper()
	maker, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := maker.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// derOf returns the encoding of a public key, which an attacker could use as a shared secret.
func derOf(t *testing.T, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (l *lab) trust(i *testIssuer, extra map[string]any, policies ...map[string]any) string {
	l.t.Helper()
	body := map[string]any{"name": "test issuer", "url": i.URL}
	maps.Copy(body, extra)
	var made, policy struct{ ID string }
	l.do("POST", "/api/orgs/acme/oidc/issuers", body).want(200, &made)
	l.do("GET", "/api/orgs/acme/auth/policies/oidcissuers/"+made.ID, nil).want(200, &policy)
	if len(policies) > 0 {
		l.do("PATCH", "/api/orgs/acme/auth/policies/"+policy.ID, map[string]any{"policies": policies}).want(200, nil)
	}
	return made.ID
}

func (l *lab) runnerPolicy(decision, subject string) map[string]any {
	return map[string]any{"decision": decision, "tokenType": "runner", "runnerID": l.pool, "rules": map[string]string{"sub": subject}}
}

// grant returns a valid request to exchange a token for a token with the given type and scope.
func grant(token, tokenType, scope string) url.Values {
	return url.Values{
		"grant_type": {exchangeGrant}, "audience": {acmeAudience}, "subject_token_type": {idTokenType},
		"subject_token": {token}, "requested_token_type": {typePrefix + tokenType}, "scope": {scope},
	}
}

type granted struct {
	AccessToken     string `json:"access_token"`
	IssuedTokenType string `json:"issued_token_type"`
	TokenType       string `json:"token_type"`
	ExpiresIn       int64  `json:"expires_in"`
	Scope           string
}

func (l *lab) exchange(form url.Values) answer {
	l.t.Helper()
	return l.send(call{
		Method: "POST", Path: "/api/oauth/token", Body: form.Encode(), Auth: "none",
		Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
	})
}

func (l *lab) granted(form url.Values) granted {
	l.t.Helper()
	var g granted
	l.exchange(form).want(200, &g)
	if !strings.HasPrefix(g.AccessToken, "pul-") || len(g.AccessToken) < 60 || g.TokenType != "token" {
		l.t.Fatalf("an exchange returned %+v", g)
	}
	return g
}

// refused fails the test unless an exchange was rejected as RFC 6749 requires: the response must
// contain the error code and the text, but not the token.
func (a answer) refused(status int, code, text, token string) {
	a.t.Helper()
	var body struct {
		Error       string
		Description string `json:"error_description"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil || a.Status != status || body.Error != code || !strings.Contains(body.Description, text) {
		a.t.Errorf("status %d, body %s, want %d with error %q and %q", a.Status, a.Body, status, code, text)
	}
	if token != "" && bytes.Contains(a.Body, []byte(token)) {
		a.t.Errorf("the response repeats the token: %s", a.Body)
	}
	if got := a.Header.Get("Cache-Control"); got != "no-store" {
		a.t.Errorf("Cache-Control is %q", got)
	}
}
