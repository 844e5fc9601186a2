package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// Organization owns stacks, pools and tokens.
type Organization struct {
	ID, Name, DisplayName string
	CreatedAt             time.Time
	StackPermission       Permission // of members, on every stack of the organization
	PulumiVersion         string     // range for deployments whose settings name none; "" for any
	StorageQuota          int64      // limit of what is stored, in bytes; 0 for the server's, [NoQuota] for none
	DeploymentQuota       int64      // limit of claimed and running jobs; 0 for the server's
	// ProjectReads reports whether updates of a stack may read the outputs of the other stacks of its project.
	ProjectReads bool
	// EnvironmentPermission is the permission of members on every environment of the organization.
	EnvironmentPermission EnvironmentPermission
}

// NoQuota is the storage quota of organizations that may store any amount.
const NoQuota = -1

// User is a human or service that signs in.
type User struct {
	ID, Login, Name, Email string
	SiteAdmin              bool
	DefaultOrg             string // organization name; "" if the user chose none
	CreatedAt              time.Time
	DisabledAt             time.Time // zero if the user may sign in
	DeletedAt              time.Time // zero if the user exists; a deleted user is also disabled
	// How the user wants to see the console.
	Zone    string // of times; "" for that of the browser
	Density string // of lists: [Compact], or "" for the usual one
	Scheme  string // of colors: "light", "dark" or "system"; "" if the user has chosen none
}

// Compact is the density of lists with narrow rows.
const Compact = "compact"

// Disabled reports whether a user has no rights and cannot sign in.
func (u User) Disabled() bool { return !u.DisabledAt.IsZero() }

// Member is a user's membership in an organization.
type Member struct {
	OrgID, UserID, Role string
	CreatedAt           time.Time
	Login               string `db:"-" read:"u.login"`
	Name                string `db:"-" read:"u.name"`
	Email               string `db:"-" read:"u.email"`
}

// TokenKind is the purpose of a token.
type TokenKind string

// The token kinds.
const (
	PersonalToken TokenKind = "personal" // authenticates its user
	OrgToken      TokenKind = "org"      // authenticates the organization
	TeamToken     TokenKind = "team"     // authenticates a team of the organization
	PoolToken     TokenKind = "pool"     // for agents of a pool: polls and claims
	JobToken      TokenKind = "job"      // for a job's pulumi process: PULUMI_ACCESS_TOKEN
	RunnerToken   TokenKind = "runner"   // for a job's agent and runner: job callbacks
)

// Token is a credential. Its kind determines which reference fields are set.
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
	Scope             string // permissions of a job token, in the format of package identity
	Admin             bool
	CreatedBy         string // user id
	IssuerID          string // OIDC issuer of the identity token that was exchanged for this token
	TeamID            string
	CreatedAt         time.Time
	ExpiresAt         time.Time // zero means never
	LastUsedAt        time.Time // zero means never
}

var (
	organizations = database.NewTable[Organization]("organizations")
	users         = database.NewTable[User]("users")
	members       = database.NewTable[Member]("members m JOIN users u ON u.id = m.user_id")
	tokens        = database.NewTable[Token]("tokens")
)

// Installation returns a named value of the installation, or [ErrNotFound].
func (tx *Tx) Installation(name string) ([]byte, error) {
	return database.Scalar[[]byte](tx.Tx, "SELECT value FROM installation WHERE name = $1", name)
}

