package consoletest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"workflowagent/internal/dev/must"
)

// The client of a [Provider].
const (
	ClientID     = "workflow-server"
	ClientSecret = "s+e/c:r et"
)

// Provider is an identity provider with one user, who is signed in. It checks what a strict provider
// checks: the client, its secret, the redirect URI, and PKCE. Its codes work once.
type Provider struct {
	URL string
	// Redirects are the registered redirect URIs.
	Redirects []string
	// Claims are the claims of the user.
	Claims map[string]any
	// UserInfo are further claims, which the provider answers only to another call; nil for none.
	UserInfo map[string]any
	// Tamper changes the claims of an ID token before it is signed.
	Tamper func(claims map[string]any)
	// Sign replaces the signature of ID tokens.
	Sign func(claims map[string]any) string
	// Asked are the queries of the sign-ins.
	Asked []url.Values

	t    testing.TB
	key  *rsa.PrivateKey
	http *httptest.Server

	mu    sync.Mutex
	codes map[string]url.Values // the query of the sign-in of an unused code
}

// NewProvider starts a provider whose user has the subject "1234".
func NewProvider(t testing.TB) *Provider {
	t.Helper()
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	p := &Provider{t: t, key: key, codes: map[string]url.Values{}, Claims: map[string]any{"sub": "1234", "preferred_username": "grace"}}
	mux := http.NewServeMux()
	p.http = httptest.NewServer(mux)
	p.URL = p.http.URL
	t.Cleanup(p.http.Close)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"userinfo_endpoint": p.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, r *http.Request) {
		if p.UserInfo == nil || r.Header.Get("Authorization") != "Bearer access" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		answerJSON(w, http.StatusOK, p.UserInfo)
	})
	return p
}

// Stop makes the provider unreachable.
func (p *Provider) Stop() { p.http.Close() }

// File writes a sign-in file for the provider with the id "corp". more are further lines of its entry,
// indented by 4 spaces.
func (p *Provider) File(more ...string) string {
	p.t.Helper()
	dir := p.t.TempDir()
	must.OK(p.t, os.WriteFile(filepath.Join(dir, "secret"), []byte(ClientSecret+"\n"), 0o600))
	lines := append([]string{
		"providers:", "  - id: corp", "    name: Example Corp", "    issuer: " + p.URL, "    client_id: " + ClientID, "    client_secret_file: secret",
	}, more...)
	text := strings.Join(lines, "\n")
	path := filepath.Join(dir, "sign-in.yaml")
	must.OK(p.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client sees a truncated answer
}

// authorize signs the user in and returns the browser with a code.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Asked = append(p.Asked, q)
	if q.Get("client_id") != ClientID || !slices.Contains(p.Redirects, q.Get("redirect_uri")) {
		http.Error(w, "unknown client or redirect URI", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}, "iss": {p.URL}}
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 ||
		!slices.Contains(strings.Fields(q.Get("scope")), "openid") || q.Get("nonce") == "" || q.Get("state") == "" {
		back.Set("error", "invalid_request")
	} else {
		code := rand.Text()
		p.codes[code] = q
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound) //nolint:gosec // the redirect URI is registered
}

// token exchanges a code.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	id, err1 := url.QueryUnescape(id)
	secret, err2 := url.QueryUnescape(secret)
	if err1 != nil || err2 != nil || id != ClientID || secret != ClientSecret {
		answerJSON(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	p.mu.Lock()
	q, known := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !known || r.FormValue("grant_type") != "authorization_code" || r.FormValue("redirect_uri") != q.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	now := time.Now()
	claims := map[string]any{
		"iss": p.URL, "aud": ClientID, "exp": now.Add(time.Minute).Unix(), "iat": now.Unix(), "nonce": q.Get("nonce"), "auth_time": now.Unix(),
	}
	maps.Copy(claims, p.Claims)
	if p.Tamper != nil {
		p.Tamper(claims)
	}
	sign := p.Sign
	if sign == nil {
		sign = func(claims map[string]any) string { return SignToken(p.t, jose.RS256, p.key, claims) }
	}
	answerJSON(w, http.StatusOK, map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 60, "id_token": sign(claims)})
}

// PublicKey returns the provider's public key.
func (p *Provider) PublicKey() *rsa.PublicKey { return &p.key.PublicKey }

// SignToken returns a signed token with the key id of a [Provider].
func SignToken(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Errorf("signing a token: %v", err)
		return ""
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Errorf("signing a token: %v", err)
	}
	return text
}

// SignInAt signs a browser in at the provider "corp" and returns the answer to the provider's
// redirect. change can change the query of the redirect; it can be nil.
func (b *Browser) SignInAt(p *Provider, start string, change func(url.Values)) Page {
	b.s.t.Helper()
	return b.Get(b.AskProvider(p, start, change))
}

// AskProvider begins a sign-in at a page, signs in at the provider, and returns the path to which the
// provider sends the browser.
func (b *Browser) AskProvider(p *Provider, start string, change func(url.Values)) (path string) {
	b.s.t.Helper()
	begun := b.Get(start)
	if begun.Status != http.StatusSeeOther || !strings.HasPrefix(begun.Location(), p.URL+"/authorize?") {
		b.s.t.Fatalf("the sign-in begins with status %d to %q: %s", begun.Status, begun.Location(), begun.Body)
	}
	req := must.Get(http.NewRequestWithContext(b.s.t.Context(), http.MethodGet, begun.Location(), http.NoBody))(b.s.t)
	res, err := b.client.Do(req)
	must.OK(b.s.t, err)
	res.Body.Close()
	back, err := res.Location()
	if err != nil {
		b.s.t.Fatalf("the provider answers with status %d: %v", res.StatusCode, err)
	}
	q := back.Query()
	if change != nil {
		change(q)
	}
	back.RawQuery = q.Encode()
	return strings.TrimPrefix(back.String(), b.s.URL)
}
