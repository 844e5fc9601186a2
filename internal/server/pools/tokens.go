package pools

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Tokens returns a pool's tokens, newest first. It omits exchanged tokens, which are short-lived
// and are revoked with their issuer.
func (s *Service) Tokens(ctx context.Context, orgID, poolID string) ([]store.Token, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Token, error) {
		if _, err := tx.Pool(orgID, poolID); err != nil {
			return nil, err
		}
		return tx.Tokens(store.TokenFilter{Kind: store.PoolToken, PoolID: poolID})
	})
	return out, notFound(err, poolID)
}

// AddToken creates a pool token. It returns the token's text, which is not stored, and the id. A
// token with a zero expiry never expires.
func (s *Service) AddToken(ctx context.Context, p identity.Principal, orgID, poolID, description string, expires time.Time) (text, id string, err error) {
	if len(description) > 1000 || strings.ContainsRune(description, 0) {
		return "", "", fault.Invalid("the description of a token must be text of at most 1000 bytes")
	}
	text, hash := identity.NewToken()
	t := store.Token{
		ID: identity.NewID(), Hash: hash, Kind: store.PoolToken, Description: description,
		OrgID: orgID, PoolID: poolID, CreatedBy: p.User.ID, ExpiresAt: expires,
	}
	err = s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		pool, err := tx.Pool(orgID, poolID)
		if err != nil {
			return err
		}
		t.Name, t.CreatedAt = pool.Name, tx.Now()
		if err := identity.CheckExpiry(expires, t.CreatedAt); err != nil {
			return err
		}
		changed(tx, orgID, poolID)
		if err := tx.InsertToken(t); err != nil {
			return err
		}
		return recordToken(ctx, tx, audit.TokenCreated, t)
	})
	if err != nil {
		return "", "", notFound(err, poolID)
	}
	s.log.WithFields(logrus.Fields{"pool": poolID, "token": t.ID, "by": p.Name()}).Info("created an agent pool token")
	return text, t.ID, nil
}

func recordToken(ctx context.Context, tx *store.Tx, action audit.Action, t store.Token) error {
	return audit.Record(ctx, tx, audit.Entry{
		OrgID: t.OrgID, Action: action, Subject: audit.Subject{Kind: "token", ID: t.ID, Name: t.Name},
		Detail: map[string]any{"kind": t.Kind, "pool": t.PoolID, "description": t.Description},
	})
}

// RevokeToken revokes a pool token immediately, and cancels held polls that use the token on all
// servers. Claimed jobs have their own tokens and finish.
func (s *Service) RevokeToken(ctx context.Context, p identity.Principal, orgID, poolID, tokenID string) error {
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		t, err := tx.TokenByID(tokenID)
		if err != nil {
			return err
		}
		if t.Kind != store.PoolToken || t.OrgID != orgID || t.PoolID != poolID || t.IssuerID != "" {
			return store.ErrNotFound
		}
		tx.Notify(identity.PoolTokenTopic, orgID)
		changed(tx, orgID, poolID)
		if err := tx.DeleteToken(tokenID); err != nil {
			return err
		}
		return recordToken(ctx, tx, audit.TokenRevoked, t)
	})
	if errors.Is(err, store.ErrNotFound) {
		return fault.NotFound("agent pool '%s' has no token '%s'", poolID, tokenID)
	}
	if err == nil {
		s.log.WithFields(logrus.Fields{"pool": poolID, "token": tokenID, "by": p.Name()}).Info("revoked an agent pool token")
	}
	return err
}

// Revoker revokes tokens of all kinds.
type Revoker struct {
	Identity *identity.Service
	Pools    *Service
}

// Revoke revokes a token of a user, an organization, a team or a pool.
func (r Revoker) Revoke(ctx context.Context, p identity.Principal, t store.Token) error {
	if t.Kind == store.PoolToken && t.IssuerID == "" {
		return r.Pools.RevokeToken(ctx, p, t.OrgID, t.PoolID, t.ID)
	}
	return r.Identity.DeleteToken(ctx, t.ID, func(store.Token) bool { return true })
}
