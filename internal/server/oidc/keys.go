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
	// keysFresh is how long fetched keys are used without asking again.
	keysFresh = 10 * time.Minute
	// keysUsable is how long they are used while the issuer does not answer.
	keysUsable = time.Hour
	// askAgain is the shortest pause between two fetches of an issuer's keys,
	// whatever tokens come along.
	askAgain = 30 * time.Second
	// fetchTime bounds the fetches for one refresh.
	fetchTime = 20 * time.Second
	maxKeys   = 100
	minRSA    = 2048 // bits
)

// key is a public key that may have signed a token.
type key = jose.JSONWebKey

// parseKeys reads a JSON web key set. Each key that cannot sign tokens is
// handed to skip, which may refuse the set.
func parseKeys(data []byte, skip func(i int, reason string) error) ([]key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New("it is no JSON web key set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it holds more than %d keys", maxKeys)
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

// parseKey reads one key, or returns why it cannot sign tokens.
func parseKey(raw []byte) (k key, reason string) {
	if err := k.UnmarshalJSON(raw); err != nil || !k.Valid() {
		return k, "it is no key that is known here"
	}
	if k.Use != "" && k.Use != "sig" {
		return k, "its use is not to sign"
	}
	switch pub := k.Key.(type) {
	case *rsa.PublicKey:
		if pub.N.BitLen() < minRSA {
			return k, fmt.Sprintf("an RSA key needs %d bits", minRSA)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return k, "it is not a public key"
	}
	return k, ""
}

// keyCache remembers the keys that issuers publish.
type keyCache struct {
	fetch func(ctx context.Context, issuer store.OIDCIssuer) ([]key, error)
	mu    sync.Mutex
	of    map[string]*issuerKeys // by the issuer's id
}

// issuerKeys are the known keys of one issuer.
type issuerKeys struct {
	modified time.Time     // of the issuer: keys of an older state are not used
	turn     chan struct{} // held by the goroutine that asks the issuer
	mu       sync.Mutex
	known    keySet
}

// keySet is keys and when they came.
type keySet struct {
	keys    []key
	fetched time.Time
	asked   time.Time // when they were last asked for, and err came of it
	err     error
}

func newKeyCache(fetch func(context.Context, store.OIDCIssuer) ([]key, error)) *keyCache {
	return &keyCache{fetch: fetch, of: map[string]*issuerKeys{}}
}

// forget drops the known keys of an issuer.
func (c *keyCache) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, id)
}

// entry returns the known keys of an issuer.
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

// errNotNow means that keys were not available, and that the caller may retry.
var errNotNow = errors.New("the issuer's keys cannot be had at the moment")

// find calls use with the keys of an issuer until it is content: first with
// those that are known, then, if it is time to ask the issuer again, with fresh
// ones. A caller that the known keys satisfy never waits for the issuer. The
// error is [errNotNow], or the context's. A result of false with settled says
// that the keys were fresh enough for this to be final.
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
	known := entry.get() // another goroutine may have asked meanwhile
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

// refresh asks the issuer. It finishes even if the caller disconnects:
// otherwise callers that disconnect could keep fresh keys from all others.
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
