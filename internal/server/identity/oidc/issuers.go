package oidc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	maxName        = 128
	maxURL         = 1024
	maxThumbprints = 20
	maxJWKS        = 256 << 10
)

// Registration describes an issuer to trust.
type Registration struct {
	Name, URL   string
	Thumbprints []string
	// MaxExpiration bounds the lifetime of tokens; 0 means [MaxLifetime].
	MaxExpiration time.Duration
	// JWKS are static keys as JSON; empty means that the issuer's keys are fetched.
	JWKS []byte
}

// Change lists changes to an issuer; nil leaves a member unchanged.
type Change struct {
	Name          *string
	Thumbprints   []string // empty but not nil removes all
	MaxExpiration *time.Duration
	JWKS          []byte // empty leaves the keys unchanged
}

// Register adds an issuer that an organization trusts. Its tokens cannot be exchanged until the
// issuer has policies. The issuer must be reachable unless the registration contains static keys.
func (s *Service) Register(ctx context.Context, p identity.Principal, org store.Organization, r Registration) (store.OIDCIssuer, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	issuer := store.OIDCIssuer{
		ID: identity.NewID(), OrgID: org.ID, Name: strings.TrimSpace(r.Name), URL: r.URL, Issuer: r.URL,
		Thumbprints: r.Thumbprints, MaxExpiration: r.MaxExpiration, JWKS: string(r.JWKS), CreatedAt: now, ModifiedAt: now,
	}
	if len(r.URL) > maxURL {
		return issuer, fault.Invalid("url: must be at most %d bytes long", maxURL)
	}
	if err := outbound.CheckBase(r.URL); err != nil {
		return issuer, fault.Invalid("url: %v", err)
	}
	if err := check(issuer); err != nil {
		return issuer, err
	}
	if issuer.JWKS == "" {
		d, err := s.discover(ctx, issuer.URL, issuer.Thumbprints)
		if err != nil {
			return issuer, fault.Invalid("url: the issuer cannot be used: %v", err)
		}
		issuer.Issuer = d.Issuer
	}
	policy := store.OIDCPolicy{ID: identity.NewID(), IssuerID: issuer.ID, Version: 1, Document: "[]", CreatedAt: now, ModifiedAt: now}
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		if err := tx.InsertOIDCIssuer(issuer); err != nil {
			return err
		}
		if err := tx.InsertOIDCPolicy(policy); err != nil {
			return err
		}
		return recordIssuer(ctx, tx, audit.IssuerCreated, issuer)
	})
	if errors.Is(err, store.ErrConflict) {
		return issuer, fault.Conflict("url: this organization already trusts the issuer %s", issuer.Issuer)
	}
	if err != nil {
		return issuer, fmt.Errorf("registering an OIDC issuer: %w", err)
	}
	s.log.WithFields(logrus.Fields{"issuer": issuer.Issuer, "id": issuer.ID, "org": org.Name, "by": p.Name()}).Info("registered an OIDC issuer")
	return issuer, nil
}

func recordIssuer(ctx context.Context, tx *store.Tx, action audit.Action, issuer store.OIDCIssuer) error {
	return audit.Record(ctx, tx, audit.Entry{
		OrgID: issuer.OrgID, Action: action, Subject: audit.Subject{Kind: "issuer", ID: issuer.ID, Name: issuer.Name}, Detail: map[string]any{"issuer": issuer.Issuer},
	})
}

// check validates the fields that an administrator can set.
func check(i store.OIDCIssuer) error {
	switch {
	case i.Name == "":
		return fault.Invalid("name: is required")
	case len(i.Name) > maxName, strings.ContainsFunc(i.Name, unicode.IsControl):
		return fault.Invalid("name: must be one line of at most %d bytes", maxName)
	case i.MaxExpiration < 0, i.MaxExpiration > MaxLifetime:
		return fault.Invalid("maxExpiration: must be between 1 and %d seconds", int64(MaxLifetime.Seconds()))
	case len(i.Thumbprints) > maxThumbprints:
		return fault.Invalid("thumbprints: at most %d are allowed", maxThumbprints)
	case len(i.JWKS) > maxJWKS:
		return fault.Invalid("jwks: must be at most %d bytes long", maxJWKS)
	}
	for n, t := range i.Thumbprints {
		if _, ok := outbound.NormalThumbprint(t); !ok {
			return fault.Invalid("thumbprints[%d]: must be the SHA-256 of a TLS certificate in 64 hexadecimal digits, as printed by openssl x509 -fingerprint -sha256", n)
		}
	}
	if i.JWKS == "" {
		return nil
	}
	keys, err := parseKeys([]byte(i.JWKS), func(n int, reason string) error {
		return fault.Invalid("jwks.keys[%d]: %s; use a public RSA, EC or Ed25519 key", n, reason)
	})
	if fault.KindOf(err) != "" {
		return err
	}
	if err != nil {
		return fault.Invalid("jwks: %v", err)
	}
	if len(keys) == 0 {
		return fault.Invalid("jwks.keys: at least one key is required")
	}
	return nil
}

