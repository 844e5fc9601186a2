package oidc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/store"
)

// maxToken is the maximum size of an identity token in bytes.
const maxToken = 16 << 10

// algorithms are the accepted signature algorithms. All are asymmetric, so that a client can
// neither use a public key as a shared secret nor omit the signature.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

type subject struct {
	issuer store.OIDCIssuer
	claims map[string]any
}

func (s *Service) verify(ctx context.Context, org store.Organization, token string) (subject, error) {
	var sub subject
	if len(token) > maxToken {
		return sub, refuse("invalid_grant", "the subject token has more than %d bytes", maxToken)
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return sub, refuse("invalid_grant", "the subject token is not a JSON web token with an asymmetric signature")
	}
	// The unverified claims are used only to select the issuer.
	if sub.claims, err = parseClaims(signed.UnsafePayloadWithoutVerification()); err != nil {
		return sub, refuse("invalid_grant", "the subject token's claims are not a JSON object")
	}
	name, _ := sub.claims["iss"].(string)
	sub.issuer, err = read(ctx, s.db, "looking up an OIDC issuer", func(tx *store.Tx) (store.OIDCIssuer, error) {
		return tx.OIDCIssuerOf(org.ID, name)
	})
	if err != nil {
		return sub, store.IfMissing(err, refuse("invalid_grant", "the organization %q does not trust the issuer %q", org.Name, short(name)))
	}
	if err := s.checkSignature(ctx, sub.issuer, signed); err != nil {
		return sub, err
	}
	return sub, checkTimes(sub.claims, time.Now())
}

func (s *Service) checkSignature(ctx context.Context, issuer store.OIDCIssuer, signed *jose.JSONWebSignature) error {
	header := signed.Signatures[0].Protected
	known := false // the issuer has a key with the token's id
	use := func(keys []key) bool {
		return slices.ContainsFunc(keys, func(k key) bool {
			if header.KeyID != "" && k.KeyID != header.KeyID {
				return false
			}
			known = true
			if k.Algorithm != "" && k.Algorithm != header.Algorithm {
				return false
			}
			_, err := signed.Verify(k)
			return err == nil
		})
	}
	var found, settled bool
	if issuer.JWKS != "" {
		keys, err := parseKeys([]byte(issuer.JWKS), func(int, string) error { return nil })
		if err != nil {
			return fmt.Errorf("reading the static keys of issuer %s: %w", issuer.ID, err)
		}
		found, settled = use(keys), true
	} else {
		var err error
		if found, settled, err = s.keys.find(ctx, issuer, use); errors.Is(err, errNotNow) {
			return notNow("the keys of the issuer %s are unavailable; try again", issuer.Issuer)
		} else if err != nil {
			return err
		}
	}
	switch {
	case found:
		return nil
	case known:
		return refuse("invalid_grant", "the signature of the subject token is invalid")
	case !settled:
		return notNow("the key %q that signed the subject token is unknown, and the server fetched the keys of the issuer %s moments ago; try again", short(header.KeyID), issuer.Issuer)
	default:
		return refuse("invalid_grant", "the subject token was signed by the key %q, which the issuer %s does not publish", short(header.KeyID), issuer.Issuer)
	}
}

// parseClaims parses the payload of a token. Numbers keep their original text.
func parseClaims(payload []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var claims map[string]any
	if err := decoder.Decode(&claims); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) || claims == nil {
		return nil, errors.New("not a single JSON object")
	}
	return claims, nil
}

// checkTimes returns an error unless a token is valid now. Every token must have an expiry time.
func checkTimes(claims map[string]any, now time.Time) error {
	at := func(name string) (when time.Time, there bool, err error) {
		value, there := claims[name]
		if !there {
			return when, false, nil
		}
		number, ok := value.(json.Number)
		if !ok {
			return when, true, refuse("invalid_grant", "the claim %s of the subject token is not a number", name)
		}
		seconds, err := number.Float64()
		if err != nil || seconds < 0 || seconds > 1<<40 {
			return when, true, refuse("invalid_grant", "the claim %s of the subject token is not a valid time", name)
		}
		return time.Unix(int64(seconds), 0), true, nil
	}
	exp, there, err := at("exp")
	if err != nil {
		return err
	}
	if !there {
		return refuse("invalid_grant", "the subject token never expires: the claim exp is missing")
	}
	if !now.Before(exp.Add(skew)) {
		return refuse("invalid_grant", "the subject token expired at %s", exp.UTC().Format(time.RFC3339))
	}
	for _, name := range []string{"nbf", "iat"} {
		from, there, err := at(name)
		if err != nil {
			return err
		}
		if there && now.Before(from.Add(-skew)) {
			return refuse("invalid_grant", "the subject token is valid only from %s (claim %s); compare the clocks", from.UTC().Format(time.RFC3339), name)
		}
	}
	return nil
}

func short(s string) string {
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return s
}
