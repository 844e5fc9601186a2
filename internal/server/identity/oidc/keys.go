package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/store"
)

const (
	// keysFresh is the time for which fetched keys are used without another fetch.
	keysFresh = 10 * time.Minute
	// keysUsable is the time for which fetched keys are used while the issuer is unreachable.
	keysUsable = time.Hour
	// askAgain is the minimum interval between fetches of an issuer's keys, no matter how many
	// tokens name unknown keys.
	askAgain  = 30 * time.Second
	fetchTime = 20 * time.Second
	maxKeys   = 100
	minRSA    = 2048 // bits
)

type key = jose.JSONWebKey

// parseKeys parses a JSON web key set. It calls skip for each key that cannot sign tokens. If skip
// returns an error, parseKeys rejects the set.
func parseKeys(data []byte, skip func(i int, reason string) error) ([]key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New("not a JSON web key set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("more than %d keys", maxKeys)
	}
	var keys []key
	for i, raw := range set.Keys {
		k, reason := parseKey(raw)
		if reason == "" {
			keys = append(keys, k)
		} else if err := skip(i, reason); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// parseKey parses a key, or returns the reason why it cannot sign tokens.
func parseKey(raw []byte) (k key, reason string) {
	if err := k.UnmarshalJSON(raw); err != nil || !k.Valid() {
		return k, "has an unknown type or invalid members"
	}
	if k.Use != "" && k.Use != "sig" {
		return k, "is not for signing"
	}
	switch pub := k.Key.(type) {
	case *rsa.PublicKey:
		if pub.N.BitLen() < minRSA {
			return k, fmt.Sprintf("is an RSA key with fewer than %d bits", minRSA)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return k, "is not a public key"
	}
	return k, ""
}

type keyCache struct {
	fetch func(ctx context.Context, issuer store.OIDCIssuer) ([]key, error)
	mu    sync.Mutex
	of    map[string]*issuerKeys // by the issuer's id
}

type issuerKeys struct {
	modified time.Time     // the issuer's modification time; a later modification discards the keys
	turn     chan struct{} // held by the goroutine that fetches
	mu       sync.Mutex
	known    keySet
}

type keySet struct {
	keys    []key
	fetched time.Time
	asked   time.Time // time of the last fetch, which returned err
	err     error
}

func newKeyCache(fetch func(context.Context, store.OIDCIssuer) ([]key, error)) *keyCache {
	return &keyCache{fetch: fetch, of: map[string]*issuerKeys{}}
}

func (c *keyCache) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, id)
}

func (c *keyCache) entry(issuer store.OIDCIssuer) *issuerKeys {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.of[issuer.ID]
	if !ok || !e.modified.Equal(issuer.ModifiedAt) {
		e = &issuerKeys{modified: issuer.ModifiedAt, turn: make(chan struct{}, 1)}
		c.of[issuer.ID] = e
	}
	return e
}

func (e *issuerKeys) get() keySet {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known
}

func (e *issuerKeys) set(known keySet) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = known
}

func (k keySet) fresh() bool  { return time.Since(k.fetched) < keysFresh }
func (k keySet) usable() bool { return time.Since(k.fetched) < keysUsable }

// errNotNow reports that keys are unavailable and the caller may retry.
var errNotNow = errors.New("the issuer's keys are unavailable")

// find calls use with an issuer's keys until use returns true: first with cached keys, then, if a
// fetch is due, with new ones. A caller whose key is cached never waits for the issuer. The error
// is [errNotNow] or the context's. If found is false, settled reports whether the keys were fresh
// enough to make that result final.
func (c *keyCache) find(ctx context.Context, issuer store.OIDCIssuer, use func([]key) bool) (found, settled bool, err error) {
	entry := c.entry(issuer)
	if known := entry.get(); known.fresh() && use(known.keys) {
		return true, true, nil
	}
	select {
	case entry.turn <- struct{}{}:
		defer func() { <-entry.turn }()
	case <-ctx.Done():
		return false, false, ctx.Err()
	}
	known := entry.get() // another goroutine might have fetched the keys
	if time.Since(known.asked) >= askAgain {
		known = c.refresh(ctx, issuer, known)
		entry.set(known)
		settled = known.err == nil
	}
	switch {
	case known.usable() && use(known.keys):
		return true, true, nil
	case settled, known.fresh():
		return false, settled, nil
	default:
		return false, false, errors.Join(errNotNow, known.err)
	}
}

// refresh fetches the issuer's keys. It finishes even if the caller disconnects. Otherwise,
// disconnecting callers could prevent every refresh.
func (c *keyCache) refresh(ctx context.Context, issuer store.OIDCIssuer, known keySet) keySet {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	defer cancel()
	keys, err := c.fetch(ctx, issuer)
	known.asked, known.err = time.Now(), err
	if err == nil {
		known.keys, known.fetched = keys, known.asked
	}
	return known
}
