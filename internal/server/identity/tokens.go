package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// PoolTokenTopic is the notification channel for revoked and expired pool tokens. The payload is
// the organization's id.
const PoolTokenTopic = "pool-tokens"

// NewTokenSpec describes a token to create. The kind determines which fields apply.
type NewTokenSpec struct {
	Kind        store.TokenKind
	Name        string // organization and team tokens
	Team        string // team tokens
	Description string
	OrgID       string // organization and team tokens
	UserID      string // personal tokens
	Admin       bool   // organization tokens
	CreatedBy   string // user id
	Expires     time.Time
}

// CreateToken creates a token. It returns the token's text, which is not stored, and the id.
func (s *Service) CreateToken(ctx context.Context, spec NewTokenSpec) (text, id string, err error) {
	if len(spec.Name) > 100 || len(spec.Description) > 1000 {
		return "", "", fault.Invalid("Bad Request: the token's name or description is too long")
	}
	text, hash := NewToken()
	t := store.Token{
		ID: NewID(), Hash: hash, Kind: spec.Kind, Name: spec.Name, Description: spec.Description,
		OrgID: spec.OrgID, UserID: spec.UserID, Admin: spec.Admin, CreatedBy: spec.CreatedBy,
		ExpiresAt: spec.Expires,
	}
	if spec.Kind == store.TeamToken {
		t.Description = spec.Team
	}
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		t.CreatedAt = tx.Now()
		if expired(t, t.CreatedAt) {
			return fault.Invalid("Bad Request: the token's expiry is in the past")
		}
		return tx.InsertToken(t)
	})
	if err != nil {
		return "", "", fmt.Errorf("creating a token: %w", err)
	}
	return text, t.ID, nil
}

// PersonalTokens returns a user's tokens, newest first.
func (s *Service) PersonalTokens(ctx context.Context, userID string) ([]store.Token, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Token, error) { return tx.TokensOfUser(userID) })
}

// OrgTokens returns the tokens of an organization or, if team is set, of that team, newest first.
func (s *Service) OrgTokens(ctx context.Context, orgID, team string) ([]store.Token, error) {
	kind := store.OrgToken
	if team != "" {
		kind = store.TeamToken
	}
	all, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Token, error) { return tx.TokensOfOrg(orgID, kind) })
	return slices.DeleteFunc(all, func(t store.Token) bool { return team != "" && t.Description != team }), err
}

// DeleteToken removes a token by its id. It reports the token as missing if match returns false.
func (s *Service) DeleteToken(ctx context.Context, id string, match func(store.Token) bool) error {
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		t, err := tx.TokenByID(id)
		if err != nil {
			return err
		}
		if !match(t) {
			return store.ErrNotFound
		}
		return tx.DeleteToken(id)
	})
	if errors.Is(err, store.ErrNotFound) {
		return fault.NotFound("Not Found: the token %q does not exist", id)
	}
	return err
}

// DeleteExpired removes tokens that expired more than a day ago, in several transactions.
func (s *Service) DeleteExpired(ctx context.Context) error {
	return s.db.WriteInPieces(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteExpiredTokens(tx.Now().Add(-24*time.Hour), limit)
	})
}

// SetDefaultOrg sets a user's default organization.
func (s *Service) SetDefaultOrg(ctx context.Context, userID, org string) error {
	return s.db.Write(ctx, func(tx *store.Tx) error { return tx.SetDefaultOrg(userID, org) })
}

// MemberInfo is an organization member, together with the member's user.
type MemberInfo struct {
	store.Member
	User store.User
}

// Members returns the members of an organization.
func (s *Service) Members(ctx context.Context, orgID string) ([]MemberInfo, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (out []MemberInfo, err error) {
		members, err := tx.Members(orgID)
		for _, m := range members {
			u, err := tx.User(m.UserID)
			if err != nil {
				return nil, err
			}
			out = append(out, MemberInfo{Member: m, User: u})
		}
		return out, err
	})
}
