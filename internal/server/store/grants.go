package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// The classes of what deployments run that grants name; see [Deployment].
const (
	// TrustNone is the class of everything whose origin is not proven, such as forks.
	TrustNone = ""
	// TrustOwn is the class of exactly what the settings of the stack name.
	TrustOwn = "own"
)

// Grant lets jobs of other stacks read the outputs of a stack, or jobs of stacks open an environment. One of ReaderID, Project
// and TagName is not "".
type Grant struct {
	ID                string
	FromID            string `db:"-" read:"s.id"` // of the stack or the environment
	ReaderID          string `db:"-" read:"COALESCE(g.reader_id, '')"`
	Project           string
	TagName, TagValue string
	Previews          bool   // also for previews, and for other branches than that of the settings
	CreatedBy         string // name of the caller
	CreatedAt         time.Time
	OrgName           string `db:"-" read:"o.name"`
	FromProject       string `db:"-" read:"s.project"` // of the stack or the environment
	FromName          string `db:"-" read:"s.name"`
	ToProject         string `db:"-" read:"COALESCE(r.project, '')"`
	ToName            string `db:"-" read:"COALESCE(r.name, '')"`
	// Excluded reports whether the grant does not cover the stack for which [Tx.GrantsFor] returned it.
	Excluded bool `db:"-" read:"CASE WHEN x.grant_id IS NULL THEN 0 ELSE 1 END"`
}

// From returns the name of the stack or the environment, with organization and project.
func (g Grant) From() string { return g.OrgName + "/" + g.FromProject + "/" + g.FromName }

// Reader returns the name of the only stack that may read, as org/project/stack. It is "" for a grant to a project or a tag,
// and if that stack is deleted.
func (g Grant) Reader() string {
	if g.ReaderID == "" || g.ToName == "" {
		return ""
	}
	return g.OrgName + "/" + g.ToProject + "/" + g.ToName
}

// GrantKind says what grants give.
type GrantKind int8

// The kinds of grants.
const (
	OutputGrants      GrantKind = iota // of stacks, whose outputs jobs read
	EnvironmentGrants                  // of environments, which jobs open
)

// grantTables are the tables of the grants of one kind.
type grantTables struct {
	rows, exclusions, from string // from is the column with the id of the stack or the environment
	owners                 string // table with the organizations of stacks, also of deleted ones, or of environments
	all                    *database.Table[Grant]
	naming                 *database.Table[Grant] // the grants that name the stack r
}

func grantTablesOf(rows, exclusions, from, live, owners string) grantTables {
	source := rows + " g JOIN " + live + " s ON s.id = g." + from + " JOIN organizations o ON o.id = s.org_id "
	excluded := " LEFT JOIN " + exclusions + " x ON x.grant_id = g.id AND x.stack_id = r.id"
	return grantTables{
		rows, exclusions, from, owners,
		database.NewTable[Grant](source + "LEFT JOIN live_stacks r ON r.id = g.reader_id AND r.org_id = s.org_id" + excluded),
		database.NewTable[Grant](source + "JOIN live_stacks r ON r.org_id = s.org_id AND r.id <> s.id AND " + grantNames("r") + excluded),
	}
}

var grants = [...]grantTables{
	OutputGrants:      grantTablesOf("stack_grants", "grant_exclusions", "stack_id", "live_stacks", "stack_owners"),
	EnvironmentGrants: grantTablesOf("environment_grants", "environment_grant_exclusions", "environment_id", "environments", "environments"),
}

// grantNames returns the condition under which the grant g names the stack with an alias.
func grantNames(stack string) string {
	return strings.ReplaceAll(`(g.reader_id = STACK.id OR g.project <> '' AND g.project = STACK.project OR g.tag_name <> ''
		AND EXISTS (SELECT 1 FROM stack_tags t WHERE t.stack_id = STACK.id AND t.name = g.tag_name AND t.value = g.tag_value))`, "STACK", stack)
}

// covers returns the condition under which a grant of the stack or the environment with an alias covers the deployment d of
// the stack r.
func (k GrantKind) covers(from string) string {
	t := grants[k]
	return "EXISTS (SELECT 1 FROM " + t.rows + " g WHERE g." + t.from + " = " + from + ".id AND (" + updatesOwn + " OR g.previews <> 0 AND " + proven + ") AND " + grantNames("r") + `
		AND NOT EXISTS (SELECT 1 FROM ` + t.exclusions + " x WHERE x.grant_id = g.id AND x.stack_id = r.id))"
}

