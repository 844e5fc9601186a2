package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/outbound"
)

// Fetcher fetches documents; see [outbound.Client.Get].
type Fetcher interface {
	Get(ctx context.Context, address string, thumbprints []string) (outbound.Document, error)
}

// DiffersError reports documents that are not those of this issuer.
type DiffersError struct{ text string }

// Error implements error.
func (e *DiffersError) Error() string { return e.text }

func differs(format string, args ...any) error { return &DiffersError{fmt.Sprintf(format, args...)} }

// Check fetches the documents from the issuer's URL, and returns an error if verifiers would reject
// tokens because of them.
func (s *Service) Check(ctx context.Context, fetch Fetcher) error {
	return s.check(ctx, fetch, s.Configuration())
}

// CheckCustom is [Service.Check] for the issuer at [Service.CustomURL].
func (s *Service) CheckCustom(ctx context.Context, fetch Fetcher) error {
	return s.check(ctx, fetch, s.CustomConfiguration())
}

func (s *Service) check(ctx context.Context, fetch Fetcher, want Configuration) error {
	if s.CheckClouds() != nil {
		return fmt.Errorf("cloud providers trust only issuers with https, and the issuer is %s: set oidc_issuer_url to an https URL", s.opts.URL)
	}
	address := want.Issuer + ConfigurationPath
	var published Configuration
	if err := get(ctx, fetch, address, &published); err != nil {
		return err
	}
	if published.Issuer != want.Issuer {
		return differs("the document at %s names the issuer %q instead of %q: set external_url or oidc_issuer_url to the published issuer, or export the documents again",
			address, published.Issuer, want.Issuer)
	}
	// The document could name any address, also an internal one.
	if published.KeysURL != want.KeysURL {
		return differs("the document at %s names the keys at %q instead of %q: export the documents again, or check what answers at that URL",
			address, published.KeysURL, want.KeysURL)
	}
	var set jose.JSONWebKeySet
	if err := get(ctx, fetch, published.KeysURL, &set); err != nil {
		return err
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return errors.New("the server has no signing key yet: start it once")
	}
	for _, k := range keys {
		if len(set.Key(k.ID)) == 0 {
			return differs("the document at %s lacks the key %s: export the documents again, or check what answers at that URL", published.KeysURL, k.ID)
		}
	}
	return nil
}

func get(ctx context.Context, fetch Fetcher, address string, into any) error {
	doc, err := fetch.Get(ctx, address, nil)
	if err != nil {
		return fmt.Errorf("fetching %s: %w", address, err)
	}
	if err := json.Unmarshal(doc.Body, into); err != nil {
		return differs("the document at %s is not the expected JSON object: export the documents again, or check what answers at that URL", address)
	}
	return nil
}
