package issuer

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/store"
)

const keyBits = 2048

// newKey generates a key. The caller sets its times.
func (s *Service) newKey(ctx context.Context) (store.SigningKey, error) {
	private, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return store.SigningKey{}, fmt.Errorf("generating a signing key: %w", err)
	}
	public := jose.JSONWebKey{Key: private.Public(), Algorithm: string(jose.RS256), Use: "sig"}
	sum, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return store.SigningKey{}, fmt.Errorf("computing a signing key's id: %w", err)
	}
	public.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	doc, err := json.Marshal(public)
	if err != nil {
		return store.SigningKey{}, fmt.Errorf("encoding a signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return store.SigningKey{}, fmt.Errorf("encoding a signing key: %w", err)
	}
	sealed, err := s.opts.Secrets.Encrypt(ctx, sealedFor(public.KeyID), der)
	if err != nil {
		return store.SigningKey{}, fmt.Errorf("encrypting a signing key: %w", err)
	}
	return store.SigningKey{ID: public.KeyID, PublicKey: string(doc), PrivateKey: sealed}, nil
}

// sealedFor returns the encryption scope of a private key. Stacks' ids contain no slash.
func sealedFor(id string) string { return "signing-keys/" + id }

// private returns a decrypted private key.
func (s *Service) private(ctx context.Context, k store.SigningKey) (*rsa.PrivateKey, error) {
	s.mu.Lock()
	known := s.keys[k.ID]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	der, err := s.opts.Secrets.Decrypt(ctx, sealedFor(k.ID), k.PrivateKey)
	if err != nil {
		// The cause is worded for the client of a stack.
		return nil, fmt.Errorf("decrypting the signing key %s failed: the database is damaged, or the server has another master key", k.ID)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the signing key %s: %w", k.ID, err)
	}
	private, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the signing key %s is not an RSA key", k.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) > 8 { // keys that have been removed since
		clear(s.keys)
	}
	s.keys[k.ID] = private
	return private, nil
}

// signing returns the index of the key that signs: the newest one whose time has come, or the first
// one if the clock was set back before the times of all keys.
func signing(keys []store.SigningKey, now time.Time) int {
	for i := len(keys) - 1; i > 0; i-- {
		if !keys[i].UseFrom.After(now) {
			return i
		}
	}
	return 0
}

// expired returns the ids of the keys whose tokens have all expired.
func expired(keys []store.SigningKey, now time.Time) []string {
	var ids []string
	for i := range signing(keys, now) {
		if !keys[i+1].UseFrom.Add(keep).After(now) {
			ids = append(ids, keys[i].ID)
		}
	}
	return ids
}

// due reports whether a new key must be published, so that it can sign at the end of the signing
// key's time.
func due(keys []store.SigningKey, now time.Time, rotation time.Duration) bool {
	last := len(keys) - 1
	return last < 0 || signing(keys, now) == last && !keys[last].UseFrom.Add(rotation-Lead).After(now)
}