// InsertGrant adds a grant with a new id.
func (tx *Tx) InsertGrant(kind GrantKind, g Grant) error {
	_, err := tx.Exec("INSERT INTO "+grants[kind].rows+" (id, "+grants[kind].from+`, reader_id, project, tag_name, tag_value, previews, created_by, created_at)
		VALUES ($1, $2, NULLIF($3, ''), $4, $5, $6, $7, $8, $9)`, g.ID, g.FromID, g.ReaderID, g.Project, g.TagName, g.TagValue, g.Previews, g.CreatedBy, g.CreatedAt)
	return err
}

// SetGrantPreviews sets whether a grant also covers previews.
func (tx *Tx) SetGrantPreviews(kind GrantKind, id string, previews bool) error {
	return tx.ExecOne("UPDATE "+grants[kind].rows+" SET previews = $2 WHERE id = $1", id, previews)
}

// DeleteGrant removes a grant, or returns [ErrNotFound].
func (tx *Tx) DeleteGrant(kind GrantKind, id string) error {
	return tx.ExecOne("DELETE FROM "+grants[kind].rows+" WHERE id = $1", id)
}

// Grants returns the grants of a stack or an environment, oldest first.
func (tx *Tx) Grants(kind GrantKind, fromID string) ([]Grant, error) {
	return grants[kind].all.All(tx.Tx, "WHERE s.id = $1 ORDER BY g.created_at, g.id", fromID)
}

// GrantsFor returns up to limit grants of other stacks of its organization that name a stack, ordered by the granting
// stacks. Those that exclude it are only returned if the granting stack is one of those in reach.
func (tx *Tx) GrantsFor(readerID string, reach Reach, limit int) ([]Grant, error) {
	args := []any{readerID}
	return tx.grantsFor(OutputGrants, reach.where(argumentsOf(&args)), limit, args)
}

// EnvironmentGrantsFor returns up to limit grants of environments that name a stack, ordered by the environments. Those that
// exclude it are only returned if excluded is set.
func (tx *Tx) EnvironmentGrantsFor(readerID string, excluded bool, limit int) ([]Grant, error) {
	visible := ""
	if excluded {
		visible = "1 = 1"
	}
	return tx.grantsFor(EnvironmentGrants, visible, limit, []any{readerID})
}

func (tx *Tx) grantsFor(kind GrantKind, visible string, limit int, args []any) ([]Grant, error) {
	where := "WHERE r.id = $1 AND (x.grant_id IS NULL"
	if visible != "" {
		where += " OR " + visible
	}
	return grants[kind].naming.All(tx.Tx, where+fmt.Sprintf(") ORDER BY s.project, s.name, g.created_at, g.id LIMIT %d", limit), args...)
}

// GrantsBetween returns the grants of a stack or an environment that name another stack of its organization. Some can exclude
// it.
func (tx *Tx) GrantsBetween(kind GrantKind, fromID, readerID string) ([]Grant, error) {
	return grants[kind].naming.All(tx.Tx, "WHERE r.id = $1 AND s.id = $2 ORDER BY g.created_at, g.id", readerID, fromID)
}

// Readers returns the stacks that f selects by Reach and Limit and that a grant covers, ordered by name.
func (tx *Tx) Readers(kind GrantKind, grantID string, f StackFilter) ([]Stack, error) {
	t := grants[kind]
	live := "live_stacks"
	if kind == EnvironmentGrants {
		live = "environments"
	}
	return tx.relatedStacks("JOIN "+t.rows+" g ON g."+t.from+" <> s.id JOIN "+live+" f ON f.id = g."+t.from+" AND f.org_id = s.org_id WHERE g.id = $1 AND "+
		grantNames("s")+" AND NOT EXISTS (SELECT 1 FROM "+t.exclusions+" x WHERE x.grant_id = g.id AND x.stack_id = s.id)", f, grantID)
}

// Admission is a change that gives a stack a project or tags, which grants can name.
type Admission struct {
	Stack   Stack
	Project string
	Tags    map[string]string
	After   time.Time // the time after which the grants were made
	// Reach selects the stacks that the caller may read, and Opens the environments that the caller may open.
	Reach Reach
	Opens EnvironmentReach
}

// AdmitToGrants decides which grants of an organization cover a stack, among those that name it by its project or by one of
// the tags: those whose stack the caller may read, and whose environment the caller may open. Of deleted stacks, only callers
// who see all stacks of the organization extend grants.
func (tx *Tx) AdmitToGrants(a Admission) error {
	if a.Project == "" && len(a.Tags) == 0 {
		return nil
	}
	err := tx.admitTo(OutputGrants, a, func(arg func(any) string) string {
		if slices.Contains(a.Reach.All, a.Stack.OrgID) {
			return "1 = 1"
		}
		visible := a.Reach.where(arg)
		if visible == "" {
			return "1 = 0"
		}
		return "EXISTS (SELECT 1 FROM live_stacks s JOIN organizations o ON o.id = s.org_id WHERE s.id = g.stack_id AND s.org_id = $2 AND " + visible + ")"
	})
	if err != nil {
		return err
	}
	return tx.admitTo(EnvironmentGrants, a, func(arg func(any) string) string { return a.Opens.holds(OpenEnvironment, "k", arg) })
}

