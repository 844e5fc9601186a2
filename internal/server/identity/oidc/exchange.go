package oidc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Names and bounds of the token exchange (RFC 8693).
const (
	GrantType        = "urn:ietf:params:oauth:grant-type:token-exchange"
	IDTokenType      = "urn:ietf:params:oauth:token-type:id_token"
	tokenTypePrefix  = "urn:pulumi:token-type:access_token:"
	audiencePrefix   = "urn:pulumi:org:"
	maxParameter     = 1024
	descriptionLimit = 200
)

// Request is a token exchange as in RFC 8693.
type Request struct {
	GrantType, Audience, SubjectTokenType, SubjectToken, RequestedTokenType, Scope string
	// Expiration is a number of seconds as text; "" for [DefaultLifetime].
	Expiration string
}

// Granted is the issued token.
type Granted struct {
	AccessToken string
	TokenType   string // the requested URN
	Lifetime    time.Duration
	Scope       string
}

// Refusal is a token endpoint error as defined in RFC 6749. It never contains the subject token.
type Refusal struct {
	Code        string // such as invalid_grant
	Description string
	RetryAfter  time.Duration // if positive, the time after which a retry might succeed
	// reason appears only in the server's log. Clients must not see it, because any holder of a
	// public issuer's token can get this far.
	reason string
}

// Error returns the message that the client sees.
func (r *Refusal) Error() string { return r.Code + ": " + r.Description }

func refuse(code, format string, args ...any) error {
	return &Refusal{Code: code, Description: fmt.Sprintf(format, args...)}
}

func notNow(format string, args ...any) error {
	return &Refusal{Code: "temporarily_unavailable", Description: fmt.Sprintf(format, args...), RetryAfter: askAgain}
}

// Exchange exchanges an identity token for one of the server's tokens. If it rejects the request,
// the error is a [*Refusal].
func (s *Service) Exchange(ctx context.Context, r Request) (Granted, error) {
	tokenType, lifetime, err := r.check()
	if err != nil {
		return Granted{}, err
	}
	org, err := s.organization(ctx, r.Audience)
	if err != nil {
		return Granted{}, err
	}
	sub, err := s.verify(ctx, org, r.SubjectToken)
	if err != nil {
		return Granted{}, err
	}
	granted, err := s.grant(ctx, org, sub, r, tokenType, lifetime)
	entry := s.log.WithFields(logrus.Fields{
		"issuer": sub.issuer.Issuer, "subject": text(sub.claims["sub"]), "org": org.Name, "type": string(tokenType), "scope": short(r.Scope),
	})
	switch refusal := (*Refusal)(nil); {
	case errors.As(err, &refusal):
		entry.WithField("reason", cmp.Or(refusal.reason, refusal.Description)).Warn("rejected a token exchange")
	case err == nil:
		entry.WithField("lifetime", granted.Lifetime.String()).Info("exchanged a token")
	}
	return granted, err
}

func (r Request) check() (TokenType, time.Duration, error) {
	switch {
	case r.GrantType == "":
		return "", 0, refuse("invalid_request", "grant_type is missing")
	case r.GrantType != GrantType:
		return "", 0, refuse("unsupported_grant_type", "only %s is supported", GrantType)
	case r.SubjectToken == "":
		return "", 0, refuse("invalid_request", "subject_token is missing")
	case r.SubjectTokenType != IDTokenType:
		return "", 0, refuse("invalid_request", "subject_token_type must be %s", IDTokenType)
	case len(r.Audience) > maxParameter, len(r.Scope) > maxParameter:
		return "", 0, refuse("invalid_request", "audience and scope must be at most %d bytes long", maxParameter)
	}
	name, ok := strings.CutPrefix(r.RequestedTokenType, tokenTypePrefix)
	tokenType := TokenType(name)
	switch tokenType {
	case OrganizationToken, TeamToken, PersonalToken, RunnerToken:
	default:
		ok = false
	}
	if !ok {
		return "", 0, refuse("invalid_request", "requested_token_type must be %s followed by organization, team, personal or runner", tokenTypePrefix)
	}
	if r.Expiration == "" {
		return tokenType, DefaultLifetime, nil
	}
	seconds, err := strconv.ParseInt(r.Expiration, 10, 64)
	if err != nil || seconds <= 0 {
		return "", 0, refuse("invalid_request", "expiration must be a number of seconds above zero")
	}
	// Longer lifetimes are reduced to the maximum. The conversion must not overflow.
	return tokenType, time.Duration(min(seconds, int64(MaxLifetime.Seconds()))) * time.Second, nil
}

