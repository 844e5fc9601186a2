package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
)

// wellKnown is the path of an issuer's OpenID configuration, relative to its URL.
const wellKnown = "/.well-known/openid-configuration"

type discovered struct {
	Issuer      string
	Keys        []key
	Thumbprints []string // of the certificates that the issuer presented
}

// discover fetches an issuer's OpenID configuration and keys. Its errors are shown to the
// administrator who registered the issuer, so they contain no part of the response.
func (s *Service) discover(ctx context.Context, url string, thumbprints []string) (discovered, error) {
	var d discovered
	body, err := s.document(ctx, &d, strings.TrimSuffix(url, "/")+wellKnown, thumbprints)
	if err != nil {
		return d, fmt.Errorf("fetching its OpenID configuration: %w", err)
	}
	var doc struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return d, errors.New("its OpenID configuration is not a valid JSON object")
	}
	if strings.TrimSuffix(doc.Issuer, "/") != strings.TrimSuffix(url, "/") {
		return d, errors.New("its OpenID configuration names a different issuer")
	}
	// A remote issuer must not make the server call services on this machine.
	if strings.HasPrefix(url, "https:") && !strings.HasPrefix(doc.JWKSURI, "https:") {
		return d, errors.New("the address of its keys does not begin with https://")
	}
	d.Issuer = doc.Issuer
	if body, err = s.document(ctx, &d, doc.JWKSURI, thumbprints); err != nil {
		return d, fmt.Errorf("fetching its keys: %w", err)
	}
	d.Keys, err = parseKeys(body, func(int, string) error { return nil })
	if err != nil {
		return d, fmt.Errorf("reading its keys: %w", err)
	}
	if len(d.Keys) == 0 {
		return d, errors.New("it publishes no key for signing tokens")
	}
	return d, nil
}

// discoverKnown is like discover, for an issuer that is registered.
func (s *Service) discoverKnown(ctx context.Context, issuer store.OIDCIssuer) (discovered, error) {
	if issuer.KeepsHost {
		ctx = outbound.KeepHost(ctx, issuer.URL)
	}
	return s.discover(ctx, issuer.URL, issuer.Thumbprints)
}

func (s *Service) document(ctx context.Context, d *discovered, address string, thumbprints []string) ([]byte, error) {
	doc, err := s.fetch.Get(ctx, address, thumbprints)
	if err != nil {
		return nil, err
	}
	if doc.Thumbprint != "" && !slices.Contains(d.Thumbprints, doc.Thumbprint) {
		d.Thumbprints = append(d.Thumbprints, doc.Thumbprint)
	}
	return doc.Body, nil
}

func (s *Service) fetchKeys(ctx context.Context, issuer store.OIDCIssuer) ([]key, error) {
	d, err := s.discoverKnown(ctx, issuer)
	if err == nil && d.Issuer != issuer.Issuer {
		err = errors.New("its OpenID configuration does not name the issuer that was registered")
	}
	if err != nil {
		s.log.WithError(err).WithField("issuer", issuer.Issuer).Warn("fetching an OIDC issuer's keys failed")
		return nil, err
	}
	return d.Keys, nil
}
