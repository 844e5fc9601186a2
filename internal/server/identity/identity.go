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
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/attempts"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// tokenPrefix is the prefix of all tokens. It lets scanners find leaked tokens.
const tokenPrefix = "pul-"

// touchEvery is the minimum interval between updates of a token's last use.
const touchEvery = 5 * time.Minute

// Service authenticates callers and manages users, organizations and tokens.
type Service struct {
	db       *store.DB
	log      *logrus.Entry
	machines machines
	gate     *attempts.Gate
}

// New returns a service that uses a database.
func New(db *store.DB, log *logrus.Entry) *Service {
	return &Service{db: db, log: log, machines: machines{Age: machineAge}, gate: attempts.NewGate()}
}

// Guard calls check, which checks a credential of a client, unless the client's network sends too many that are not
// valid; see [attempts.Gate].
func (s *Service) Guard(ctx context.Context, address, credential string, check func() error) error {
	if credential == "" { // costs nothing
		return check()
	}
	return s.gate.Check(ctx, address, string(HashToken(credential)), check)
}

// Issued makes known that a credential is valid, because its first call must not wait either.
func (s *Service) Issued(credential string) {
	if credential != "" {
		s.gate.Know(string(HashToken(credential)))
	}
}

// NewToken returns the text of a new random token and the hash to store.
func NewToken() (text string, hash []byte) {
	var raw [32]byte
	rand.Read(raw[:])
	text = tokenPrefix + hex.EncodeToString(raw[:])
	return text, HashToken(text)
}

// HashToken returns the SHA-256 of a token's text, which is the stored form. The text has 256
// random bits, so a slow hash would not improve security.
func HashToken(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// NewID returns a new random row id.
func NewID() string { return uuid.NewString() }

// Kind is the kind of a principal.
type Kind string

// The principal kinds.
const (
	KindUser   Kind = "user"   // a human or service with a personal token
	KindOrg    Kind = "org"    // an organization or team token
	KindPool   Kind = "pool"   // an agent of a pool
	KindJob    Kind = "job"    // a job's pulumi process
	KindRunner Kind = "runner" // the agent and runner of a claimed job
)

// Principal is an authenticated caller.
type Principal struct {
	Kind    Kind
	TokenID string
	// TokenName is the name of an organization or team token.
	TokenName string
	// Team and TeamID are the name and the id of a team token's team.
	Team, TeamID string
	// User is the owner of a personal token or the requester of a job's deployment, otherwise zero.
	User store.User
	// Org is the token's organization. It is zero for a personal token, unless the token was
	// exchanged.
	Org   store.Organization
	Roles map[string]string
	// Admin reports whether an organization token may administer its organization.
	Admin bool
	// Exchanged reports whether the token was issued in exchange for an identity token. Such a
	// token is short-lived and must not create tokens that outlive it.
	Exchanged bool

	PoolID       string // pool and runner tokens
	JobID        string // job and runner tokens
	Epoch        int64  // job and runner tokens
	DeploymentID string // job and runner tokens
	StackID      string // job tokens: the deployment's stack
	Scope        Scope  // job tokens: their permissions by stack

	operator  bool   // commands on the server's machine
	grantedOn string // id of the stack of the permission; see [Principal.On]
	granted   store.Permission
	lentOn    string // id of a stack whose outputs the job may read; see [Principal.Lent]
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

// errToken is the response to every invalid token. It does not reveal the cause.
var errToken = fault.New(fault.KindUnauthenticated, "the token is missing, unknown, expired or revoked: users log in again or set PULUMI_ACCESS_TOKEN, agents need the token of an agent pool")

// Authenticate returns a token's principal. It returns a [fault.KindUnauthenticated] error if the
// token is unknown, expired or revoked. For a runner's token, the answer can be up to machineAge old.
func (s *Service) Authenticate(ctx context.Context, text string) (Principal, error) {
	p, err := s.authenticate(ctx, text)
	if err != nil {
		return Principal{}, err
	}
	return *p, nil
}

func (s *Service) authenticate(ctx context.Context, text string) (*Principal, error) {
	if text == "" {
		return nil, errToken
	}
	hash := HashToken(text)
	if p, ok := s.machines.Get(string(hash)); ok && p.Kind == KindRunner {
		return p, nil
	}
	read := time.Now()
	c, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (*store.Credential, error) { return tx.CredentialByHash(hash) })
	if errors.Is(err, store.ErrNotFound) {
		return nil, errToken
	}
	if err != nil {
		return nil, fmt.Errorf("checking a token: %w", err)
	}
	p, ok := principal(c)
	if subtle.ConstantTimeCompare(c.Hash, hash) != 1 || expired(c.ExpiresAt, c.Now) || !ok {
		return nil, errToken
	}
	// The last use of a runner's token, which lives as long as its job, is not shown.
	if p.Kind != KindRunner && c.Now.Sub(c.LastUsedAt) > touchEvery {
		if err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.TouchToken(c.ID, c.Now) }); err != nil {
			s.log.WithError(err).Warn("recording a token's last use failed")
		}
	}
	if (p.Kind == KindRunner || p.Kind == KindPool) && c.ExpiresAt.IsZero() {
		s.machines.Put(string(hash), p, read)
	}
	return p, nil
}

func expired(at, now time.Time) bool { return !at.IsZero() && now.After(at) }

// CheckPoll returns an error unless the token of a poll is still valid, like [CheckLive]. It also
// returns what else must be known to begin the poll. Call it in [store.DB.ReadOne].
func CheckPoll(tx *store.Tx, tokenID, poolID, agentID, pollID string) (store.PollState, error) {
	s, err := tx.PollState(tokenID, poolID, agentID, pollID)
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(s.TokenExpiresAt, s.Now) {
		return s, errToken
	}
	return s, err
}

