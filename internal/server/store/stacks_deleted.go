package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// Queries read the stacks that exist from the view live_stacks. A stack that was deleted keeps its row in the table
// stacks, under another organization and name, and all rows that refer to it; see migration 600. Only what keeps,
// measures or removes stored data reads the table.

// deletedOrg is the organization of the rows of deleted stacks. It has no members, and no name finds it. Servers of
// earlier versions, which do not know the view, select stacks by their organization.
const deletedOrg = "deleted-stacks"

// DeletedStack is a stack that was deleted and can be restored.
type DeletedStack struct {
	StackID   string
	OrgID     string // of the stack
	Name      string
	DeletedBy string // name of the caller
	DeletedAt time.Time
	Purged    bool   // the removal of its history has begun, and it can no longer be restored
	Project   string `db:"-" read:"s.project"`
	OrgName   string `db:"-" read:"o.name"`
	// The other fields are those of [Stack].
	OrgPermission Permission `db:"-" read:"o.stack_permission"`
	CreatedBy     string     `db:"-" read:"s.created_by"`
	Version       int64      `db:"-" read:"s.version"`
	StateBlob     string     `db:"-" read:"s.state_blob"`
	ResourceCount int64      `db:"-" read:"s.resource_count"`
	LastUpdateAt  time.Time  `db:"-" read:"s.last_update_at"`
	// UpdateStatus and UpdateFinishedAt describe the newest update that is not a preview, if there is one.
	UpdateStatus     string    `db:"-" read:"COALESCE(u.status, 'not started')"`
	UpdateFinishedAt time.Time `db:"-" read:"COALESCE(u.finished_at, 0)"`
}

// Stack returns the stack as it was.
func (d DeletedStack) Stack() Stack {
	return Stack{
		ID: d.StackID, OrgID: d.OrgID, OrgName: d.OrgName, Project: d.Project, Name: d.Name, CreatedBy: d.CreatedBy,
		Version: d.Version, StateBlob: d.StateBlob, ResourceCount: d.ResourceCount, LastUpdateAt: d.LastUpdateAt, OrgPermission: d.OrgPermission,
	}
}

var deletedStacks = database.NewTable[DeletedStack](`deleted_stacks x JOIN stacks s ON s.id = x.stack_id
	JOIN organizations o ON o.id = x.org_id
	LEFT JOIN updates u ON u.stack_id = s.id AND u.version = s.version AND u.preview = 0 AND u.started_at > 0`)

// DeleteStack makes a stack disappear, and its name free, until [Tx.RestoreStack]. Its schedules are paused, no lost
// deployment blocks its queue, and it is no longer the review stack of a pull request, which would destroy a restored one.
func (tx *Tx) DeleteStack(id, by string) error {
	if err := tx.recordResources("id", id, 0); err != nil {
		return err
	}
	err := tx.ExecOne(`INSERT INTO deleted_stacks (stack_id, org_id, name, deleted_by, deleted_at, purged)
		SELECT id, org_id, name, $2, CAST($3 AS BIGINT), 0 FROM live_stacks WHERE id = $1`, id, by, tx.Now())
	if err != nil {
		return err
	}
	for _, change := range []string{
		"UPDATE schedules SET paused = 1 WHERE stack_id = $1",
		"UPDATE stack_queues SET blocked_by = '' WHERE stack_id = $1",
		"UPDATE review_stacks SET stack_id = '' WHERE stack_id = $1",
	} {
		if _, err := tx.Exec(change, id); err != nil {
			return err
		}
	}
	if err := tx.ExecOne("UPDATE stacks SET org_id = $2, name = id WHERE id = $1", id, deletedOrg); err != nil {
		return err
	}
	return tx.nameOfEstate(id)
}

// DeletedStack returns a deleted stack by its id, or [ErrNotFound].
func (tx *Tx) DeletedStack(id string) (DeletedStack, error) {
	return deletedStacks.One(tx.Tx, "WHERE x.stack_id = $1", id)
}

// DeletedStacks returns up to limit deleted stacks within reach that can be restored, the newest first.
func (tx *Tx) DeletedStacks(reach Reach, limit int) ([]DeletedStack, error) {
	where, args, err := tx.withinDeleted(reach, limit)
	if err != nil || where == "" {
		return nil, err
	}
	return deletedStacks.All(tx.Tx, where, args...)
}

