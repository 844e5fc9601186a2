package store

import (
	"fmt"
	"time"
)

// Organization owns stacks, pools and tokens.
type Organization struct {
	ID, Name, DisplayName string
	CreatedAt             time.Time
}

// User is a human or service that signs in.
type User struct {
	ID, Login, Name, Email string
	SiteAdmin              bool
	DefaultOrg             string // name of an organization, "" if none is chosen
	CreatedAt              time.Time
}

// Member is a user's membership of an organization.
type Member struct {
	OrgID, UserID, Role string
	CreatedAt           time.Time
}

// TokenKind is the purpose of a token.
type TokenKind string

// The kinds of token.
const (
	PersonalToken TokenKind = "personal" // acts as its user
	OrgToken      TokenKind = "org"      // acts as the organization
	TeamToken     TokenKind = "team"     // acts as the organization, named after a team
	PoolToken     TokenKind = "pool"     // an agent of a pool: polls and claims
	JobToken      TokenKind = "job"      // the pulumi process of a job: PULUMI_ACCESS_TOKEN
	RunnerToken   TokenKind = "runner"   // the agent and runner of a job: job callbacks
)

// Token is a credential. Which reference fields are set depends on its kind.
type Token struct {
	ID                string
	Hash              []byte // SHA-256 of the token's text
	Kind              TokenKind
	Name, Description string
	OrgID, UserID     string
	PoolID            string
	JobID             string
	Epoch             int64
	DeploymentID      string
	StackID           string
	Scope             string // what a job's token may do, in package identity's format
	Admin             bool
	CreatedBy         string // user id
	IssuerID          string // the OIDC issuer whose token was exchanged for this one
	CreatedAt         time.Time
	ExpiresAt         time.Time // zero = never
	LastUsedAt        time.Time // zero = never
}

// Installation returns a named value of the installation or [ErrNotFound].
func (tx *Tx) Installation(name string) ([]byte, error) {
	var v []byte
	err := tx.queryOne("SELECT value FROM installation WHERE name = $1", []any{name}, &v)
	return v, err
}

