package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// TokenKind is a kind of tokens that a restored installation revokes together.
type TokenKind string

// The kinds of tokens.
const (
	AccessTokens    TokenKind = "access"    // of users, organizations and teams
	PoolTokens      TokenKind = "pool"      // of agent pools
	ExchangedTokens TokenKind = "exchanged" // for identity tokens of other issuers
)

// TokenKinds returns all kinds.
func TokenKinds() []TokenKind { return []TokenKind{AccessTokens, PoolTokens, ExchangedTokens} }

func kindOf(t store.ListedToken) TokenKind {
	switch {
	case t.Exchanged:
		return ExchangedTokens
	case t.Kind == store.PoolToken:
		return PoolTokens
	}
	return AccessTokens
}

// Revoked is the number of tokens that were revoked, by their kinds.
type Revoked map[TokenKind]int

// Tokens revoke a token, and record that in the audit log.
type Tokens interface {
	Revoke(ctx context.Context, p identity.Principal, t store.Token) error
}

// Tokens returns up to limit of the valid tokens of the backup that belong to an organization, or of all if orgID is "",
// newest first. Those that were revoked since the backup are valid again.
func (s *Service) Tokens(ctx context.Context, orgID string, limit int) (list []store.ListedToken, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		list = nil
		r, err := load(tx)
		if err != nil || r == nil {
			return err
		}
		list, err = tx.ListTokens(store.TokenSelection{OrgID: orgID, ValidAt: r.Backup, Limit: limit})
		return err
	})
	return list, err
}

// RevokeTokens is like the function of this name.
func (s *Service) RevokeTokens(ctx context.Context, with Tokens, p identity.Principal, orgID string, kinds []TokenKind) (Revoked, error) {
	return RevokeTokens(ctx, s.db, with, p, orgID, kinds)
}

// RevokeTokens revokes the valid tokens of the backup that belong to an organization, or all if orgID is "", and have
// one of the kinds. Tokens that were created since the restore remain. If it returns an error, it can be repeated.
func RevokeTokens(ctx context.Context, db *store.DB, with Tokens, p identity.Principal, orgID string, kinds []TokenKind) (Revoked, error) {
	for _, k := range kinds {
		if !slices.Contains(TokenKinds(), k) {
			return nil, fault.Invalid("%q is not a kind of tokens; use some of %s", k, kindNames())
		}
	}
	if len(kinds) == 0 {
		return nil, fault.Invalid("name the kinds of the tokens to revoke: some of %s", kindNames())
	}
	r, err := Read(ctx, db)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fault.Conflict("no tokens are to be revoked: the installation was not restored from a backup")
	}
	revoked := Revoked{}
	f := store.TokenSelection{OrgID: orgID, ValidAt: r.Backup, Limit: piece}
	for {
		found, err := store.Read(ctx, db, func(tx *store.Tx) ([]store.ListedToken, error) { return tx.ListTokens(f) })
		if err != nil {
			return revoked, fault.While(err, "listing the tokens of the backup")
		}
		for _, t := range found {
			f.After = t
			if !slices.Contains(kinds, kindOf(t)) {
				continue
			}
			if err := revoke(ctx, db, with, p, t.ID); err != nil {
				return revoked, fmt.Errorf("revoking the token %s: %w", t.ID, err)
			}
			revoked[kindOf(t)]++
		}
		if len(found) < piece {
			return revoked, nil
		}
	}
}

func revoke(ctx context.Context, db *store.DB, with Tokens, p identity.Principal, id string) error {
	t, err := store.Read(ctx, db, func(tx *store.Tx) (store.Token, error) { return tx.TokenByID(id) })
	if err == nil {
		err = with.Revoke(ctx, p, t)
	}
	if errors.Is(err, store.ErrNotFound) || fault.KindOf(err) == fault.KindNotFound {
		return nil // revoked by another call
	}
	return err
}

func kindNames() string {
	var names []string
	for _, k := range TokenKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}