// Issuers returns the issuers that an organization trusts, oldest first.
func (s *Service) Issuers(ctx context.Context, orgID string) ([]store.OIDCIssuer, error) {
	return read(ctx, s.db, "listing OIDC issuers", func(tx *store.Tx) ([]store.OIDCIssuer, error) {
		return tx.OIDCIssuers(orgID)
	})
}

// Issuer returns an organization's issuer by its id.
func (s *Service) Issuer(ctx context.Context, orgID, id string) (store.OIDCIssuer, error) {
	issuer, err := read(ctx, s.db, "reading an OIDC issuer", func(tx *store.Tx) (store.OIDCIssuer, error) {
		return tx.OIDCIssuer(orgID, id)
	})
	return issuer, issuerNotFound(err, id)
}

// Update changes an issuer. Issued tokens keep their lifetimes.
func (s *Service) Update(ctx context.Context, p identity.Principal, orgID, id string, c Change) (store.OIDCIssuer, error) {
	var issuer store.OIDCIssuer
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		var err error
		if issuer, err = tx.OIDCIssuer(orgID, id); err != nil {
			return err
		}
		if c.Name != nil {
			issuer.Name = strings.TrimSpace(*c.Name)
		}
		if c.Thumbprints != nil {
			issuer.Thumbprints = c.Thumbprints
		}
		if c.MaxExpiration != nil {
			issuer.MaxExpiration = *c.MaxExpiration
		}
		if len(c.JWKS) > 0 {
			if issuer.JWKS == "" {
				return fault.Invalid("jwks: the keys of this issuer are fetched from it; to use static keys, delete the issuer and register it again")
			}
			issuer.JWKS = string(c.JWKS)
		}
		if err := check(issuer); err != nil {
			return err
		}
		issuer.ModifiedAt = time.Now().UTC().Truncate(time.Microsecond)
		if err := tx.UpdateOIDCIssuer(issuer); err != nil {
			return err
		}
		return recordIssuer(ctx, tx, audit.IssuerChanged, issuer)
	})
	if err != nil {
		return issuer, issuerNotFound(err, id)
	}
	s.log.WithFields(logrus.Fields{"issuer": issuer.Issuer, "id": id, "by": p.Name()}).Info("changed an OIDC issuer")
	return issuer, nil
}

// Delete removes an issuer and its policies, and revokes all tokens exchanged for its tokens.
func (s *Service) Delete(ctx context.Context, p identity.Principal, orgID, id string) error {
	var revoked int64
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		issuer, err := tx.OIDCIssuer(orgID, id)
		if err != nil {
			return err
		}
		if err := tx.DeleteOIDCIssuer(orgID, id); err != nil {
			return err
		}
		if err := recordIssuer(ctx, tx, audit.IssuerDeleted, issuer); err != nil {
			return err
		}
		revoked, err = tx.DeleteTokensOfIssuer(id)
		tx.Notify(identity.PoolTokenTopic, orgID)
		return err
	})
	if err != nil {
		return issuerNotFound(err, id)
	}
	s.keys.forget(id)
	s.log.WithFields(logrus.Fields{"id": id, "revoked": revoked, "by": p.Name()}).Info("deleted an OIDC issuer")
	return nil
}

// RegenerateThumbprints replaces an issuer's thumbprints with the thumbprints of its current
// certificates. A certificate authority or the old thumbprints must already trust these
// certificates.
func (s *Service) RegenerateThumbprints(ctx context.Context, p identity.Principal, orgID, id string) (store.OIDCIssuer, error) {
	issuer, err := s.Issuer(ctx, orgID, id)
	if err != nil {
		return issuer, err
	}
	if issuer.JWKS != "" {
		return issuer, fault.Invalid("issuer jwks are statically configured, can't regenerate thumbprints")
	}
	d, err := s.discoverKnown(ctx, issuer)
	if err != nil {
		return issuer, fault.Invalid("the issuer cannot be used: %v", err)
	}
	if len(d.Thumbprints) == 0 {
		return issuer, fault.Invalid("the issuer is reached without TLS and has no thumbprints")
	}
	return s.Update(ctx, p, orgID, id, Change{Thumbprints: d.Thumbprints})
}

// WarnOfKept logs the issuers that may be in any network, because they are older than the server's
// rule for outgoing calls.
func (s *Service) WarnOfKept(ctx context.Context) error {
	kept, err := read(ctx, s.db, "listing OIDC issuers", func(tx *store.Tx) ([]store.OIDCIssuer, error) { return tx.KeptOIDCIssuers() })
	for _, i := range kept {
		s.log.WithFields(logrus.Fields{"issuer": i.ID, "name": i.Name, "org_id": i.OrgID, "url": i.URL}).
			Warn("an OIDC issuer is older than the setting outbound_networks, so its host may be in any network: to end this, add the network to the setting if it is internal, and register the issuer again")
	}
	return err
}
