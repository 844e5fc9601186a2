package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// Permission is a level of access to a stack. A higher level includes the lower levels. The numbers
// are those of the public API.
type Permission int64

// The permissions.
const (
	NoPermission    Permission = 0
	ReadPermission  Permission = 101
	WritePermission Permission = 102
	AdminPermission Permission = 103
)

// Team is a group of an organization's members.
type Team struct {
	ID, OrgID         string
	Name, DisplayName string
	Description       string
	CreatedAt         time.Time
}

// TeamMember is a user's membership in a team.
type TeamMember struct {
	TeamID, UserID, Role string
	CreatedAt            time.Time
	Login                string `db:"-" read:"u.login"`
	Name                 string `db:"-" read:"u.name"`
	Email                string `db:"-" read:"u.email"`
}

// TeamStack is a team's permission on a stack.
type TeamStack struct {
	TeamID, StackID string
	Permission      Permission
	Project         string `db:"-" read:"s.project"`
	Stack           string `db:"-" read:"s.name"`
}

// Collaborator is a user's own permission on a stack.
type Collaborator struct {
	StackID, UserID string
	Permission      Permission
	Login           string `db:"-" read:"u.login"`
	Name            string `db:"-" read:"u.name"`
	Email           string `db:"-" read:"u.email"`
}

var (
	teams         = database.NewTable[Team]("teams")
	teamMembers   = database.NewTable[TeamMember]("team_members m JOIN users u ON u.id = m.user_id")
	teamStacks    = database.NewTable[TeamStack]("team_stacks g JOIN live_stacks s ON s.id = g.stack_id JOIN organizations o ON o.id = s.org_id")
	collaborators = database.NewTable[Collaborator]("collaborators c JOIN users u ON u.id = c.user_id")
)

// InsertTeam adds a team, or returns [ErrConflict] if the organization has a team of this name.
func (tx *Tx) InsertTeam(t Team) error { return teams.Insert(tx.Tx, t) }

// Team returns a team by its id.
func (tx *Tx) Team(id string) (Team, error) { return teams.One(tx.Tx, "WHERE id = $1", id) }

// TeamByName returns a team of an organization.
func (tx *Tx) TeamByName(orgID, name string) (Team, error) {
	return teams.One(tx.Tx, "WHERE org_id = $1 AND name = $2", orgID, name)
}

// Teams returns an organization's teams, ordered by name.
func (tx *Tx) Teams(orgID string) ([]Team, error) {
	return teams.All(tx.Tx, "WHERE org_id = $1 ORDER BY name", orgID)
}

// TeamsOfUser returns the teams of an organization to which a user belongs, ordered by name.
func (tx *Tx) TeamsOfUser(orgID, userID string) ([]Team, error) {
	return teams.All(tx.Tx, "WHERE org_id = $1 AND id IN (SELECT team_id FROM team_members WHERE user_id = $2) ORDER BY name", orgID, userID)
}

// DescribeTeam writes a team's display name and description.
func (tx *Tx) DescribeTeam(t Team) error {
	return teams.Update(tx.Tx, t, "display_name", "description")
}

// DeleteTeam removes a team, its memberships, its permissions and its tokens.
func (tx *Tx) DeleteTeam(id string) error {
	if _, err := tx.Exec("DELETE FROM tokens WHERE team_id = $1", id); err != nil {
		return err
	}
	return tx.ExecOne("DELETE FROM teams WHERE id = $1", id)
}

// SaveTeamMember adds a user to a team, or changes the user's role.
func (tx *Tx) SaveTeamMember(m TeamMember) error {
	return teamMembers.Save(tx.Tx, m, "team_id, user_id")
}

// TeamMember returns a user's membership in a team, or [ErrNotFound].
func (tx *Tx) TeamMember(teamID, userID string) (TeamMember, error) {
	return teamMembers.One(tx.Tx, "WHERE m.team_id = $1 AND m.user_id = $2", teamID, userID)
}

// TeamMembers returns the members of an organization's teams, or of one team if teamID is not "",
// ordered by login.
func (tx *Tx) TeamMembers(orgID, teamID string) ([]TeamMember, error) {
	return teamMembers.All(tx.Tx, `WHERE m.team_id IN (SELECT id FROM teams WHERE org_id = $1 AND (id = $2 OR $2 = ''))
		ORDER BY u.login`, orgID, teamID)
}

