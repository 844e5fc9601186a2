package clouds

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is an OIDC issuer that serves its documents over TLS.
type Issuer struct {
	URL    string
	Roots  *x509.CertPool
	server *httptest.Server
	signer jose.Signer
}

// NewIssuer starts an issuer. The caller must close it.
func NewIssuer() (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	i := &Issuer{Roots: x509.NewCertPool()}
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "1")
	if i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, options); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	i.server = httptest.NewTLSServer(mux)
	i.URL = i.server.URL
	i.Roots.AddCert(i.server.Certificate())
	serve := func(path string, document any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(document) })
	}
	serve("/.well-known/openid-configuration", map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	serve("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	return i, nil
}

// Close stops the issuer.
func (i *Issuer) Close() { i.server.Close() }

// Token returns a token for a subject and an audience.
func (i *Issuer) Token(subject, audience string, lifetime time.Duration) (string, error) {
	now := time.Now()
	return jwt.Signed(i.signer).Claims(jwt.Claims{
		Issuer: i.URL, Subject: subject, Audience: jwt.Audience{audience}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(lifetime)),
	}).Serialize()
}