// withinDeleted returns the condition of [Tx.DeletedStacks], or "" if the caller can reach none, and its arguments.
func (tx *Tx) withinDeleted(reach Reach, limit int) (where string, args []any, err error) {
	arg, least := argumentsOf(&args), max(reach.Least, ReadPermission)
	whole := slices.Clone(reach.All)
	if len(reach.ByDefault) > 0 {
		var orgs []any
		in := listOf(argumentsOf(&orgs), reach.ByDefault)
		permit, err := database.Scalars[string](tx.Tx, "SELECT id FROM organizations WHERE id IN "+in+fmt.Sprintf(" AND stack_permission >= %d", least), orgs...)
		if err != nil {
			return "", nil, err
		}
		whole = append(whole, permit...)
	}
	own := slices.DeleteFunc(slices.Concat(reach.ByDefault, reach.Granted), func(id string) bool { return slices.Contains(whole, id) })
	var reached []string
	if len(whole) > 0 {
		reached = append(reached, "x.org_id IN "+listOf(arg, whole))
	}
	if len(own) > 0 {
		// The few stacks of the caller are found first, and not all those of the organization: the expression has no index.
		reached = append(reached, "COALESCE(x.org_id, '') IN "+listOf(arg, own)+" AND x.stack_id IN ("+reach.ownDeleted(arg, least)+")")
	}
	if len(reached) == 0 {
		return "", nil, nil
	}
	// The list is found before its rows are completed.
	const order = " ORDER BY x.deleted_at DESC, x.stack_id"
	where = "WHERE x.stack_id IN (SELECT x.stack_id FROM deleted_stacks x WHERE x.purged = 0 AND (" + strings.Join(reached, " OR ") + ")"
	return where + order + fmt.Sprintf(" LIMIT %d)", limit) + order, args, nil
}

// ownDeleted returns a query for the ids of the deleted stacks that the caller created, and of all stacks on which the
// caller has at least a permission.
func (r Reach) ownDeleted(arg func(any) string, least Permission) string {
	user := arg(r.UserID)
	return fmt.Sprintf(`SELECT id FROM stacks WHERE org_id = '%[1]s' AND created_by <> '' AND created_by = %[2]s
		UNION SELECT stack_id FROM collaborators WHERE user_id = %[3]s AND permission >= %[4]d
		UNION SELECT stack_id FROM team_stacks WHERE permission >= %[4]d AND team_id = %[5]s
		UNION SELECT stack_id FROM team_stacks WHERE permission >= %[4]d AND team_id IN (SELECT team_id FROM team_members WHERE user_id = %[3]s)`,
		deletedOrg, arg(r.Creator), user, least, arg(r.TeamID))
}

// DeletedStacksNamed returns up to limit deleted stacks of an organization that can be restored and had a name, the
// newest first.
func (tx *Tx) DeletedStacksNamed(orgID, project, name string, limit int) ([]DeletedStack, error) {
	const where = "WHERE x.org_id = $1 AND x.purged = 0 AND x.name = $2 AND s.project = $3 ORDER BY x.deleted_at DESC, x.stack_id LIMIT %d"
	return deletedStacks.All(tx.Tx, fmt.Sprintf(where, limit), orgID, name, project)
}

// RestoreStack makes a deleted stack exist again with a name. It returns [ErrConflict] if the name is taken, and
// [ErrNotFound] if the stack has been restored or is being purged.
func (tx *Tx) RestoreStack(d DeletedStack, name string) error {
	if err := tx.ExecOne("DELETE FROM deleted_stacks WHERE stack_id = $1 AND purged = 0", d.StackID); err != nil {
		return err
	}
	if err := tx.ExecOne("UPDATE stacks SET org_id = $2, name = $3 WHERE id = $1", d.StackID, d.OrgID, name); err != nil {
		return err
	}
	if err := tx.nameOfEstate(d.StackID); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO resource_changes (org_id, stack_id, changed_at, change)
		SELECT org_id, id, CAST($2 AS BIGINT), resource_count FROM live_stacks WHERE id = $1 AND resource_count <> 0`, d.StackID, tx.Now())
	return err
}

// MarkPurged ends the time in which a deleted stack can be restored. It returns [ErrNotFound] if it has been restored.
func (tx *Tx) MarkPurged(id string) error {
	return tx.ExecOne("UPDATE deleted_stacks SET purged = 1 WHERE stack_id = $1", id)
}

// PurgeableStacks returns up to limit deleted stacks that were deleted before a time, or whose purge has begun, the oldest
// first. after is the stack before them, or zero.
func (tx *Tx) PurgeableStacks(before time.Time, after DeletedStack, limit int) ([]DeletedStack, error) {
	where, args := "WHERE (x.deleted_at < $1 OR x.purged = 1)", []any{before}
	if after.StackID != "" {
		where += " AND (x.deleted_at > $2 OR x.deleted_at = $2 AND x.stack_id > $3)"
		args = append(args, after.DeletedAt, after.StackID)
	}
	return deletedStacks.All(tx.Tx, where+fmt.Sprintf(" ORDER BY x.deleted_at, x.stack_id LIMIT %d", limit), args...)
}

// PurgeStack removes a deleted stack and its tags, updates and events. The caller removes its blobs.
func (tx *Tx) PurgeStack(id string) error {
	return tx.ExecOne("DELETE FROM stacks WHERE id = $1 AND org_id = $2", id, deletedOrg)
}
