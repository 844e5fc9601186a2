package admin

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
)

// The operations on access tokens.
var (
	ListTokens  = Operation[TokensOf, Page[Token]]{"token-list", (*Service).listTokens}
	CreateToken = Operation[NewToken, CreatedToken]{"token-create", (*Service).createToken}
	RevokeToken = Operation[OldToken, None]{"token-revoke", (*Service).revokeToken}
)

// TokensOf selects tokens. Empty fields select all.
type TokensOf struct {
	Kind         string `json:"kind,omitempty"`
	User         string `json:"user,omitempty"` // login of the user as whom personal tokens act
	Organization string `json:"organization,omitempty"`
	CreatedBy    string `json:"createdBy,omitempty"` // login
	// InBackup selects the valid tokens, also exchanged ones, of the backup from which the installation was restored.
	InBackup bool `json:"inBackup,omitempty"`
	// AfterID and AfterTime name the last entry of the page before.
	AfterID   string    `json:"afterID,omitempty"`
	AfterTime time.Time `json:"afterTime,omitzero"`
}

// Next returns the request for the tokens after t.
func (q TokensOf) Next(t Token) TokensOf {
	q.AfterID, q.AfterTime = t.ID, t.Created
	return q
}

// kinds are the kinds of tokens in lists, as the API calls them.
var kinds = map[store.TokenKind]string{
	store.PersonalToken: "personal", store.OrgToken: "organization", store.TeamToken: "team", store.PoolToken: "pool",
}

// TokenKinds returns the kinds of tokens in lists.
func TokenKinds() []string { return slices.Sorted(maps.Values(kinds)) }

// Token is an access token in a list, without its text.
type Token struct {
	ID           string     `json:"id"`
	Kind         string     `json:"kind"`
	User         string     `json:"user,omitempty"`
	Organization string     `json:"organization,omitempty"`
	Team         string     `json:"team,omitempty"`
	Pool         string     `json:"pool,omitempty"`
	Name         string     `json:"name,omitempty"`
	Description  string     `json:"description,omitempty"`
	Admin        bool       `json:"admin,omitempty"`
	Exchanged    bool       `json:"exchanged,omitempty"` // for an identity token of another issuer
	CreatedBy    string     `json:"createdBy,omitempty"`
	Created      time.Time  `json:"created"`
	Expires      *time.Time `json:"expires,omitempty"`
	LastUsed     *time.Time `json:"lastUsed,omitempty"`
}

// NewToken is a personal token to create.
type NewToken struct {
	User        string        `json:"user"` // login
	Description string        `json:"description,omitempty"`
	Lifetime    time.Duration `json:"lifetime,omitempty"` // 0 means forever
}

// CreatedToken is a new token.
type CreatedToken struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// OldToken is a token to revoke.
type OldToken struct {
	ID string `json:"id"`
}

func (s *Service) listTokens(ctx context.Context, q TokensOf) (Page[Token], error) {
	f := store.TokenSelection{After: store.ListedToken{ID: q.AfterID, CreatedAt: q.AfterTime}, Limit: page + 1}
	if q.Kind != "" {
		for kind, name := range kinds {
			if name == q.Kind {
				f.Kind = kind
			}
		}
		if f.Kind == "" {
			return Page[Token]{}, fault.Invalid("%q is not a kind of token; use one of %s", q.Kind, strings.Join(TokenKinds(), ", "))
		}
	}
	for _, of := range []struct {
		login string
		id    *string
	}{{q.User, &f.UserID}, {q.CreatedBy, &f.CreatorID}} {
		if of.login == "" {
			continue
		}
		// The tokens that a deleted user has created can remain.
		u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.User, error) { return tx.AnyUserByLogin(of.login) })
		if err != nil {
			return Page[Token]{}, store.IfMissing(err, fault.NotFound("the user %q does not exist", of.login))
		}
		*of.id = u.ID
	}
	if q.InBackup {
		r, err := recovery.Read(ctx, s.db)
		if err != nil || r == nil {
			return Page[Token]{Entries: []Token{}}, err
		}
		f.ValidAt = r.Backup
	}
	if q.Organization != "" {
		o, err := s.organization(ctx, q.Organization)
		if err != nil {
			return Page[Token]{}, err
		}
		f.OrgID = o.ID
	}
	found, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.ListedToken, error) { return tx.ListTokens(f) })
	if err != nil {
		return Page[Token]{}, fault.While(err, "listing tokens")
	}
	p := Page[Token]{Entries: []Token{}, More: len(found) > page}
	for _, t := range found[:min(page, len(found))] {
		p.Entries = append(p.Entries, Token{
			ID: t.ID, Kind: kinds[t.Kind], User: t.User, Organization: t.Organization, Team: t.Team, Pool: t.Pool, Name: t.Name, Description: t.Description,
			Admin: t.Admin, Exchanged: t.Exchanged, CreatedBy: t.Creator, Created: t.CreatedAt, Expires: known(t.ExpiresAt), LastUsed: known(t.LastUsedAt),
		})
	}
	return p, nil
}

func (s *Service) createToken(ctx context.Context, q NewToken) (CreatedToken, error) {
	u, err := s.Identity.UserByLogin(ctx, q.User)
	if err != nil {
		return CreatedToken{}, err
	}
	text, id, err := s.Identity.CreateToken(ctx, identity.NewTokenSpec{
		Kind: store.PersonalToken, Description: q.Description, UserID: u.ID, CreatedBy: u.ID, Expires: expiry(q.Lifetime),
	})
	return CreatedToken{ID: id, Token: text}, err
}

func (s *Service) revokeToken(ctx context.Context, q OldToken) (None, error) {
	t, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Token, error) { return tx.TokenByID(q.ID) })
	missing := fault.NotFound("the token %q does not exist; \"workflow-server token list\" shows the ids", q.ID)
	if err != nil {
		return None{}, store.IfMissing(err, missing)
	}
	if t.Kind == store.JobToken || t.Kind == store.RunnerToken {
		return None{}, missing // a deployment is canceled instead
	}
	return None{}, s.revoker().Revoke(ctx, operator, t)
}

func (s *Service) revoker() pools.Revoker { return pools.Revoker{Identity: s.Identity, Pools: s.Pools} }
