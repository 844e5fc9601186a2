package issuer

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// early is the time by which tokens are valid before they were issued, for verifiers whose clocks
// are slow.
const early = time.Minute

// Subject is the deployment to which a token is issued.
type Subject struct {
	Organization, Project, Stack string
	StackID                      string
	Operation                    string
	Version                      int64 // of the deployment
	Trigger                      string
	Ref                          string // full name; "" if none was requested
	SHA                          string // commit; "" if none was requested
	PullRequest                  string // number; "" if unknown
	Fork                         bool   // the source can come from a fork
}

// claims are the payload of a token. docs/cloud-credentials.md documents them. No claim is ever
// omitted, because a condition on a missing claim can be satisfied by accident.
type claims struct {
	Issuer      string `json:"iss"`
	Subject     string `json:"sub"`
	Audience    string `json:"aud"`
	ID          string `json:"jti"`
	IssuedAt    int64  `json:"iat"`
	NotBefore   int64  `json:"nbf"`
	Expires     int64  `json:"exp"`
	Org         string `json:"org"`
	Project     string `json:"project"`
	Stack       string `json:"stack"`
	StackID     string `json:"stackId"`
	Operation   string `json:"operation"`
	Deployment  string `json:"deployment"`
	Scope       string `json:"scope"`
	Trigger     string `json:"trigger"`
	Ref         string `json:"ref"`
	SHA         string `json:"sha"`
	PullRequest string `json:"pull_request"`
	Fork        bool   `json:"fork"`

	SessionTags *sessionTags `json:"https://aws.amazon.com/tags,omitempty"`
}

// sessionTags are the tags of an AWS session in the form that AWS defines.
type sessionTags struct {
	Principal map[string][]string `json:"principal_tags"`
}

// Token is a signed token.
type Token struct {
	Text      string
	ExpiresAt time.Time
	ID        string // claim jti
	Audience  string
}

// Draft is a token before its signature.
type Draft struct {
	claims claims
	key    store.SigningKey
	expiry time.Time
}

// Draft chooses the audience, the time and the key of a token, in the caller's transaction. An
// empty audience means the organization's name.
func (s *Service) Draft(tx *store.Tx, sub Subject, audience string) (Draft, error) {
	audience, err := s.audience(tx, sub.Organization, audience)
	if err != nil {
		return Draft{}, err
	}
	key, err := s.key(tx)
	if err != nil {
		return Draft{}, err
	}
	return s.draft(sub, audience, key, tx.Now()), nil
}

// key returns the key that signs tokens now, in the caller's transaction.
func (s *Service) key(tx *store.Tx) (store.SigningKey, error) {
	keys, err := tx.SigningKeys()
	if err != nil {
		return store.SigningKey{}, err
	}
	if len(keys) == 0 {
		return store.SigningKey{}, fault.New(fault.KindUnavailable, "the server has no signing key yet; try again in a minute")
	}
	return keys[signing(keys, tx.Now())], nil
}

func (s *Service) draft(sub Subject, audience string, key store.SigningKey, now time.Time) Draft {
	const scope = "write"
	d := Draft{key: key, expiry: now.Add(Lifetime).Truncate(time.Second)}
	d.claims = claims{
		Issuer: s.opts.URL, Audience: audience, ID: identity.NewID(),
		Subject: "pulumi:deploy:org:" + sub.Organization + ":project:" + sub.Project + ":stack:" + sub.Stack +
			":operation:" + sub.Operation + ":scope:" + scope,
		IssuedAt: now.Unix(), NotBefore: now.Add(-early).Unix(), Expires: d.expiry.Unix(),
		Org: sub.Organization, Project: sub.Project, Stack: sub.Stack, StackID: sub.StackID, Operation: sub.Operation,
		Deployment: strconv.FormatInt(sub.Version, 10), Scope: scope,
		Trigger: sub.Trigger, Ref: sub.Ref, SHA: sub.SHA, PullRequest: sub.PullRequest, Fork: sub.Fork,
	}
	if s.opts.SessionTags {
		d.claims.SessionTags = &sessionTags{Principal: map[string][]string{
			"trigger": {sub.Trigger}, "fork": {strconv.FormatBool(sub.Fork)},
		}}
	}
	return d
}

// Sign signs a draft.
func (s *Service) Sign(ctx context.Context, d Draft) (Token, error) {
	text, err := s.sign(ctx, d.key, d.claims)
	if err != nil {
		return Token{}, err
	}
	return Token{Text: text, ExpiresAt: d.expiry, ID: d.claims.ID, Audience: d.claims.Audience}, nil
}

// sign returns a token with claims.
func (s *Service) sign(ctx context.Context, key store.SigningKey, claims any) (string, error) {
	private, err := s.private(ctx, key)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: private, KeyID: key.ID}},
		new(jose.SignerOptions).WithType("JWT"),
	)
	if err != nil {
		return "", fmt.Errorf("preparing a signature: %w", err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encoding a token: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		return "", fmt.Errorf("encoding a token: %w", err)
	}
	return text, nil
}
