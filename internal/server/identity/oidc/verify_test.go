package oidc

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// FuzzToken parses untrusted tokens, up to the signature check.
func FuzzToken(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjk5OTk5OTk5OTl9.AAAA")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Add(`{"payload":"e30","signatures":[]}`)
	f.Fuzz(func(t *testing.T, token string) {
		signed, err := jose.ParseSignedCompact(token, algorithms)
		if err != nil {
			return
		}
		if n := len(signed.Signatures); n != 1 {
			t.Fatalf("%d signatures", n)
		}
		if alg := signed.Signatures[0].Protected.Algorithm; strings.HasPrefix(alg, "HS") || alg == "none" {
			t.Fatalf("the algorithm %s was accepted", alg)
		}
	})
}

func FuzzClaims(f *testing.F) {
	now := time.Unix(1700000000, 0)
	for _, seed := range []string{`{"exp": 1700000001}`, `{"exp": 1e9, "nbf": -1}`, `{"exp": "1700000001"}`, `{"exp": 1700000001, "iat": null}`, `{"exp": 1e400}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		claims, err := parseClaims(payload)
		if err != nil {
			return
		}
		err = checkTimes(claims, now)
		var refusal *Refusal
		if err != nil && !errors.As(err, &refusal) {
			t.Errorf("%s: %v is not a refusal", payload, err)
		}
		if _, there := claims["exp"]; err == nil && !there {
			t.Errorf("%s never expires and was accepted", payload)
		}
	})
}
