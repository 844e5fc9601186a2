package pools

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Tokens returns a pool's tokens, newest first, except those exchanged for an identity token: they
// expire soon, or with their issuer.
func (s *Service) Tokens(ctx context.Context, orgID, poolID string) ([]store.Token, error) {
	var out []store.Token
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		if _, err := tx.Pool(orgID, poolID); err != nil {
			return err
		}
		var err error
		out, err = tx.TokensOfPool(poolID)
		return err
	})
	return out, notFound(err, poolID)
}

// AddToken creates a token of a pool and returns its text, which is not stored, and its id. A zero
// time means no expiry.
func (s *Service) AddToken(ctx context.Context, p identity.Principal, orgID, poolID, description string, expires time.Time) (text, id string, err error) {
	if len(description) > 1000 || strings.ContainsRune(description, 0) {
		return "", "", fault.Invalid("Bad Request: the description of a token is at most 1000 bytes of text")
	}
	text, hash := identity.NewToken()
	t := store.Token{
		ID: identity.NewID(), Hash: hash, Kind: store.PoolToken, Description: description,
		OrgID: orgID, PoolID: poolID, CreatedBy: p.User.ID, ExpiresAt: expires,
	}
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		pool, err := tx.Pool(orgID, poolID)
		if err != nil {
			return err
		}
		t.Name, t.CreatedAt = pool.Name, tx.Now()
		if !expires.IsZero() && !expires.After(t.CreatedAt) {
			return fault.Invalid("Bad Request: the token would expire in the past")
		}
		return tx.InsertToken(t)
	})
	if err != nil {
		return "", "", notFound(err, poolID)
	}
	s.log.WithFields(logrus.Fields{"pool": poolID, "token": t.ID, "by": p.Name()}).Info("made a token of an agent pool")
	return text, t.ID, nil
}

// RevokeToken revokes a pool's token immediately, ending the held polls that used it on every
// server. Its claimed jobs have their own tokens and finish.
func (s *Service) RevokeToken(ctx context.Context, p identity.Principal, orgID, poolID, tokenID string) error {
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		t, err := tx.TokenByID(tokenID)
		if err != nil {
			return err
		}
		if t.Kind != store.PoolToken || t.OrgID != orgID || t.PoolID != poolID || t.IssuerID != "" {
			return store.ErrNotFound
		}
		tx.Notify(identity.PoolTokenTopic, orgID)
		return tx.DeleteToken(tokenID)
	})
	if errors.Is(err, store.ErrNotFound) {
		return fault.NotFound("Not Found: agent pool '%s' has no token '%s'", poolID, tokenID)
	}
	if err == nil {
		s.log.WithFields(logrus.Fields{"pool": poolID, "token": tokenID, "by": p.Name()}).Info("revoked a token of an agent pool")
	}
	return err
}