// DeleteTeamMember removes a user from a team, or returns [ErrNotFound].
func (tx *Tx) DeleteTeamMember(teamID, userID string) error {
	return tx.ExecOne("DELETE FROM team_members WHERE team_id = $1 AND user_id = $2", teamID, userID)
}

// SaveTeamStack sets a team's permission on a stack.
func (tx *Tx) SaveTeamStack(t TeamStack) error { return teamStacks.Save(tx.Tx, t, "team_id, stack_id") }

// TeamStacks returns the permissions of an organization's teams, or of one team if teamID is not
// "", on the stacks that a caller can see, ordered by stack.
func (tx *Tx) TeamStacks(orgID, teamID string, reach Reach) ([]TeamStack, error) {
	visible, args := reach.query(orgID, teamID)
	if visible == "" {
		return nil, nil
	}
	return teamStacks.All(tx.Tx, `WHERE g.team_id IN (SELECT id FROM teams WHERE org_id = $1 AND (id = $2 OR $2 = ''))
		AND `+visible+" ORDER BY s.project, s.name", args...)
}

// TeamsOfStack returns the permissions of all teams on a stack.
func (tx *Tx) TeamsOfStack(stackID string) ([]TeamStack, error) {
	return teamStacks.All(tx.Tx, "WHERE g.stack_id = $1", stackID)
}

// DeleteTeamStack removes a team's permission on a stack, or returns [ErrNotFound].
func (tx *Tx) DeleteTeamStack(teamID, stackID string) error {
	return tx.ExecOne("DELETE FROM team_stacks WHERE team_id = $1 AND stack_id = $2", teamID, stackID)
}

// SaveCollaborator sets a user's own permission on a stack.
func (tx *Tx) SaveCollaborator(c Collaborator) error {
	return collaborators.Save(tx.Tx, c, "stack_id, user_id")
}

// Collaborators returns the users with their own permission on a stack.
func (tx *Tx) Collaborators(stackID string) ([]Collaborator, error) {
	return collaborators.All(tx.Tx, "WHERE c.stack_id = $1 ORDER BY u.login", stackID)
}

// DeleteCollaborator removes a user's own permission on a stack, or returns [ErrNotFound].
func (tx *Tx) DeleteCollaborator(stackID, userID string) error {
	return tx.ExecOne("DELETE FROM collaborators WHERE stack_id = $1 AND user_id = $2", stackID, userID)
}

// Granted returns the highest permission on a stack that a user has as a collaborator or by a team,
// or that a team has. One of userID and teamID is "".
func (tx *Tx) Granted(stackID, userID, teamID string) (Permission, error) {
	p, err := database.Scalar[int64](tx.Tx, `SELECT COALESCE(MAX(permission), 0) FROM (
		SELECT permission FROM collaborators WHERE stack_id = $1 AND user_id = $2
		UNION ALL
		SELECT permission FROM team_stacks WHERE stack_id = $1
			AND (team_id = $3 OR team_id IN (SELECT team_id FROM team_members WHERE user_id = $2))) granted`, stackID, userID, teamID)
	return Permission(p), err
}

// UserOnStack returns, with one query, what determines a user's rights on a stack besides granted
// permissions: the user's id and site administration, the stack's ids, creator and default
// permission, and the user's role in the stack's organization, or "". A disabled user has neither site
// administration nor a role.
func (tx *Tx) UserOnStack(userID, stackID string) (u User, s Stack, role string, err error) {
	type found struct {
		user  User
		stack Stack
		role  string
	}
	f, err := database.One(tx.Tx, func(scan database.Scan) (f found, err error) {
		err = scan(&f.user.ID, &f.user.SiteAdmin, &f.stack.ID, &f.stack.OrgID, &f.stack.CreatedBy, &f.stack.OrgPermission, &f.role)
		return f, err
	}, `SELECT u.id, CASE WHEN u.disabled_at = 0 THEN u.site_admin ELSE 0 END, s.id, s.org_id, s.created_by, o.stack_permission, COALESCE(m.role, '')
		FROM live_stacks s JOIN organizations o ON o.id = s.org_id JOIN users u ON u.id = $1
		LEFT JOIN members m ON m.org_id = s.org_id AND m.user_id = u.id AND u.disabled_at = 0 WHERE s.id = $2`, userID, stackID)
	return f.user, f.stack, f.role, err
}