// SetInstallation sets a named value of the installation.
func (tx *Tx) SetInstallation(name string, value []byte) error {
	_, err := tx.Exec(`INSERT INTO installation (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}

// AddInstallation sets a named value of the installation, unless it is set.
func (tx *Tx) AddInstallation(name string, value []byte) error {
	_, err := tx.Exec("INSERT INTO installation (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", name, value)
	return err
}

// InstallationsWith returns the values of the installation whose names begin with a prefix, by name.
func (tx *Tx) InstallationsWith(prefix string) (map[string][]byte, error) {
	return database.Pairs[string, []byte](tx.Tx, "SELECT name, value FROM installation WHERE substr(name, 1, $1) = $2", len(prefix), prefix)
}

// DeleteInstallation deletes a named value of the installation, if it is set.
func (tx *Tx) DeleteInstallation(name string) error {
	_, err := tx.Exec("DELETE FROM installation WHERE name = $1", name)
	return err
}

// InsertOrganization adds an organization, or returns [ErrConflict] if another one has or has had the name.
func (tx *Tx) InsertOrganization(o Organization) error {
	if err := tx.checkFormerName(o.Name); err != nil {
		return err
	}
	return organizations.Insert(tx.Tx, o)
}

// Organization returns an organization by its id.
func (tx *Tx) Organization(id string) (Organization, error) {
	return organizations.One(tx.Tx, "WHERE id = $1", id)
}

// Organizations returns all organizations, oldest first.
func (tx *Tx) Organizations() ([]Organization, error) {
	return organizations.All(tx.Tx, "WHERE id <> '"+deletedOrg+"' AND deleted_at = 0 ORDER BY created_at, id")
}

// OrganizationsOf returns the organizations of which a user is a member.
func (tx *Tx) OrganizationsOf(userID string) ([]Organization, error) {
	return organizations.All(tx.Tx, "WHERE id IN (SELECT org_id FROM members WHERE user_id = $1) ORDER BY created_at, id", userID)
}

// InsertUser adds a user, or returns [ErrConflict] if the login is taken.
func (tx *Tx) InsertUser(u User) error { return users.Insert(tx.Tx, u) }

// User returns a user by its id.
func (tx *Tx) User(id string) (User, error) { return users.One(tx.Tx, "WHERE id = $1", id) }

// UserByLogin returns the user with the given login, unless the user was deleted.
func (tx *Tx) UserByLogin(login string) (User, error) {
	return users.One(tx.Tx, "WHERE login = $1 AND deleted_at = 0", login)
}

// AnyUserByLogin returns the user with the given login, who can be deleted.
func (tx *Tx) AnyUserByLogin(login string) (User, error) {
	return users.One(tx.Tx, "WHERE login = $1", login)
}

// SetDefaultOrg sets a user's default organization.
func (tx *Tx) SetDefaultOrg(userID, org string) error {
	return users.Update(tx.Tx, User{ID: userID, DefaultOrg: org}, "default_org")
}

// SetPreferences sets how a user wants to see the console.
func (tx *Tx) SetPreferences(u User) error {
	return users.Update(tx.Tx, u, "zone", "density", "scheme")
}

// InsertMember adds a user to an organization.
func (tx *Tx) InsertMember(m Member) error { return members.Insert(tx.Tx, m) }

// Member returns a user's membership in an organization, or [ErrNotFound].
func (tx *Tx) Member(orgID, userID string) (Member, error) {
	return members.One(tx.Tx, "WHERE m.org_id = $1 AND m.user_id = $2", orgID, userID)
}

// MemberByLogin returns a user's membership in an organization, or [ErrNotFound].
func (tx *Tx) MemberByLogin(orgID, login string) (Member, error) {
	return members.One(tx.Tx, "WHERE m.org_id = $1 AND u.login = $2", orgID, login)
}

// Members returns up to limit members of an organization, ordered by login, whose login follows
// after. If words is not "", their login, name or email address contains it.
func (tx *Tx) Members(orgID, words, after string, limit int) ([]Member, error) {
	return tx.FindMembers(MemberFilter{OrgID: orgID, Words: words, After: after, Limit: limit})
}

// SetRole changes a member's role.
func (tx *Tx) SetRole(orgID, userID, role string) error {
	return tx.ExecOne("UPDATE members SET role = $3 WHERE org_id = $1 AND user_id = $2", orgID, userID, role)
}

// CountMembers returns the number of an organization's members.
func (tx *Tx) CountMembers(orgID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM members WHERE org_id = $1", orgID)
}

// CountEnabled returns the number of an organization's members with a role who are not disabled.
func (tx *Tx) CountEnabled(orgID, role string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM members m JOIN users u ON u.id = m.user_id
		WHERE m.org_id = $1 AND m.role = $2 AND u.disabled_at = 0`, orgID, role)
}