// organization returns the organization that an audience names. The error can reveal whether the
// organization exists, because every audience contains an organization's name.
func (s *Service) organization(ctx context.Context, audience string) (store.Organization, error) {
	name, ok := strings.CutPrefix(audience, audiencePrefix)
	if !ok || name == "" {
		return store.Organization{}, refuse("invalid_request", "audience must be %sORGANIZATION", audiencePrefix)
	}
	org, err := read(ctx, s.db, "looking up an organization", func(tx *store.Tx) (store.Organization, error) {
		return tx.OrganizationByName(name)
	})
	return org, store.IfMissing(err, refuse("invalid_target", "the organization %q does not exist", short(name)))
}

// judgment states what was granted by which version of an issuer's policies.
type judgment struct {
	w       wish
	version int64
}

// judge evaluates the policies. It does so outside of write transactions, because long patterns for
// long claims take up to a second, for which no other tenant must wait.
func (s *Service) judge(ctx context.Context, org store.Organization, sub subject, r Request, tokenType TokenType) (j judgment, err error) {
	var set PolicySet
	reason := ""
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if j.w, _, reason, err = target(tx, org, tokenType, r.Scope); err != nil {
			return err
		}
		row, err := tx.OIDCPolicyOf(sub.issuer.ID)
		if err == nil {
			set, err = policySet(row)
		}
		return err
	})
	if err != nil {
		return j, err
	}
	j.w.audience, j.version = r.Audience, set.Version
	if reason == "" {
		reason = set.refusal(j.w, sub.claims)
	}
	if reason != "" {
		return j, &Refusal{Code: "unauthorized_client", reason: reason, Description: fmt.Sprintf(
			"the policies of the issuer %q do not allow a token of type %s with scope %q; see the server's log for the reason", sub.issuer.Name, tokenType, r.Scope,
		)}
	}
	return j, nil
}

// grant creates the token in one transaction with checks that what the judgment is about has not
// changed, so that the concurrent deletion of an issuer, pool or policy also removes the token.
func (s *Service) grant(ctx context.Context, org store.Organization, sub subject, r Request, tokenType TokenType, wanted time.Duration) (Granted, error) {
	plain, hash := identity.NewToken()
	var granted Granted
	j, err := s.judge(ctx, org, sub, r, tokenType)
	if err == nil {
		err = s.db.Write(ctx, scope.Organization(org.ID).Shared(), func(tx *store.Tx) error {
			now := tx.Now()
			issuer, err := tx.OIDCIssuer(org.ID, sub.issuer.ID)
			if err != nil {
				return err
			}
			w, token, reason, err := target(tx, org, tokenType, r.Scope)
			if err != nil {
				return err
			}
			w.audience = r.Audience
			row, err := tx.OIDCPolicyOf(issuer.ID)
			if err != nil {
				return err
			}
			if reason != "" || row.Version != j.version || w != j.w {
				return notNow("what the policies of the issuer %q decide about changed during the exchange; try again", issuer.Name)
			}
			life := wanted
			if limit := issuer.MaxExpiration; limit > 0 {
				life = min(life, limit)
			}
			token.ID, token.Hash, token.OrgID, token.IssuerID = identity.NewID(), hash, org.ID, issuer.ID
			token.Name, token.Description = "oidc:"+issuer.Name, text(sub.claims["sub"])
			token.CreatedAt, token.ExpiresAt = now, now.Add(life)
			if err := tx.InsertToken(token); err != nil {
				return err
			}
			if err := audit.Record(ctx, tx, audit.Entry{
				OrgID: org.ID, Action: audit.TokenExchanged, Subject: audit.Subject{Kind: "token", ID: token.ID, Name: token.Name},
				Detail: map[string]any{"kind": token.Kind, "scope": r.Scope}, Actor: &audit.Actor{Kind: "issuer", ID: issuer.ID, Name: token.Description},
			}); err != nil {
				return err
			}
			granted = Granted{AccessToken: plain, TokenType: r.RequestedTokenType, Lifetime: life, Scope: r.Scope}
			return tx.TouchOIDCIssuer(issuer.ID, now)
		})
	}
	return granted, store.IfMissing(err, refuse("invalid_grant", "the issuer was deleted during the exchange"))
}