// CheckLive returns an error unless an authenticated token is still valid. Call it in the
// transaction that uses the token. The errors are those of [Service.Authenticate].
func CheckLive(tx *store.Tx, tokenID string, now time.Time) error {
	t, err := tx.TokenByID(tokenID)
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(t.ExpiresAt, now) {
		return errToken
	}
	return err
}

var kinds = map[store.TokenKind]Kind{
	store.PersonalToken: KindUser, store.OrgToken: KindOrg, store.TeamToken: KindOrg,
	store.PoolToken: KindPool, store.JobToken: KindJob, store.RunnerToken: KindRunner,
}

// principalOf returns the principal of a token without the objects to which the token refers.
func principalOf(t *store.Token) *Principal {
	return &Principal{
		Kind: kinds[t.Kind], TokenID: t.ID, TokenName: t.Name, Admin: t.Admin, PoolID: t.PoolID, Exchanged: t.IssuerID != "",
		JobID: t.JobID, Epoch: t.Epoch, DeploymentID: t.DeploymentID, StackID: t.StackID,
		Scope: ParseScope(t.Scope),
	}
}

// principal returns the principal of a token. It returns false if the token refers to something that
// no longer exists, belongs to a disabled user, or has an unknown kind. A job of a disabled user continues
// without the user's rights.
func principal(c *store.Credential) (p *Principal, ok bool) {
	p = principalOf(&c.Token)
	p.Org = c.Org
	p.actAs(c.User, c.Roles)
	if c.Kind == store.TeamToken {
		p.TeamID, p.Team = c.Team.ID, c.Team.Name
	}
	gone := c.OrgID != c.Org.ID || c.UserID != c.User.ID || c.Kind == store.TeamToken && c.Team.ID == ""
	if gone || p.Kind == "" || p.Kind == KindUser && p.User.Disabled() {
		return p, false
	}
	if p.Kind == KindUser && c.OrgID != "" {
		p.confine()
	}
	if role := p.Scope.role(); p.Kind == KindJob && role != "" {
		p.limit(role)
	}
	return p, true
}

// confine reduces a user's memberships to the token's organization. Otherwise, an administrator of
// that organization's issuers could gain access to other organizations.
func (p *Principal) confine() {
	maps.DeleteFunc(p.Roles, func(org, _ string) bool { return org != p.Org.ID })
	p.User.SiteAdmin = false
}

// OfJob returns the principal of a job's programs, whose token the job's runner does not have.
func (s *Service) OfJob(ctx context.Context, jobID string) (*Principal, error) {
	c, err := store.Read(ctx, s.db, func(tx *store.Tx) (*store.Credential, error) {
		t, err := tx.TokenOfJob(jobID, store.JobToken)
		if err != nil {
			return nil, err
		}
		return tx.CredentialByID(t.ID)
	})
	ended := fault.New(fault.KindGone, "the job has ended: its access token is no longer valid")
	if err != nil {
		return nil, fault.While(store.IfMissing(err, ended), "looking up the token of a job")
	}
	p, ok := principal(c)
	if !ok || expired(c.ExpiresAt, c.Now) {
		return nil, ended
	}
	return p, nil
}

// User returns a user by its id.
func (s *Service) User(ctx context.Context, id string) (store.User, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (store.User, error) { return tx.User(id) })
}

// Organization returns an organization by name if the caller may see it.
func (s *Service) Organization(ctx context.Context, p Principal, name string) (store.Organization, error) {
	o, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Organization, error) {
		return tx.OrganizationByName(name)
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && !p.CanReadOrg(o.ID) {
		return store.Organization{}, NoOrganization(name)
	}
	return o, fault.While(err, "looking up an organization")
}

// Named returns an organization by its name, or by a former one. It does not check who may see the organization.
func (s *Service) Named(ctx context.Context, name string) (store.Organization, error) {
	o, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName(name) })
	return o, fault.While(store.IfMissing(err, NoOrganization(name)), "looking up an organization")
}

// NoOrganization is the error for an organization that does not exist or is hidden.
func NoOrganization(name string) error {
	return fault.NotFound("organization %q does not exist, or you may not see it", name)
}

// OrganizationsOf returns the organizations to which a caller belongs.
func (s *Service) OrganizationsOf(ctx context.Context, p Principal) ([]store.Organization, error) {
	if p.Org.ID != "" {
		return []store.Organization{p.Org}, nil
	}
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Organization, error) {
		return tx.OrganizationsOf(p.User.ID)
	})
	return out, fault.While(err, "listing organizations")
}

// OfUser returns the principal of a user who was authenticated by other means than a token. A disabled user
// has no rights.
func OfUser(tx *store.Tx, userID string) (Principal, error) {
	u, err := tx.User(userID)
	if err != nil {
		return Principal{}, err
	}
	p := Principal{Kind: KindUser}
	roles, err := tx.RolesOf(userID)
	p.actAs(u, roles)
	return p, err
}

// actAs gives a principal the rights of a user, of which a disabled one has none.
func (p *Principal) actAs(u store.User, roles map[string]string) {
	p.User, p.Roles = u, roles
	if u.Disabled() {
		p.User.SiteAdmin, p.Roles = false, nil
	}
}

// ForRepository returns the principal of changes that come from a repository, which an administrator of an organization has
// permitted to define its environments. name is the name of the repository and the commit.
func ForRepository(orgID, name string) Principal {
	return Principal{Kind: KindUser, User: store.User{Login: name}, Roles: map[string]string{orgID: RoleAdmin}}
}

// Operator returns the principal of commands on the server's machine, whose users may do everything.
func Operator() Principal {
	return Principal{Kind: KindUser, User: store.User{Login: "operator", SiteAdmin: true}, operator: true}
}