// DemoteOthers gives all of an organization's members with the role from, except one user, the role
// to.
func (tx *Tx) DemoteOthers(orgID, userID, from, to string) error {
	_, err := tx.Exec("UPDATE members SET role = $4 WHERE org_id = $1 AND user_id <> $2 AND role = $3", orgID, userID, from, to)
	return err
}

// withDeleted is a subquery for the ids of an organization's stacks, also of deleted ones.
const withDeleted = "(SELECT id FROM live_stacks WHERE org_id = $1 UNION ALL SELECT stack_id FROM deleted_stacks WHERE org_id = $1)"

// DeleteMember removes a user from an organization and its teams, together with the user's
// permissions on its stacks and environments, also as their creator, and the user's exchanged tokens for it. A user
// who belongs to no other organization is signed out.
func (tx *Tx) DeleteMember(orgID, userID string) error {
	for _, query := range []string{
		"DELETE FROM team_members WHERE user_id = $2 AND team_id IN (SELECT id FROM teams WHERE org_id = $1)",
		"DELETE FROM collaborators WHERE user_id = $2 AND stack_id IN " + withDeleted,
		"UPDATE stacks SET created_by = '' WHERE created_by = $2 AND id IN " + withDeleted,
		"UPDATE environments SET created_by = '' WHERE created_by = $2 AND org_id = $1",
		"DELETE FROM tokens WHERE user_id = $2 AND org_id = $1 AND kind = 'personal'",
	} {
		if _, err := tx.Exec(query, orgID, userID); err != nil {
			return err
		}
	}
	if err := tx.ExecOne("DELETE FROM members WHERE org_id = $1 AND user_id = $2", orgID, userID); err != nil {
		return err
	}
	_, err := tx.Exec(`DELETE FROM sessions WHERE user_id = $1 AND NOT EXISTS (SELECT 1 FROM members WHERE user_id = $1)
		AND NOT EXISTS (SELECT 1 FROM users WHERE id = $1 AND site_admin <> 0)`, userID)
	return err
}

// SetStackPermission sets the permission of an organization's members on all its stacks.
func (tx *Tx) SetStackPermission(orgID string, p Permission) error {
	return organizations.Update(tx.Tx, Organization{ID: orgID, StackPermission: p}, "stack_permission")
}

// SetProjectReads sets whether updates of a stack may read the outputs of the other stacks of its project.
func (tx *Tx) SetProjectReads(orgID string, may bool) error {
	return organizations.Update(tx.Tx, Organization{ID: orgID, ProjectReads: may}, "project_reads")
}

// SetQuotas sets the limits of an organization.
func (tx *Tx) SetQuotas(orgID string, storage, deployments int64) error {
	return organizations.Update(tx.Tx, Organization{ID: orgID, StorageQuota: storage, DeploymentQuota: deployments}, "storage_quota", "deployment_quota")
}

// SetPulumiVersion sets the range of versions of pulumi of an organization.
func (tx *Tx) SetPulumiVersion(orgID, version string) error {
	return organizations.Update(tx.Tx, Organization{ID: orgID, PulumiVersion: version}, "pulumi_version")
}

// RolesOf returns a map from the ids of a user's organizations to the user's roles.
func (tx *Tx) RolesOf(userID string) (map[string]string, error) {
	return database.Pairs[string, string](tx.Tx, "SELECT org_id, role FROM members WHERE user_id = $1", userID)
}

// InsertToken adds a token with a new id and hash.
func (tx *Tx) InsertToken(t Token) error { return tokens.Insert(tx.Tx, t) }

