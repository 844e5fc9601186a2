package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// PoolTokenTopic is the channel of notes about ended pool tokens, by organization id.
const PoolTokenTopic = "pool-tokens"

// NewTokenSpec describes a token to create. Which members apply depends on the kind.
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

// CreateToken creates a token and returns its text, which is not stored, and its id.
func (s *Service) CreateToken(ctx context.Context, spec NewTokenSpec) (text, id string, err error) {
	if len(spec.Name) > 100 || len(spec.Description) > 1000 {
		return "", "", fault.Invalid("Bad Request: the name or description of the token is too long")
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
			return fault.Invalid("Bad Request: the token would expire in the past")
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
	var out []store.Token
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		out, err = tx.TokensOfUser(userID)
		return err
	})
	return out, err
}

// OrgTokens returns the tokens of an organization or, if team is set, of that team, newest first.
func (s *Service) OrgTokens(ctx context.Context, orgID, team string) ([]store.Token, error) {
	kind := store.OrgToken
	if team != "" {
		kind = store.TeamToken
	}
	var all []store.Token
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		all, err = tx.TokensOfOrg(orgID, kind)
		return err
	})
	if team == "" || err != nil {
		return all, err
	}
	out := all[:0]
	for _, t := range all {
		if t.Description == team {
			out = append(out, t)
		}
	}
	return out, nil
}

// DeleteToken removes a token by id if match returns true, else reports it as missing.
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
		return fault.NotFound("Not Found: there is no token %q", id)
	}
	return err
}

// DeleteExpired removes tokens expired for more than a day, some in each write.
func (s *Service) DeleteExpired(ctx context.Context) error {
	return s.db.WriteInPieces(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteExpiredTokens(tx.Now().Add(-24*time.Hour), limit)
	})
}

// SetDefaultOrg sets a user's default organization.
func (s *Service) SetDefaultOrg(ctx context.Context, userID, org string) error {
	return s.db.Write(ctx, func(tx *store.Tx) error { return tx.SetDefaultOrg(userID, org) })
}

// MemberInfo is a member of an organization and the user.
type MemberInfo struct {
	store.Member
	User store.User
}

// Members returns the members of an organization.
func (s *Service) Members(ctx context.Context, orgID string) ([]MemberInfo, error) {
	var out []MemberInfo
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		out = nil
		members, err := tx.Members(orgID)
		if err != nil {
			return err
		}
		for _, m := range members {
			u, err := tx.User(m.UserID)
			if err != nil {
				return err
			}
			out = append(out, MemberInfo{Member: m, User: u})
		}
		return nil
	})
	return out, err
}
