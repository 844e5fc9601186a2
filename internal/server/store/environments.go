package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// EnvironmentPermission is a permission on an environment. Each one includes those before it.
type EnvironmentPermission int64

// The permissions on environments.
const (
	NoEnvironment    EnvironmentPermission = iota
	ReadEnvironment                        // read the definition, in which secrets are ciphertexts
	OpenEnvironment                        // read the values and the secrets
	WriteEnvironment                       // change the definition, tags and revisions
	AdminEnvironment                       // delete it, change its settings and grant permissions on it
)

var environmentPermissions = []string{"none", "read", "open", "write", "admin"}

// String returns the name of a permission, as clients know it.
func (p EnvironmentPermission) String() string {
	if p < 0 || int(p) >= len(environmentPermissions) {
		return fmt.Sprintf("unknown (%d)", int64(p))
	}
	return environmentPermissions[p]
}

// ParseEnvironmentPermission returns the permission with a name.
func ParseEnvironmentPermission(name string) (EnvironmentPermission, bool) {
	for p, known := range environmentPermissions {
		if name == known {
			return EnvironmentPermission(p), true
		}
	}
	return NoEnvironment, false
}

// Environment is a set of values with a name. Its definition is that of its newest revision.
type Environment struct {
	ID, OrgID, Project, Name string
	CreatedBy                string // id of a user, or of the organization if one of its tokens created it
	SealedKey                []byte // of the secrets in its definitions
	LastNumber               int64  // of its revisions
	Protected                bool   // cannot be deleted
	CreatedAt, ModifiedAt    time.Time
	OrgName                  string `db:"-" read:"o.name"`
	// OrgPermission is the permission that the organization's members have on every environment.
	OrgPermission EnvironmentPermission `db:"-" read:"o.environment_permission"`
	// Creator is the login of the user who created it, or "".
	Creator string `db:"-" read:"COALESCE((SELECT u.login FROM users u WHERE u.id = e.created_by), '')"`
}

// Ref returns the environment's name as org/project/environment.
func (e Environment) Ref() string { return e.OrgName + "/" + e.Project + "/" + e.Name }

var environments = database.NewTable[Environment]("environments e JOIN organizations o ON o.id = e.org_id")

// InsertEnvironment adds an environment, or returns [ErrConflict] if its name is taken.
func (tx *Tx) InsertEnvironment(e Environment) error { return environments.Insert(tx.Tx, e) }

// SaveEnvironment writes what changes of an environment: the creator, the last number, the protection and the time.
func (tx *Tx) SaveEnvironment(e Environment) error {
	return environments.Update(tx.Tx, e, "created_by", "last_number", "protected", "modified_at")
}

// DeleteEnvironment removes an environment with all that belongs to it.
func (tx *Tx) DeleteEnvironment(id string) error {
	return tx.ExecOne("DELETE FROM environments WHERE id = $1", id)
}

// Environment returns an environment by its id.
func (tx *Tx) Environment(id string) (Environment, error) {
	return environments.One(tx.Tx, "WHERE e.id = $1", id)
}

// grantedOnEnvironment is the highest permission on the environment e of the teams of a user, or of a team.
func grantedOnEnvironment(userID, teamID string) string {
	return strings.NewReplacer("USER", userID, "TEAM", teamID).Replace(`COALESCE((SELECT MAX(t.permission) FROM team_environments t WHERE t.environment_id = e.id
		AND (t.team_id = TEAM OR t.team_id IN (SELECT m.team_id FROM team_members m WHERE m.user_id = USER))), 0)`)
}

// GrantedEnvironment is an environment with the highest permission on it that a user or a team was granted.
type GrantedEnvironment struct {
	Environment
	Granted EnvironmentPermission
	// Lent reports whether the job for which [Tx.EnvironmentForJob] returned it may open it without its user.
	Lent bool
	// ManagedBy is the id of the stack that manages the environment, or "". The stack need not exist any more.
	ManagedBy string
}

func scanGrantedEnvironment(scan database.Scan) (g GrantedEnvironment, err error) {
	var granted int64
	err = scan(append(environments.Fields(&g.Environment), &granted, &g.ManagedBy)...)
	g.Granted = EnvironmentPermission(granted)
	return g, err
}

