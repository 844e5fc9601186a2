package lab

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/lab/jsoncall"
	"workflowagent/internal/dev/must"
)

// TestIssuer verifies the provider's tokens with only the standard library.
func TestIssuer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs an OpenID provider")
	}
	t.Parallel()
	issuer := must.Get(StartIssuer(t.Context(), t.TempDir(), os.Stderr))(t)
	t.Cleanup(issuer.Close)
	token := must.Get(issuer.IDToken(t.Context(), Identity{
		Audience: "urn:pulumi:org:acme", MoreAudiences: []string{"other"}, Subject: "system:serviceaccount:ns:agent",
		Claims:   map[string]any{"groups": []string{"a", "b"}, "kubernetes.io": map[string]any{"namespace": "ns"}},
		Lifetime: 90 * time.Second,
	}))(t)
	claims, ok := verifyWith(t, token, issuerKeys(t, issuer))
	if !ok {
		t.Fatal("no published key verifies the token")
	}
	for name, want := range map[string]any{
		"iss": issuer.URL, "sub": "system:serviceaccount:ns:agent", "aud": []any{"other", "urn:pulumi:org:acme"},
		"groups": []any{"a", "b"}, "kubernetes.io": map[string]any{"namespace": "ns"},
	} {
		if got := claims[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("the claim %s is %v, want %v", name, got, want)
		}
	}
	if lifetime := claims["exp"].(float64) - claims["iat"].(float64); lifetime != 90 {
		t.Errorf("the token lives %v s, want 90", lifetime)
	}

	must.OK(t, issuer.Rotate(t.Context()))
	if _, ok := verifyWith(t, token, issuerKeys(t, issuer)); ok {
		t.Error("the old token is valid with the new keys")
	}
	expired := must.Get(issuer.IDToken(t.Context(), Identity{Audience: "x", Lifetime: -time.Minute}))(t)
	claims, ok = verifyWith(t, expired, issuerKeys(t, issuer))
	if !ok || claims["exp"].(float64) > float64(time.Now().Unix()) {
		t.Errorf("the expired token: verified %v, claims %v", ok, claims)
	}
}

func issuerKeys(t *testing.T, issuer *Issuer) map[string]*rsa.PublicKey {
	t.Helper()
	get := func(path string, into any) {
		t.Helper()
		must.OK(t, jsoncall.Do(t.Context(), issuer.client, http.MethodGet, issuer.URL+path, nil, nil, into))
	}
	var discovery struct {
		Issuer string
		JWKS   string `json:"jwks_uri"`
	}
	get("/.well-known/openid-configuration", &discovery)
	if discovery.Issuer != issuer.URL {
		t.Errorf("the provider calls itself %s, want %s", discovery.Issuer, issuer.URL)
	}
	var set struct{ Keys []struct{ Kid, N string } }
	get(strings.TrimPrefix(discovery.JWKS, issuer.URL), &set)
	keys := map[string]*rsa.PublicKey{}
	for _, k := range set.Keys {
		n := must.Get(base64.RawURLEncoding.DecodeString(k.N))(t)
		keys[k.Kid] = &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 65537}
	}
	return keys
}

func verifyWith(t *testing.T, token string, keys map[string]*rsa.PublicKey) (claims map[string]any, ok bool) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	decode := func(part string) []byte {
		t.Helper()
		data := must.Get(base64.RawURLEncoding.DecodeString(part))(t)
		return data
	}
	var header struct{ Alg, Kid string }
	if err := json.Unmarshal(decode(parts[0]), &header); err != nil || header.Alg != "RS256" {
		t.Fatalf("the header is %+v (%v)", header, err)
	}
	must.OK(t, json.Unmarshal(decode(parts[1]), &claims))
	key, ok := keys[header.Kid]
	if !ok {
		return claims, false
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return claims, rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], decode(parts[2])) == nil
}