// admitTo is [Tx.AdmitToGrants] for the grants of one kind. reads returns the condition under which the caller may read what
// the grant g gives.
func (tx *Tx) admitTo(kind GrantKind, a Admission, reads func(arg func(any) string) string) error {
	t := grants[kind]
	args := []any{a.Stack.ID, a.Stack.OrgID, a.After}
	arg := argumentsOf(&args)
	var named []string
	if a.Project != "" {
		named = append(named, "g.project = "+arg(a.Project))
	}
	if len(a.Tags) > 0 {
		var pairs []string // no chain of OR: SQLite bounds the depth of an expression
		for _, name := range slices.Sorted(maps.Keys(a.Tags)) {
			pairs = append(pairs, "("+arg(name)+", "+arg(a.Tags[name])+")")
		}
		named = append(named, "(g.tag_name, g.tag_value) IN (VALUES "+strings.Join(pairs, ", ")+")")
	}
	wide := "FROM " + t.rows + " g JOIN " + t.owners + " k ON k.id = g." + t.from + `
		WHERE k.org_id = $2 AND k.id <> $1 AND g.created_at > $3 AND (` + strings.Join(named, " OR ") + ") AND "
	may := reads(arg)
	_, err := tx.Exec("DELETE FROM "+t.exclusions+" WHERE stack_id = $1 AND grant_id IN (SELECT g.id "+wide+may+")", args...)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO "+t.exclusions+" (grant_id, stack_id) SELECT g.id, CAST($1 AS TEXT) "+wide+"NOT ("+may+") ON CONFLICT (grant_id, stack_id) DO NOTHING", args...)
	return err
}

// CopyGrantExclusions excludes a stack from all grants that do not cover another one.
func (tx *Tx) CopyGrantExclusions(from, to string) error {
	for _, t := range grants {
		_, err := tx.Exec("INSERT INTO "+t.exclusions+" (grant_id, stack_id) SELECT grant_id, CAST($2 AS TEXT) FROM "+t.exclusions+` WHERE stack_id = $1
			ON CONFLICT (grant_id, stack_id) DO NOTHING`, from, to)
		if err != nil {
			return err
		}
	}
	return nil
}

// ClearGrants removes all grants of a stack and to it, and its exclusions, because it leaves its organization.
func (tx *Tx) ClearGrants(stackID string) error {
	for _, rows := range []string{
		"stack_grants WHERE stack_id = $1 OR reader_id = $1", "grant_exclusions WHERE stack_id = $1",
		"environment_grants WHERE reader_id = $1", "environment_grant_exclusions WHERE stack_id = $1",
	} {
		if _, err := tx.Exec("DELETE FROM "+rows, stackID); err != nil {
			return err
		}
	}
	return nil
}

// StackForJob is [Tx.StackFor] for a job of a deployment. lent reports whether a grant of the stack, or the rule of the
// organization for stacks of one project, lets that deployment read the stack's outputs now.
func (tx *Tx) StackForJob(org, project, name, userID, deploymentID string) (st Stack, granted Permission, lent bool, err error) {
	st, err = database.One(tx.Tx, func(scan database.Scan) (st Stack, err error) {
		var own, byTeam, covered int64
		err = scan(append(stacks.Fields(&st), &own, &byTeam, &covered)...)
		granted, lent = Permission(max(own, byTeam)), covered > 0
		return st, err
	}, stackForJob, org, project, name, userID, "", deploymentID)
	return st, granted, lent, err
}

const (
	// updatesOwn is the condition under which the deployment d changes something, and runs what the settings of its stack name.
	updatesOwn = "d.trust = '" + TrustOwn + "' AND d.operation <> '" + string(workflow.OperationPreview) + "'"
	// proven is the condition under which the origin of what the deployment d runs is proven.
	proven = "d.trust <> '" + TrustNone + "'"
)

// lentTo is the number of deployments with the id $6 that may read the outputs of the stack s of the organization o. The
// rule for stacks of one project gives no more than all members of the organization have.
var lentTo = fmt.Sprintf(`(SELECT COUNT(*) FROM deployments d JOIN live_stacks r ON r.id = d.stack_id WHERE d.id = $6 AND r.org_id = s.org_id AND r.id <> s.id AND (
	o.project_reads <> 0 AND o.stack_permission >= %d AND r.project = s.project AND %s OR %s))`, ReadPermission, updatesOwn, OutputGrants.covers("s"))

var stackForJob = strings.Replace(stackFor, "\n\tFROM live_stacks s", ", "+lentTo+"\n\tFROM live_stacks s", 1)