// TokenByID returns a token by its id.
func (tx *Tx) TokenByID(id string) (Token, error) { return tokens.One(tx.Tx, "WHERE id = $1", id) }

// TokenOfJob returns the newest token of a kind that a job has.
func (tx *Tx) TokenOfJob(jobID string, kind TokenKind) (Token, error) {
	return tokens.One(tx.Tx, "WHERE job_id = $1 AND kind = $2 ORDER BY created_at DESC, id LIMIT 1", jobID, kind)
}

// Credential is a token with what it refers to. The objects to which it does not refer, or which no
// longer exist, are zero.
type Credential struct {
	Token
	Org   Organization
	User  User
	Team  Team
	Roles map[string]string // roles of the user, by the id of the organization
	Now   time.Time         // database time
}

// CredentialByHash returns the token with this SHA-256 hash, unless its organization is deleted. It runs one statement.
func (tx *Tx) CredentialByHash(hash []byte) (*Credential, error) { return tx.credential("hash", hash) }

// CredentialByID returns a token by its id. It runs one statement.
func (tx *Tx) CredentialByID(id string) (*Credential, error) { return tx.credential("id", id) }

func (tx *Tx) credential(column string, value any) (*Credential, error) {
	var c Credential
	rows, err := database.Collect(tx.Tx, func(scan database.Scan) (role [2]string, err error) {
		var now int64
		dest := append(tokens.Fields(&c.Token), organizations.Fields(&c.Org)...)
		dest = append(append(dest, users.Fields(&c.User)...), teams.Fields(&c.Team)...)
		err = scan(append(dest, &role[0], &role[1], &now)...)
		c.Now = tx.NowFrom(now)
		return role, err
	}, "SELECT "+tokens.Expressions()+", "+organizations.Optional()+", "+users.Optional()+", "+teams.Optional()+
		", COALESCE(m.org_id, ''), COALESCE(m.role, ''), "+tx.NowExpression()+` FROM tokens
		LEFT JOIN organizations ON organizations.id = tokens.org_id
		LEFT JOIN users ON users.id = tokens.user_id
		LEFT JOIN teams ON teams.id = tokens.team_id
		LEFT JOIN members m ON m.user_id = tokens.user_id
		WHERE COALESCE(organizations.deleted_at, 0) = 0 AND tokens.`+column+` = $1`, value)
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	for _, role := range rows {
		if role[0] != "" && c.Roles == nil {
			c.Roles = map[string]string{}
		}
		if role[0] != "" {
			c.Roles[role[0]] = role[1]
		}
	}
	return &c, err
}

// PollState is what must be known to begin a poll.
type PollState struct {
	TokenExpiresAt time.Time // zero means never
	Repeated       bool      // the poll has claimed a job, and the claim is still valid
	Drained        bool      // the agent is drained
	Now            time.Time // database time
}

// PollState returns the state of a poll, or [ErrNotFound] if its token does not exist. It runs one
// statement.
func (tx *Tx) PollState(tokenID, poolID, agentID, pollID string) (PollState, error) {
	return database.One(tx.Tx, func(scan database.Scan) (p PollState, err error) {
		var expires, repeated, drained, now int64
		if err = scan(&expires, &repeated, &drained, &now); expires != 0 {
			p.TokenExpiresAt = time.UnixMicro(expires).UTC()
		}
		p.Repeated, p.Drained, p.Now = repeated > 0, drained > 0, tx.NowFrom(now)
		return p, err
	}, `SELECT t.expires_at,
			(SELECT COUNT(*) FROM jobs WHERE poll_id = $3 AND poll_id <> '' AND pool_id = $2 AND status = 'accepted')
			+ (SELECT COUNT(*) FROM policy_evaluations WHERE poll_id = $3 AND poll_id <> '' AND pool_id = $2 AND status = 'accepted'),
			(SELECT COUNT(*) FROM drained_agents WHERE pool_id = $2 AND agent_id = $4), `+tx.NowExpression()+`
		FROM tokens t WHERE t.id = $1`, tokenID, poolID, pollID, agentID)
}