// target interprets a requested token type and scope. It returns the request that the policies
// evaluate, and the token to create, without the fields common to all tokens. reason explains an
// invalid request. docs/protocol.md defines the rules.
func target(tx *store.Tx, org store.Organization, tokenType TokenType, scope string) (w wish, token store.Token, reason string, err error) {
	w = wish{tokenType: tokenType}
	kind, name, _ := strings.Cut(strings.TrimSpace(scope), ":")
	switch tokenType {
	case OrganizationToken:
		if kind != "" && kind != adminPermission || name != "" {
			return w, token, "", refuse("invalid_scope", `for an organization token the scope must be empty or "admin"`)
		}
		w.admin = kind == adminPermission
		return w, store.Token{Kind: store.OrgToken, Admin: w.admin}, "", nil
	case TeamToken:
		if kind != "team" || name == "" {
			return w, token, "", refuse("invalid_scope", "for a team token the scope must be team:NAME")
		}
		team, err := tx.TeamByName(org.ID, name)
		if errors.Is(err, store.ErrNotFound) {
			return w, token, "the organization has no such team", nil
		}
		w.subject, w.since = team.Name, team.CreatedAt
		return w, store.Token{Kind: store.TeamToken, TeamID: team.ID}, "", err
	case PersonalToken:
		if kind != "user" || name == "" {
			return w, token, "", refuse("invalid_scope", "for a personal token the scope must be user:LOGIN")
		}
		m, err := tx.MemberByLogin(org.ID, name)
		if errors.Is(err, store.ErrNotFound) {
			return w, token, "the organization has no such member", nil
		}
		if u, err := tx.UserOrNone(m.UserID); err != nil || u.Disabled() {
			return w, token, "the user is disabled", err
		}
		w.subject, w.since = m.Login, m.CreatedAt
		return w, store.Token{Kind: store.PersonalToken, UserID: m.UserID, CreatedBy: m.UserID}, "", err
	default:
		if kind != "runner" || name == "" {
			return w, token, "", refuse("invalid_scope", "for a runner token the scope must be runner:POOL, with the id or the name of an agent pool")
		}
		pool, reason, err := poolByScope(tx, org.ID, name)
		w.subject = pool.ID
		return w, store.Token{Kind: store.PoolToken, PoolID: pool.ID}, reason, err
	}
}

// poolByScope returns the pool with an id or a name. reason explains a missing pool.
func poolByScope(tx *store.Tx, orgID, name string) (pool store.AgentPool, reason string, err error) {
	pool, err = tx.Pool(orgID, name)
	if !errors.Is(err, store.ErrNotFound) {
		return pool, "", err
	}
	pools, err := tx.Pools(orgID)
	if err != nil {
		return pool, "", err
	}
	at := slices.IndexFunc(pools, func(p store.AgentPool) bool { return p.Name == name })
	if at < 0 {
		return pool, "the organization has no such agent pool", nil
	}
	return pools[at], "", nil
}

func text(claim any) string {
	s, _ := claim.(string)
	if r := []rune(s); len(r) > descriptionLimit {
		return string(r[:descriptionLimit]) + "…"
	}
	return s
}