// Reach selects the stacks that a caller can see.
type Reach struct {
	// All are the ids of the organizations whose stacks the caller sees.
	All []string
	// ByDefault are the ids of the organizations whose stacks the caller sees if their members have
	// a permission on every stack.
	ByDefault []string
	// Granted are the ids of the organizations of which the caller sees only stacks that the
	// caller created, and stacks on which the caller has a permission.
	Granted                 []string
	Creator, UserID, TeamID string
	// One are the ids of the organizations of which the caller sees only the stack StackID, if that belongs to them.
	One     []string
	StackID string
	// Least is the least permission that the caller must have on a stack; 0 is [ReadPermission].
	Least Permission
}

// organizations returns the ids of the organizations whose stacks the caller might see, in order.
func (r Reach) organizations() []string {
	ids := slices.Concat(r.All, r.ByDefault, r.Granted, r.One)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// query returns the condition of where, and its arguments.
func (r Reach) query(args ...any) (where string, all []any) {
	where = r.where(argumentsOf(&args))
	return where, args
}

// argumentsOf returns a function that adds an argument to those of a query, and returns its mark.
func argumentsOf(args *[]any) func(v any) string {
	return func(v any) string {
		*args = append(*args, v)
		return fmt.Sprintf("$%d", len(*args))
	}
}

// listOf returns a list of arguments in parentheses.
func listOf(arg func(any) string, ids []string) string {
	marks := make([]string, len(ids))
	for i, id := range ids {
		marks[i] = arg(id)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}

// where returns a condition on the stack s and its organization o, or "" if the caller sees no
// stack. arg adds an argument to the query.
func (r Reach) where(arg func(any) string) string {
	least := max(r.Least, ReadPermission)
	in := func(orgs []string) string {
		return "s.org_id IN " + listOf(arg, orgs)
	}
	var sees []string
	if len(r.All) > 0 {
		sees = append(sees, in(r.All))
	}
	if len(r.ByDefault) > 0 {
		sees = append(sees, in(r.ByDefault)+fmt.Sprintf(" AND o.stack_permission >= %d", least))
	}
	if own := slices.Concat(r.ByDefault, r.Granted); len(own) > 0 {
		user := arg(r.UserID)
		sees = append(sees, in(own)+" AND (s.created_by <> '' AND s.created_by = "+arg(r.Creator)+`
			OR s.id IN (SELECT stack_id FROM collaborators WHERE user_id = `+user+fmt.Sprintf(" AND permission >= %d", least)+`)
			OR s.id IN (SELECT stack_id FROM team_stacks WHERE `+fmt.Sprintf("permission >= %d", least)+" AND (team_id = "+arg(r.TeamID)+`
				OR team_id IN (SELECT team_id FROM team_members WHERE user_id = `+user+`))))`)
	}
	if len(r.One) > 0 {
		sees = append(sees, in(r.One)+" AND s.id = "+arg(r.StackID))
	}
	if len(sees) == 0 {
		return ""
	}
	return "(" + strings.Join(sees, " OR ") + ")"
}

// granted returns the condition that a column has the id of a stack on which the caller has permissions that do not come
// from the organization. The organization is that of the rows. It is "" if the caller can have none.
func (r Reach) granted(orgID, column string, arg func(any) string) string {
	var sees []string
	if slices.Contains(r.One, orgID) {
		sees = append(sees, column+" = "+arg(r.StackID))
	}
	if slices.Contains(r.ByDefault, orgID) || slices.Contains(r.Granted, orgID) {
		user, least := arg(r.UserID), fmt.Sprintf("permission >= %d", max(r.Least, ReadPermission))
		sees = append(sees,
			column+" IN (SELECT id FROM live_stacks WHERE created_by <> '' AND created_by = "+arg(r.Creator)+" AND org_id = "+arg(orgID)+")",
			column+" IN (SELECT stack_id FROM collaborators WHERE user_id = "+user+" AND "+least+")",
			column+" IN (SELECT stack_id FROM team_stacks WHERE "+least+" AND (team_id = "+arg(r.TeamID)+`
				OR team_id IN (SELECT team_id FROM team_members WHERE user_id = `+user+")))")
	}
	if len(sees) == 0 {
		return ""
	}
	return "(" + strings.Join(sees, " OR ") + ")"
}
