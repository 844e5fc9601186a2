package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"workflowagent/internal/server/store/database"
)

// EnvironmentReach selects the environments of an organization that a caller sees.
type EnvironmentReach struct {
	// All is set if the caller may do everything with all of them, and ByDefault if the caller has the default permission of
	// the organization's members.
	All, ByDefault bool
	// Names is set if the caller sees the names of the others, too.
	Names                   bool
	Creator, UserID, TeamID string
}

// readable is the condition that the caller may read the environment e.
func (r EnvironmentReach) readable(arg func(any) string) string {
	return r.holds(ReadEnvironment, "e", arg)
}

// holds is the condition that the caller has at least a permission on the environment with an alias.
func (r EnvironmentReach) holds(least EnvironmentPermission, alias string, arg func(any) string) string {
	if r.All {
		return "1 = 1"
	}
	var parts []string
	if r.ByDefault {
		parts = append(parts, fmt.Sprintf("(SELECT g.environment_permission FROM organizations g WHERE g.id = %s.org_id) >= %d", alias, least))
	}
	if r.Creator != "" {
		parts = append(parts, alias+".created_by = "+arg(r.Creator))
	}
	if r.UserID != "" || r.TeamID != "" {
		parts = append(parts, fmt.Sprintf("EXISTS (SELECT 1 FROM team_environments t WHERE t.environment_id = %s.id AND t.permission >= %d", alias, least)+
			" AND (t.team_id = "+arg(r.TeamID)+" OR t.team_id IN (SELECT m.team_id FROM team_members m WHERE m.user_id = "+arg(r.UserID)+")))")
	}
	if len(parts) == 0 {
		return "1 = 0"
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

// EnvironmentOrder is an order of environments.
type EnvironmentOrder string

// The orders. Each one but the first begins with the newest time, and with the names of equal times.
const (
	EnvironmentsByName    EnvironmentOrder = ""
	EnvironmentsByChange  EnvironmentOrder = "changed"
	EnvironmentsByOpening EnvironmentOrder = "opened"
)

// EnvironmentPlace is the place of an environment in an order.
type EnvironmentPlace struct {
	At            int64 // time in microseconds; 0 in the order of names
	Project, Name string
}

// EnvironmentFilter selects environments of an organization.
type EnvironmentFilter struct {
	OrgID string
	Reach EnvironmentReach
	// Words are parts of the name, or of a tag as name:value if the caller may read the environment.
	Words []string
	Order EnvironmentOrder
	After *EnvironmentPlace
	Limit int
}

// PlacedEnvironment is the id of an environment with its place.
type PlacedEnvironment struct {
	ID string
	EnvironmentPlace
}

// FindEnvironments returns the selected environments in their order. The times of those that the caller may not read count as
// unknown.
func (tx *Tx) FindEnvironments(f EnvironmentFilter) ([]PlacedEnvironment, error) {
	var args []any
	arg := argumentsOf(&args)
	project, name := tx.Bytewise("e.project"), tx.Bytewise("e.name")
	readable := sync.OnceValue(func() string { return f.Reach.readable(arg) }) // PostgreSQL refuses arguments that no part of the query uses
	where := []string{"e.org_id = " + arg(f.OrgID)}
	if !f.Reach.Names {
		where = append(where, readable())
	}
	for _, word := range f.Words {
		pattern := arg(containing(strings.ToLower(word)))
		where = append(where, fmt.Sprintf(`(LOWER(e.project || '/' || e.name) LIKE %[1]s ESCAPE '\' OR %[2]s AND EXISTS (SELECT 1 FROM environment_tags t
			WHERE t.environment_id = e.id AND LOWER(t.name || ':' || t.value) LIKE %[1]s ESCAPE '\'))`, pattern, readable()))
	}
	from, key, order := "", "0", ""
	switch f.Order {
	case EnvironmentsByChange:
		key = "e.modified_at"
	case EnvironmentsByOpening:
		from, key = " LEFT JOIN environment_openings u ON u.environment_id = e.id", "COALESCE(u.opened_at, 0)"
	}
	if f.Order != EnvironmentsByName {
		if !f.Reach.All {
			key = "CASE WHEN " + readable() + " THEN " + key + " ELSE 0 END"
		}
		order = key + " DESC, "
	}
	if a := f.After; a != nil {
		follows := fmt.Sprintf("(%[1]s > %[2]s OR e.project = %[2]s AND %[3]s > %[4]s)", project, arg(a.Project), name, arg(a.Name))
		if f.Order != EnvironmentsByName {
			at := arg(a.At)
			follows = fmt.Sprintf("(%[1]s < %[2]s OR %[1]s = %[2]s AND %[3]s)", key, at, follows)
		}
		where = append(where, follows)
	}
	return database.Collect(tx.Tx, func(scan database.Scan) (p PlacedEnvironment, err error) {
		err = scan(&p.ID, &p.Project, &p.Name, &p.At)
		return p, err
	}, fmt.Sprintf("SELECT e.id, e.project, e.name, %s FROM environments e%s WHERE %s ORDER BY %s%s, %s LIMIT %d",
		key, from, strings.Join(where, " AND "), order, project, name, f.Limit), args...)
}

// ListedEnvironment is an environment with what lists show of it.
type ListedEnvironment struct {
	GrantedEnvironment
	ChangedBy string // name of who made the newest revision
	Opening   EnvironmentOpening
}

// ListEnvironments returns environments by their ids, in that order, with the permissions that a user or a team was granted.
func (tx *Tx) ListEnvironments(ids []string, userID, teamID string) ([]ListedEnvironment, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	where, args := among("e.id", ids, []any{userID, teamID})
	list, err := database.Collect(tx.Tx, func(scan database.Scan) (l ListedEnvironment, err error) {
		var granted int64
		err = scan(slices.Concat(environments.Fields(&l.Environment), []any{&granted, &l.ManagedBy, &l.ChangedBy}, environmentOpenings.Fields(&l.Opening))...)
		l.Granted = EnvironmentPermission(granted)
		return l, err
	}, "SELECT "+environments.Expressions()+", "+grantedOnEnvironment("$1", "$2")+", "+managerOfEnvironment+`,
		COALESCE((SELECT r.created_by FROM environment_revisions r WHERE r.environment_id = e.id AND r.number = e.last_number), ''), `+environmentOpenings.Optional()+`
		FROM environments e JOIN organizations o ON o.id = e.org_id LEFT JOIN environment_openings u ON u.environment_id = e.id WHERE `+where, args...)
	slices.SortFunc(list, func(a, b ListedEnvironment) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	return list, err
}

// ReferrerCountsOf returns the numbers of the environments and stacks that refer to environments of an organization, by their
// ids, of those that a caller sees.
func (tx *Tx) ReferrerCountsOf(orgID string, ids []string, reach EnvironmentReach, stacks Reach) (map[string]ReferrerCounts, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	among, args := among("t.id", ids, nil)
	arg := argumentsOf(&args)
	where := among
	if !reach.Names {
		where += " AND " + reach.readable(arg)
	}
	// An environment imports others with its newest revision.
	environments, err := database.Pairs[string, int64](tx.Tx, `SELECT t.id, COUNT(DISTINCT e.id) FROM environments t
		JOIN environment_imports i ON i.project = t.project AND i.name = t.name
		JOIN environments e ON e.id = i.environment_id AND e.last_number = i.number AND e.org_id = t.org_id WHERE `+where+" GROUP BY t.id", args...)
	if err != nil {
		return nil, err
	}
	out := map[string]ReferrerCounts{}
	for id, n := range environments {
		out[id] = ReferrerCounts{Environments: n}
	}
	args = args[:len(ids)]
	visible, err := tx.visibleStacks(orgID, stacks, arg)
	if err != nil || visible == "" {
		return out, err
	}
	counts, err := database.Pairs[string, int64](tx.Tx, `SELECT t.environment_id, COUNT(DISTINCT s.id) FROM stack_environments t
		JOIN live_stacks s ON s.id = t.stack_id
		WHERE `+strings.ReplaceAll(among, "t.id", "t.environment_id")+" AND "+visible+" GROUP BY t.environment_id", args...)
	for id, n := range counts {
		out[id] = ReferrerCounts{Environments: out[id].Environments, Stacks: n}
	}
	return out, err
}

// EnvironmentTeam is a team's permission on an environment.
type EnvironmentTeam struct {
	Team, DisplayName string
	Permission        EnvironmentPermission
}

// EnvironmentTeams returns the permissions of teams on an environment, by name of the team.
func (tx *Tx) EnvironmentTeams(environmentID string) ([]EnvironmentTeam, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (t EnvironmentTeam, err error) {
		var permission int64
		err = scan(&t.Team, &t.DisplayName, &permission)
		t.Permission = EnvironmentPermission(permission)
		return t, err
	}, "SELECT t.name, t.display_name, g.permission FROM team_environments g JOIN teams t ON t.id = g.team_id WHERE g.environment_id = $1 ORDER BY "+tx.Bytewise("t.name"), environmentID)
}

// EnvironmentProjects returns the first projects of the environments that a caller sees in an organization.
func (tx *Tx) EnvironmentProjects(orgID string, r EnvironmentReach, limit int) ([]string, error) {
	var args []any
	arg := argumentsOf(&args)
	where := "e.org_id = " + arg(orgID)
	if !r.Names {
		where += " AND " + r.readable(arg)
	}
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT DISTINCT e.project FROM environments e WHERE %s ORDER BY 1 LIMIT %d", where, limit), args...)
}