// TokenFilter selects tokens of one kind. An empty field selects all.
type TokenFilter struct {
	Kind                          TokenKind // required
	UserID, OrgID, TeamID, PoolID string
	// Contains is a part of the name or description, regardless of case.
	Contains string
	// After selects the tokens that follow this one.
	After Token
	// Limit is the maximum number of tokens; 0 means no limit.
	Limit int
}

// Tokens returns the selected tokens, newest first. It omits exchanged tokens.
func (tx *Tx) Tokens(f TokenFilter) ([]Token, error) {
	query, args := "WHERE kind = $1 AND issuer_id = ''", []any{f.Kind}
	arg := argumentsOf(&args)
	for _, owner := range []struct{ column, id string }{
		{"user_id", f.UserID}, {"org_id", f.OrgID}, {"team_id", f.TeamID}, {"pool_id", f.PoolID},
	} {
		if owner.id != "" {
			query += " AND " + owner.column + " = " + arg(owner.id)
		}
	}
	if f.Contains != "" {
		part := arg("%" + likeText.Replace(f.Contains) + "%")
		query += fmt.Sprintf(` AND (lower(name) LIKE lower(%s) ESCAPE '\' OR lower(description) LIKE lower(%s) ESCAPE '\')`, part, part)
	}
	if f.After.ID != "" {
		at, id := arg(f.After.CreatedAt), arg(f.After.ID)
		query += fmt.Sprintf(" AND (created_at < %s OR created_at = %s AND id > %s)", at, at, id)
	}
	query += " ORDER BY created_at DESC, id"
	if f.Limit > 0 {
		query += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	return tokens.All(tx.Tx, query, args...)
}

var likeText = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`)

// DeleteToken removes a token by id, or returns [ErrNotFound].
func (tx *Tx) DeleteToken(id string) error {
	return tx.ExecOne("DELETE FROM tokens WHERE id = $1", id)
}

// DeleteTokensOfPool removes all tokens of an agent pool.
func (tx *Tx) DeleteTokensOfPool(poolID string) error {
	_, err := tx.Exec("DELETE FROM tokens WHERE pool_id = $1 AND kind = 'pool'", poolID)
	return err
}

// TouchToken records when a token was last used.
func (tx *Tx) TouchToken(id string, at time.Time) error {
	_, err := tx.Exec("UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2", id, at)
	return err
}

// DeleteExpiredTokens removes up to limit tokens that expired before a time, and returns their
// number. It keeps the tokens of running updates, which would lose their leases.
func (tx *Tx) DeleteExpiredTokens(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM tokens WHERE id IN (
		SELECT id FROM tokens WHERE expires_at > 0 AND expires_at < $1
		AND id NOT IN (SELECT token_id FROM updates WHERE status = 'running') LIMIT %d%s)`, limit, tx.SkipLocked()), before)
}

// ExpireJobTokens makes a job's tokens of one kind expire at the given time, unless they expire
// earlier.
func (tx *Tx) ExpireJobTokens(jobID string, kind TokenKind, at time.Time) error {
	_, err := tx.Exec("UPDATE tokens SET expires_at = $3 WHERE job_id = $1 AND kind = $2 AND (expires_at = 0 OR expires_at > $3)", jobID, kind, at)
	return err
}

// DeleteJobTokens removes a job's tokens of one kind.
func (tx *Tx) DeleteJobTokens(jobID string, kind TokenKind) error {
	_, err := tx.Exec("DELETE FROM tokens WHERE job_id = $1 AND kind = $2", jobID, kind)
	return err
}

// DeleteTokensOfIssuer removes the tokens that were issued in exchange for an issuer's identity
// tokens, and returns their number.
func (tx *Tx) DeleteTokensOfIssuer(id string) (int64, error) {
	return tx.Exec("DELETE FROM tokens WHERE issuer_id = $1 AND issuer_id <> ''", id)
}
