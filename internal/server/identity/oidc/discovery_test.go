package oidc

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
)

// TestOlderIssuersKeepTheirHost fetches the keys of an issuer that is not public. Only an issuer that is
// older than the rule for outgoing calls may have such a host, and its keys must be there too.
func TestOlderIssuersKeepTheirHost(t *testing.T) {
	const keys = `{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server called another host") }))
	defer elsewhere.Close()
	var issuer *httptest.Server
	keysAt := ""
	issuer = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			fmt.Fprint(w, keys)
			return
		}
		fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, issuer.URL, keysAt)
	}))
	defer issuer.Close()
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	s := &Service{fetch: &outbound.Client{Roots: roots}, log: storetest.Log()}
	for _, test := range []struct {
		name, keys string
		older      bool
		want       string // of the error; "" is none
	}{
		{"older", issuer.URL + "/keys", true, ""},
		{"older, with keys elsewhere", elsewhere.URL + "/keys", true, "fetching its keys: " + strings.TrimPrefix(elsewhere.URL, "https://") + " cannot be called"},
		{"new", issuer.URL + "/keys", false, "fetching its OpenID configuration: " + strings.TrimPrefix(issuer.URL, "https://") + " cannot be called"},
	} {
		keysAt = test.keys
		got, err := s.fetchKeys(t.Context(), store.OIDCIssuer{URL: issuer.URL, Issuer: issuer.URL, KeepsHost: test.older})
		if test.want == "" && (err != nil || len(got) != 1) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %d keys, %v", test.name, len(got), err)
		}
	}
}
