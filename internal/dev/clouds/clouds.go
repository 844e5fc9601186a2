// Package clouds imitates the token services of AWS, Azure and Google Cloud. The services verify
// identity tokens as the real ones do: they fetch the issuer's discovery document and keys over TLS,
// and check signature, issuer, audience, expiry and subject. A proxy gives them their real names.
package clouds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"workflowagent/internal/dev/testcert"
)

// The accounts that exist in the clouds.
const (
	RoleARN        = "arn:aws:iam::123456789012:role/deployer"
	ClientID       = "11111111-1111-1111-1111-111111111111"
	TenantID       = "22222222-2222-2222-2222-222222222222"
	SubscriptionID = "33333333-3333-3333-3333-333333333333"
	ProjectID      = "424242"
	PoolID         = "deployments"
	ProviderID     = "pulumi"
	ServiceAccount = "deployer@project.iam.gserviceaccount.com"
)

// hosts are the names of the services.
var hosts = map[string]func(*Clouds) http.HandlerFunc{
	"sts.amazonaws.com":              func(c *Clouds) http.HandlerFunc { return c.aws },
	"sts.eu-central-1.amazonaws.com": func(c *Clouds) http.HandlerFunc { return c.aws },
	"login.microsoftonline.com":      func(c *Clouds) http.HandlerFunc { return c.azure },
	"login.microsoftonline.us":       func(c *Clouds) http.HandlerFunc { return c.azure },
	"sts.googleapis.com":             func(c *Clouds) http.HandlerFunc { return c.exchange },
	"iamcredentials.googleapis.com":  func(c *Clouds) http.HandlerFunc { return c.impersonate },
}

// Trust is what the accounts trust.
type Trust struct {
	Issuer   string
	Audience string
	Subject  string         // a pattern of path.Match
	Roots    *x509.CertPool // of the issuer
}

// Call is a request that a service has answered.
type Call struct {
	Host   string
	Form   map[string]string // the fields of the form, or of the JSON object
	Tokens []string          // secrets in the answer
	Status int
}

// Clouds are the running services.
type Clouds struct {
	ProxyURL string        // for HTTPS_PROXY
	CAPEM    []byte        // authority of the services' certificates
	Lifetime time.Duration // of AWS credentials; 0: as requested

	mu       sync.Mutex
	trust    Trust
	calls    []Call
	failures int

	tls   *httptest.Server
	proxy *httptest.Server
}

// Start starts the services. The caller must close them.
func Start(trust Trust) (*Clouds, error) {
	authority, err := testcert.NewAuthority("clouds of a test")
	if err != nil {
		return nil, err
	}
	certificate, err := authority.Issue(&x509.Certificate{}, slices.Collect(maps.Keys(hosts))...)
	if err != nil {
		return nil, err
	}
	c := &Clouds{CAPEM: authority.PEM(), trust: trust}
	c.tls = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	c.tls.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	c.tls.StartTLS()
	c.proxy = httptest.NewServer(http.HandlerFunc(c.connect))
	c.ProxyURL = c.proxy.URL
	return c, nil
}

// Close stops the services.
func (c *Clouds) Close() {
	c.proxy.CloseClientConnections()
	c.proxy.Close()
	c.tls.Close()
}

// Trust replaces what the accounts trust.
func (c *Clouds) Trust(change func(*Trust)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.trust)
}

// Fail makes the next n requests fail with status 503.
func (c *Clouds) Fail(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = n
}

// Calls returns the calls so far.
func (c *Clouds) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

func (c *Clouds) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	fail := c.failures > 0
	if fail {
		c.failures--
	}
	c.mu.Unlock()
	host, ok := hosts[r.Host]
	switch {
	case !ok:
		http.NotFound(w, r)
	case fail:
		http.Error(w, "<html>busy</html>", http.StatusServiceUnavailable)
	case r.Method != http.MethodPost:
		http.Error(w, "method", http.StatusMethodNotAllowed)
	default:
		host(c)(w, r)
	}
}

// answer writes an answer and records the call.
func (c *Clouds) answer(w http.ResponseWriter, r *http.Request, kind string, status int, body any, tokens ...string) {
	data, ok := body.([]byte)
	if !ok {
		data, _ = json.Marshal(body) // maps and strings can be encoded
	}
	call := Call{Host: r.Host, Form: map[string]string{}, Tokens: tokens, Status: status}
	for name := range r.PostForm {
		call.Form[name] = r.PostForm.Get(name)
	}
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client might have gone
}

// connect is an HTTP proxy that reaches the services under their names, and loopback hosts.
func (c *Clouds) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	target := r.Host
	if name, _, err := net.SplitHostPort(r.Host); err == nil && hosts[name] != nil {
		target = c.tls.Listener.Addr().String()
	} else if !net.ParseIP(name).IsLoopback() {
		http.Error(w, "unknown host", http.StatusBadGateway)
		return
	}
	far, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(r.Context(), "tcp", target)
	if err != nil {
		http.Error(w, "unreachable", http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(far, buffered)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

// The reasons why a token is not accepted.
var (
	errMalformed = errors.New("malformed")
	errIssuer    = errors.New("unknown issuer")
	errKeys      = errors.New("keys cannot be fetched")
	errSignature = errors.New("wrong signature")
	errAudience  = errors.New("wrong audience")
	errExpired   = errors.New("expired")
	errSubject   = errors.New("wrong subject")
)

// verify verifies an identity token and returns its claims, as far as they are known.
func (c *Clouds) verify(ctx context.Context, text string) (jwt.Claims, error) {
	c.mu.Lock()
	trust := c.trust
	c.mu.Unlock()
	var claims jwt.Claims
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil || token.UnsafeClaimsWithoutVerification(&claims) != nil {
		return claims, errMalformed
	}
	if claims.Issuer != trust.Issuer {
		return claims, errIssuer
	}
	keys, err := fetchKeys(ctx, trust)
	if err != nil {
		return claims, fmt.Errorf("%w: %w", errKeys, err)
	}
	if token.Claims(keys, &claims) != nil {
		return claims, errSignature
	}
	now := time.Now()
	switch matched, _ := path.Match(trust.Subject, claims.Subject); {
	case claims.Expiry == nil || now.After(claims.Expiry.Time()) || claims.NotBefore != nil && now.Add(5*time.Second).Before(claims.NotBefore.Time()):
		return claims, errExpired
	case !claims.Audience.Contains(trust.Audience):
		return claims, errAudience
	case !matched:
		return claims, errSubject
	}
	return claims, nil
}

// fetchKeys reads the issuer's keys, which only an https server with a trusted certificate can
// publish.
func fetchKeys(ctx context.Context, trust Trust) (*jose.JSONWebKeySet, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust.Roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	get := func(url string, into any) error {
		if len(url) < 8 || url[:8] != "https://" {
			return fmt.Errorf("%q is not an https URL", url)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: status %d", url, resp.StatusCode)
		}
		return json.NewDecoder(resp.Body).Decode(into)
	}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := get(trust.Issuer+"/.well-known/openid-configuration", &document); err != nil {
		return nil, err
	}
	if document.Issuer != trust.Issuer {
		return nil, fmt.Errorf("the discovery document is of %q", document.Issuer)
	}
	var keys jose.JSONWebKeySet
	return &keys, get(document.Keys, &keys)
}