// SetInstallation sets a named value of the installation.
func (tx *Tx) SetInstallation(name string, value []byte) error {
	_, err := tx.exec(`INSERT INTO installation (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}

const orgColumns = "id, name, display_name, created_at"

func readOrg(scan scanFunc) (Organization, error) {
	var o Organization
	var created int64
	err := scan(&o.ID, &o.Name, &o.DisplayName, &created)
	o.CreatedAt = fromMicros(created)
	return o, err
}

// InsertOrganization adds an organization, or returns [ErrConflict] if the name is taken.
func (tx *Tx) InsertOrganization(o Organization) error {
	_, err := tx.exec("INSERT INTO organizations ("+orgColumns+") VALUES ($1, $2, $3, $4)",
		o.ID, o.Name, o.DisplayName, micros(o.CreatedAt))
	return err
}

// Organization returns an organization by id.
func (tx *Tx) Organization(id string) (Organization, error) {
	return one(tx, readOrg, "SELECT "+orgColumns+" FROM organizations WHERE id = $1", id)
}

// OrganizationByName returns an organization by its name.
func (tx *Tx) OrganizationByName(name string) (Organization, error) {
	return one(tx, readOrg, "SELECT "+orgColumns+" FROM organizations WHERE name = $1", name)
}

// Organizations returns all organizations, oldest first.
func (tx *Tx) Organizations() ([]Organization, error) {
	return collect(tx, readOrg, "SELECT "+orgColumns+" FROM organizations ORDER BY created_at, id")
}

// OrganizationsOf returns the organizations that a user is a member of.
func (tx *Tx) OrganizationsOf(userID string) ([]Organization, error) {
	return collect(tx, readOrg, `SELECT o.id, o.name, o.display_name, o.created_at FROM organizations o
		JOIN members m ON m.org_id = o.id WHERE m.user_id = $1 ORDER BY o.created_at, o.id`, userID)
}

const userColumns = "id, login, name, email, site_admin, default_org, created_at"

func readUser(scan scanFunc) (User, error) {
	var u User
	var admin, created int64
	err := scan(&u.ID, &u.Login, &u.Name, &u.Email, &admin, &u.DefaultOrg, &created)
	u.SiteAdmin, u.CreatedAt = admin != 0, fromMicros(created)
	return u, err
}

// InsertUser adds a user, or returns [ErrConflict] if the login is taken.
func (tx *Tx) InsertUser(u User) error {
	_, err := tx.exec("INSERT INTO users ("+userColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7)",
		u.ID, u.Login, u.Name, u.Email, flag(u.SiteAdmin), u.DefaultOrg, micros(u.CreatedAt))
	return err
}

// User returns a user by id.
func (tx *Tx) User(id string) (User, error) {
	return one(tx, readUser, "SELECT "+userColumns+" FROM users WHERE id = $1", id)
}

// UserByLogin returns a user by login.
func (tx *Tx) UserByLogin(login string) (User, error) {
	return one(tx, readUser, "SELECT "+userColumns+" FROM users WHERE login = $1", login)
}

// SetDefaultOrg sets a user's default organization.
func (tx *Tx) SetDefaultOrg(userID, org string) error {
	return tx.execOne("UPDATE users SET default_org = $2 WHERE id = $1", userID, org)
}

// InsertMember adds a user to an organization.
func (tx *Tx) InsertMember(m Member) error {
	_, err := tx.exec("INSERT INTO members (org_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)",
		m.OrgID, m.UserID, m.Role, micros(m.CreatedAt))
	return err
}

func readMember(scan scanFunc) (Member, error) {
	var m Member
	var created int64
	err := scan(&m.OrgID, &m.UserID, &m.Role, &created)
	m.CreatedAt = fromMicros(created)
	return m, err
}

// Member returns a user's membership of an organization or [ErrNotFound].
func (tx *Tx) Member(orgID, userID string) (Member, error) {
	return one(tx, readMember, "SELECT org_id, user_id, role, created_at FROM members WHERE org_id = $1 AND user_id = $2", orgID, userID)
}

// Members returns the members of an organization, oldest first.
func (tx *Tx) Members(orgID string) ([]Member, error) {
	return collect(tx, readMember, "SELECT org_id, user_id, role, created_at FROM members WHERE org_id = $1 ORDER BY created_at, user_id", orgID)
}

const tokenColumns = `id, hash, kind, name, description, org_id, user_id, pool_id, job_id, epoch,
	deployment_id, stack_id, scope, admin, created_by, issuer_id, created_at, expires_at, last_used_at`

func readToken(scan scanFunc) (Token, error) {
	var t Token
	var admin, created, expires, used int64
	err := scan(&t.ID, &t.Hash, &t.Kind, &t.Name, &t.Description, &t.OrgID, &t.UserID, &t.PoolID, &t.JobID, &t.Epoch,
		&t.DeploymentID, &t.StackID, &t.Scope, &admin, &t.CreatedBy, &t.IssuerID, &created, &expires, &used)
	t.Admin = admin != 0
	t.CreatedAt, t.ExpiresAt, t.LastUsedAt = fromMicros(created), fromMicros(expires), fromMicros(used)
	return t, err
}

// InsertToken adds a token.
func (tx *Tx) InsertToken(t Token) error {
	_, err := tx.exec("INSERT INTO tokens ("+tokenColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		t.ID, t.Hash, string(t.Kind), t.Name, t.Description, t.OrgID, t.UserID, t.PoolID, t.JobID, t.Epoch,
		t.DeploymentID, t.StackID, t.Scope, flag(t.Admin), t.CreatedBy, t.IssuerID, micros(t.CreatedAt), micros(t.ExpiresAt), micros(t.LastUsedAt))
	return err
}

// TokenByHash returns the token with this SHA-256.
func (tx *Tx) TokenByHash(hash []byte) (Token, error) {
	return one(tx, readToken, "SELECT "+tokenColumns+" FROM tokens WHERE hash = $1", hash)
}

// TokensOfUser returns the personal tokens that a user created, newest first.
func (tx *Tx) TokensOfUser(userID string) ([]Token, error) {
	return collect(tx, readToken, "SELECT "+tokenColumns+` FROM tokens
		WHERE user_id = $1 AND kind = 'personal' AND issuer_id = '' ORDER BY created_at DESC, id`, userID)
}

// TokensOfOrg returns the tokens of one kind created for an organization, newest first.
func (tx *Tx) TokensOfOrg(orgID string, kind TokenKind) ([]Token, error) {
	return collect(tx, readToken, "SELECT "+tokenColumns+` FROM tokens
		WHERE org_id = $1 AND kind = $2 AND issuer_id = '' ORDER BY created_at DESC, id`, orgID, string(kind))
}

// TokensOfPool returns the tokens created for an agent pool, newest first.
func (tx *Tx) TokensOfPool(poolID string) ([]Token, error) {
	return collect(tx, readToken, "SELECT "+tokenColumns+` FROM tokens
		WHERE pool_id = $1 AND kind = 'pool' AND issuer_id = '' ORDER BY created_at DESC, id`, poolID)
}

// DeleteToken removes a token by id, or returns [ErrNotFound].
func (tx *Tx) DeleteToken(id string) error {
	return tx.execOne("DELETE FROM tokens WHERE id = $1", id)
}

// DeleteTokensOfPool removes all tokens of an agent pool.
func (tx *Tx) DeleteTokensOfPool(poolID string) error {
	_, err := tx.exec("DELETE FROM tokens WHERE pool_id = $1 AND kind = 'pool'", poolID)
	return err
}

// DeleteTokensOfJob removes the tokens of a job.
func (tx *Tx) DeleteTokensOfJob(jobID string) error {
	_, err := tx.exec("DELETE FROM tokens WHERE job_id = $1", jobID)
	return err
}

// TouchToken records when a token was last used.
func (tx *Tx) TouchToken(id string, at time.Time) error {
	_, err := tx.exec("UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2", id, micros(at))
	return err
}

// DeleteExpiredTokens removes at most limit tokens expired before a time and returns their number.
func (tx *Tx) DeleteExpiredTokens(before time.Time, limit int) (int64, error) {
	return tx.exec(fmt.Sprintf(`DELETE FROM tokens WHERE id IN (
		SELECT id FROM tokens WHERE expires_at > 0 AND expires_at < $1 LIMIT %d)`, limit), micros(before))
}

// RolesOf returns a user's roles by organization id.
func (tx *Tx) RolesOf(userID string) (map[string]string, error) {
	roles := map[string]string{}
	err := tx.queryEach("SELECT org_id, role FROM members WHERE user_id = $1", []any{userID}, func(scan scanFunc) error {
		var org, role string
		if err := scan(&org, &role); err != nil {
			return err
		}
		roles[org] = role
		return nil
	})
	return roles, err
}

// TokenByID returns a token by its id.
func (tx *Tx) TokenByID(id string) (Token, error) {
	return one(tx, readToken, "SELECT "+tokenColumns+" FROM tokens WHERE id = $1", id)
}