// managerOfEnvironment is the id of the stack that manages the environment e, or "".
const managerOfEnvironment = "COALESCE((SELECT m.stack_id FROM managed_environments m WHERE m.environment_id = e.id), '')"

var environmentFor = "SELECT " + environments.Expressions() + ", " + grantedOnEnvironment("$1", "$2") + ", " + managerOfEnvironment +
	" FROM environments e JOIN organizations o ON o.id = e.org_id "

// EnvironmentFor returns an environment by its names, with the highest permission on it that a user or a team was
// granted. The name of the organization can be a former one.
func (tx *Tx) EnvironmentFor(org, project, name, userID, teamID string) (GrantedEnvironment, error) {
	return database.One(tx.Tx, scanGrantedEnvironment, environmentFor+"WHERE o.deleted_at = 0 AND e.project = $4 AND e.name = $5 AND e.org_id = "+named("$3"),
		userID, teamID, org, project, name)
}

// EnvironmentName orders environments.
type EnvironmentName struct{ Org, Project, Name string }

// Environments returns up to limit environments of organizations that follow a name, by the names of organization,
// project and environment, with the permissions that a user or a team was granted.
func (tx *Tx) Environments(orgIDs []string, userID, teamID string, after EnvironmentName, limit int) ([]GrantedEnvironment, error) {
	if len(orgIDs) == 0 {
		return nil, nil
	}
	where, args := among("e.org_id", orgIDs, []any{userID, teamID, after.Org, after.Project, after.Name})
	org, project, name := tx.Bytewise("o.name"), tx.Bytewise("e.project"), tx.Bytewise("e.name")
	return database.Collect(tx.Tx, scanGrantedEnvironment, environmentFor+fmt.Sprintf(`WHERE o.deleted_at = 0 AND %[1]s AND (%[2]s > $3
		OR o.name = $3 AND (%[3]s > $4 OR e.project = $4 AND %[4]s > $5)) ORDER BY %[2]s, %[3]s, %[4]s LIMIT %[5]d`, where, org, project, name, limit), args...)
}

// CountEnvironments returns the number of an organization's environments.
func (tx *Tx) CountEnvironments(orgID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM environments WHERE org_id = $1", orgID)
}

// SetEnvironmentPermission sets the permission of an organization's members on all its environments.
func (tx *Tx) SetEnvironmentPermission(orgID string, p EnvironmentPermission) error {
	return organizations.Update(tx.Tx, Organization{ID: orgID, EnvironmentPermission: p}, "environment_permission")
}

// TeamEnvironment is a team's permission on an environment.
type TeamEnvironment struct {
	TeamID, EnvironmentID string
	Permission            EnvironmentPermission
	Project               string `db:"-" read:"e.project"`
	Name                  string `db:"-" read:"e.name"`
}

var teamEnvironments = database.NewTable[TeamEnvironment]("team_environments g JOIN environments e ON e.id = g.environment_id")

// SaveTeamEnvironment sets a team's permission on an environment.
func (tx *Tx) SaveTeamEnvironment(t TeamEnvironment) error {
	return teamEnvironments.Save(tx.Tx, t, "team_id, environment_id")
}

// DeleteTeamEnvironment removes a team's permission on an environment, or returns [ErrNotFound].
func (tx *Tx) DeleteTeamEnvironment(teamID, environmentID string) error {
	return tx.ExecOne("DELETE FROM team_environments WHERE team_id = $1 AND environment_id = $2", teamID, environmentID)
}

// TeamEnvironments returns the permissions of an organization's teams, or of one team if teamID is not "", ordered by
// project and environment.
func (tx *Tx) TeamEnvironments(orgID, teamID string) ([]TeamEnvironment, error) {
	return teamEnvironments.All(tx.Tx, "WHERE e.org_id = $1 AND ($2 = '' OR g.team_id = $2) ORDER BY e.project, e.name", orgID, teamID)
}

// CopyTeamEnvironments gives all teams the permissions on an environment that they have on another one.
func (tx *Tx) CopyTeamEnvironments(from, to string) error {
	_, err := tx.Exec(`INSERT INTO team_environments (team_id, environment_id, permission) SELECT team_id, CAST($2 AS TEXT), permission FROM team_environments
		WHERE environment_id = $1 ON CONFLICT (team_id, environment_id) DO NOTHING`, from, to)
	return err
}
