package identity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// PoolTokenTopic is the notification channel for what open polls must check again: pool tokens that
// were revoked, and agents that were drained. The payload is the organization's id.
const PoolTokenTopic = "pool-tokens"

// SessionTopic is the notification channel for sessions that have ended. The payload is the user's id.
const SessionTopic = "sessions"

// NewTokenSpec describes a token to create. The kind determines which fields apply.
type NewTokenSpec struct {
	Kind        store.TokenKind
	Name        string // organization and team tokens
	TeamID      string // team tokens
	Description string
	OrgID       string // organization and team tokens
	UserID      string // personal tokens
	Admin       bool   // organization tokens
	CreatedBy   string // user id
	Expires     time.Time
}

// maxTokenYears bounds the lifetime of tokens. Later expiries are mistakes, such as milliseconds
// instead of seconds, and clients cannot show years above 9999.
const maxTokenYears = 100

// CheckExpiry returns an error unless a token that is created now can expire at a time. The zero
// time means never.
func CheckExpiry(expires, now time.Time) error {
	switch {
	case expires.IsZero():
		return nil
	case !expires.After(now):
		return fault.Invalid("the token's expiry is in the past")
	case expires.After(now.AddDate(maxTokenYears, 0, 0)):
		return fault.Invalid("the token's expiry is more than %d years away; check that it is in seconds, or use 0 for a token that never expires", maxTokenYears)
	}
	return nil
}

// CreateToken creates a token. It returns the token's text, which is not stored, and the id.
func (s *Service) CreateToken(ctx context.Context, spec NewTokenSpec) (text, id string, err error) {
	if len(spec.Name) > 100 || len(spec.Description) > 1000 {
		return "", "", fault.Invalid("the token's name or description is too long")
	}
	text, hash := NewToken()
	t := store.Token{
		ID: NewID(), Hash: hash, Kind: spec.Kind, Name: spec.Name, Description: spec.Description,
		OrgID: spec.OrgID, UserID: spec.UserID, Admin: spec.Admin, CreatedBy: spec.CreatedBy,
		ExpiresAt: spec.Expires, TeamID: spec.TeamID,
	}
	err = s.db.Write(ctx, ownerOf(t), func(tx *store.Tx) error {
		t.CreatedAt = tx.Now()
		if err := CheckExpiry(t.ExpiresAt, t.CreatedAt); err != nil {
			return err
		}
		if t.UserID != "" {
			if err := checkEnabled(tx, t.UserID); err != nil {
				return err
			}
		}
		if t.TeamID != "" {
			if _, err := tx.Team(t.TeamID); err != nil {
				return store.IfMissing(err, fault.NotFound("the team was deleted"))
			}
		}
		if err := tx.InsertToken(t); err != nil {
			return err
		}
		return recordToken(ctx, tx, audit.TokenCreated, t)
	})
	if err != nil {
		return "", "", fmt.Errorf("creating a token: %w", err)
	}
	return text, t.ID, nil
}

// ownerOf returns the owner of a token, which never changes.
func ownerOf(t store.Token) scope.Set {
	switch {
	case t.StackID != "":
		return scope.Stack(t.OrgID, t.StackID)
	case t.OrgID != "":
		return scope.Organization(t.OrgID)
	default:
		return scope.User(t.UserID)
	}
}

func recordToken(ctx context.Context, tx *store.Tx, action audit.Action, t store.Token) error {
	detail := map[string]any{"kind": t.Kind, "description": t.Description}
	if t.Admin {
		detail["admin"] = true
	}
	if !t.ExpiresAt.IsZero() {
		detail["expires"] = t.ExpiresAt.UTC().Format(time.RFC3339)
	}
	name := cmp.Or(t.Name, t.Description)
	return audit.Record(ctx, tx, audit.Entry{OrgID: t.OrgID, Action: action, Subject: audit.Subject{Kind: "token", ID: t.ID, Name: name}, Detail: detail})
}

// Tokens returns up to f.Limit of the selected tokens, newest first, and whether more follow.
func (s *Service) Tokens(ctx context.Context, f store.TokenFilter) (list []store.Token, more bool, err error) {
	limit := f.Limit
	f.Limit++
	list, err = store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Token, error) { return tx.Tokens(f) })
	if err != nil {
		return nil, false, fmt.Errorf("listing tokens: %w", err)
	}
	return list[:min(limit, len(list))], len(list) > limit, nil
}

// DeleteToken removes a token by its id. It reports the token as missing if match returns false.
func (s *Service) DeleteToken(ctx context.Context, id string, match func(store.Token) bool) error {
	t, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Token, error) { return tx.TokenByID(id) })
	if err == nil && !match(t) {
		err = store.ErrNotFound
	}
	if err == nil {
		err = s.db.Write(ctx, ownerOf(t), func(tx *store.Tx) error {
			if err := tx.DeleteToken(id); err != nil {
				return err
			}
			if t.Kind == store.PoolToken {
				tx.Notify(PoolTokenTopic, t.OrgID) // open polls must end
			}
			return recordToken(ctx, tx, audit.TokenRevoked, t)
		})
	}
	return store.IfMissing(err, fault.NotFound("the token %q does not exist", id))
}

// DeleteExpired removes tokens that expired more than a day ago, in several transactions.
func (s *Service) DeleteExpired(ctx context.Context) error {
	return s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteExpiredTokens(tx.Now().Add(-24*time.Hour), limit)
	})
}

// SetPreferences sets how a user wants to see the console. A zone that does not exist is an error of kind
// [fault.KindInvalid].
func (s *Service) SetPreferences(ctx context.Context, u store.User) error {
	if _, err := time.LoadLocation(u.Zone); err != nil || len(u.Zone) > maxZone || u.Zone == "Local" {
		return fault.Invalid("no time zone has this name: it is one like Europe/Berlin, or UTC")
	}
	if u.Density != "" && u.Density != store.Compact || !slices.Contains([]string{"", "system", "light", "dark"}, u.Scheme) {
		return fault.Invalid("the console has no such density or scheme")
	}
	return s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error { return tx.SetPreferences(u) })
}

// maxZone bounds the name of a time zone, in bytes.
const maxZone = 64

// SetDefaultOrg sets a user's default organization.
func (s *Service) SetDefaultOrg(ctx context.Context, userID, org string) error {
	return s.db.Write(ctx, scope.User(userID), func(tx *store.Tx) error { return tx.SetDefaultOrg(userID, org) })
}
