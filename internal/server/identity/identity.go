// Package identity authenticates callers of the control plane, manages organizations, users and
// tokens, and decides what each caller may do.
package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// tokenPrefix is the prefix of all tokens, by which scanners find leaked ones.
const tokenPrefix = "pul-"

// touchEvery is the least interval between writes of a token's last use.
const touchEvery = 5 * time.Minute

// Service authenticates callers and manages users, organizations and tokens.
type Service struct {
	db  *store.DB
	log *logrus.Entry
}

// New returns a service on a database.
func New(db *store.DB, log *logrus.Entry) *Service {
	return &Service{db: db, log: log}
}

// NewToken returns the text of a new random token and the hash to store.
func NewToken() (text string, hash []byte) {
	var raw [32]byte
	rand.Read(raw[:])
	text = tokenPrefix + hex.EncodeToString(raw[:])
	return text, HashToken(text)
}

// HashToken returns the SHA-256 of a token's text, which is stored. The text has 256 random bits,
// so a slow hash would add nothing.
func HashToken(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// NewID returns a new id for a row.
func NewID() string { return uuid.NewString() }

// Kind is the kind of a principal.
type Kind string

// The kinds of principal.
const (
	KindUser   Kind = "user"   // a human or service with a personal token
	KindOrg    Kind = "org"    // an organization or team token
	KindPool   Kind = "pool"   // an agent of a pool
	KindJob    Kind = "job"    // the pulumi process of a job
	KindRunner Kind = "runner" // agent and runner of one claimed job
)

// Principal is an authenticated caller.
type Principal struct {
	Kind    Kind
	TokenID string
	// TokenName and Team are the names of an organization or team token.
	TokenName, Team string
	// User is the owner of a personal token or the requester of a job's deployment, else zero.
	User store.User
	// Org is the token's organization; zero for personal tokens that are not exchanged.
	Org   store.Organization
	Roles map[string]string
	// Admin means that an organization token may administer its organization.
	Admin bool
	// Exchanged means that the token was exchanged for an identity token and expires soon: it must
	// not create tokens that outlive it.
	Exchanged bool

	PoolID       string // pool, and runner tokens
	JobID        string // job and runner tokens
	Epoch        int64  // job and runner tokens
	DeploymentID string // job and runner tokens
	StackID      string // job tokens: the stack of the deployment
	Scope        Scope  // job tokens: what they may do with which stack
}

// Name returns the caller's name for logs and messages.
func (p Principal) Name() string {
	switch {
	case p.User.Login != "":
		return p.User.Login
	case p.TokenName != "":
		return p.Org.Name + "/" + p.TokenName
	default:
		return p.Org.Name
	}
}

// errToken is the one response to every invalid token; it does not reveal the cause.
var errToken = fault.New(fault.KindUnauthenticated, "Unauthorized: the token is missing, unknown, expired or revoked: users log in again or set PULUMI_ACCESS_TOKEN, agents need the token of an agent pool")

// Authenticate returns the principal of a token. An unknown, expired or revoked token is a
// [fault.KindUnauthenticated] error.
func (s *Service) Authenticate(ctx context.Context, text string) (Principal, error) {
	if text == "" {
		return Principal{}, errToken
	}
	hash := HashToken(text)
	var now time.Time
	var p Principal
	var t store.Token
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		now = tx.Now()
		var err error
		t, err = tx.TokenByHash(hash)
		if err != nil {
			return err
		}
		if subtle.ConstantTimeCompare(t.Hash, hash) != 1 || expired(t, now) {
			return store.ErrNotFound
		}
		p, err = load(tx, t)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return Principal{}, errToken
	}
	if err != nil {
		return Principal{}, fmt.Errorf("checking a token: %w", err)
	}
	if now.Sub(t.LastUsedAt) > touchEvery {
		if err := s.db.Write(ctx, func(tx *store.Tx) error { return tx.TouchToken(t.ID, now) }); err != nil {
			s.log.WithError(err).Warn("could not note the use of a token")
		}
	}
	return p, nil
}

func expired(t store.Token, now time.Time) bool {
	return !t.ExpiresAt.IsZero() && now.After(t.ExpiresAt)
}

// CheckLive checks that an accepted token is still valid, in the transaction that acts on it. Its
// errors are those of [Service.Authenticate].
func CheckLive(tx *store.Tx, tokenID string, now time.Time) error {
	t, err := tx.TokenByID(tokenID)
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(t, now) {
		return errToken
	}
	return err
}

func load(tx *store.Tx, t store.Token) (Principal, error) {
	p := Principal{
		TokenID: t.ID, TokenName: t.Name, Admin: t.Admin, PoolID: t.PoolID, Exchanged: t.IssuerID != "",
		JobID: t.JobID, Epoch: t.Epoch, DeploymentID: t.DeploymentID, StackID: t.StackID,
		Scope: ParseScope(t.Scope),
	}
	switch t.Kind {
	case store.PersonalToken:
		p.Kind = KindUser
	case store.OrgToken:
		p.Kind = KindOrg
	case store.TeamToken:
		p.Kind, p.Team = KindOrg, t.Description
	case store.PoolToken:
		p.Kind = KindPool
	case store.JobToken:
		p.Kind = KindJob
	case store.RunnerToken:
		p.Kind = KindRunner
	default:
		return Principal{}, fmt.Errorf("token %s has the unknown kind %q", t.ID, t.Kind)
	}
	var err error
	if t.OrgID != "" {
		if p.Org, err = tx.Organization(t.OrgID); err != nil {
			return Principal{}, err
		}
	}
	if t.UserID != "" {
		if p.User, err = tx.User(t.UserID); err != nil {
			return Principal{}, err
		}
		orgs, err := tx.RolesOf(t.UserID)
		if err != nil {
			return Principal{}, err
		}
		p.Roles = orgs
	}
	if p.Kind == KindUser && t.OrgID != "" {
		p.confine()
	}
	return p, nil
}

// confine reduces a user to the membership in the token's organization: an administrator of that
// organization's issuers must not gain access to others.
func (p *Principal) confine() {
	role := p.Roles[p.Org.ID]
	p.Roles = map[string]string{}
	if role != "" {
		p.Roles[p.Org.ID] = role
	}
	p.User.SiteAdmin = false
}

// User returns a user by id.
func (s *Service) User(ctx context.Context, id string) (store.User, error) {
	var u store.User
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		u, err = tx.User(id)
		return err
	})
	return u, err
}

// Organization returns an organization by name if the caller may see it.
func (s *Service) Organization(ctx context.Context, p Principal, name string) (store.Organization, error) {
	var o store.Organization
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		o, err = tx.OrganizationByName(name)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && !p.CanReadOrg(o.ID) {
		return store.Organization{}, fault.NotFound("Not Found: organization %q does not exist, or you may not see it", name)
	}
	if err != nil {
		return store.Organization{}, fmt.Errorf("looking up an organization: %w", err)
	}
	return o, nil
}

// OrganizationsOf returns the organizations a caller belongs to.
func (s *Service) OrganizationsOf(ctx context.Context, p Principal) ([]store.Organization, error) {
	if p.Org.ID != "" {
		return []store.Organization{p.Org}, nil
	}
	var out []store.Organization
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		out, err = tx.OrganizationsOf(p.User.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing organizations: %w", err)
	}
	return out, nil
}
