// Package oidc exchanges identity tokens of external OpenID Connect issuers for the server's
// short-lived tokens, and manages trusted issuers and the policies for their tokens.
package oidc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
)

const (
	// DefaultLifetime is the lifetime of a token whose exchange requested none.
	DefaultLifetime = 2 * time.Hour
	// MaxLifetime bounds the lifetime of all exchanged tokens.
	MaxLifetime = 25 * time.Hour
	// skew is the tolerated difference between clocks.
	skew = 30 * time.Second
)

// Fetcher fetches documents of issuers; see [outbound.Client.Get].
type Fetcher interface {
	Get(ctx context.Context, address string, thumbprints []string) (outbound.Document, error)
}

// Service manages issuers and exchanges their tokens.
type Service struct {
	db    *store.DB
	log   *logrus.Entry
	fetch Fetcher
	keys  *keyCache
}

// New returns a service on a database.
func New(db *store.DB, fetch Fetcher, log *logrus.Entry) *Service {
	s := &Service{db: db, log: log, fetch: fetch}
	s.keys = newKeyCache(s.fetchKeys)
	return s
}

func issuerNotFound(err error, id string) error {
	return store.IfMissing(err, fault.NotFound("oidc issuer '%s' not found", id))
}

func read[T any](ctx context.Context, db *store.DB, attempt string, fn func(*store.Tx) (T, error)) (T, error) {
	v, err := store.Read(ctx, db, fn)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%s: %w", attempt, err)
	}
	return v, err
}
