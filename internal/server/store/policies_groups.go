package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// PolicyGroup is a set of stacks and of the policy packs that apply to them.
type PolicyGroup struct {
	ID, OrgID, Name       string
	EntityType            string
	Mode                  string
	PoolID                string // of its evaluations; "" for the organization's default
	EvaluationHours       int64  // age of the last evaluation after which an audit group evaluates a stack again; 0 for never
	IsDefault             bool
	AllStacks             bool // all stacks are members, except those that have left
	CreatedAt, ModifiedAt time.Time
}

// GroupStack is a stack that was added to a group, or has left a group of all stacks.
type GroupStack struct {
	GroupID, StackID string
	Member           bool
}

// EnabledPack is a version of a policy pack that is enabled in a group.
type EnabledPack struct {
	GroupID, PackID, VersionID string
	Config                     string   // JSON: the configuration of each policy; "" for none
	Environments               []string // references
	ModifiedAt                 time.Time
	// The other fields are those of the group, the pack and the version.
	GroupName    string        `db:"-" read:"g.name"`
	Mode         string        `db:"-" read:"g.mode"`
	PoolID       string        `db:"-" read:"g.pool_id"`
	PackName     string        `db:"-" read:"p.name"`
	DisplayName  string        `db:"-" read:"v.display_name"`
	Runtime      string        `db:"-" read:"p.runtime"`
	Number       int64         `db:"-" read:"v.number"`
	Tag          string        `db:"-" read:"v.tag"`
	Levels       []PolicyLevel `db:"-" read:"v.levels"`
	Configurable bool          `db:"-" read:"v.configurable"`
	Blob         string        `db:"-" read:"v.blob"`
	Size         int64         `db:"-" read:"v.size"`
	SHA256       string        `db:"-" read:"v.sha256"`
}

var (
	policyGroups = database.NewTable[PolicyGroup]("policy_groups g")
	groupStacks  = database.NewTable[GroupStack]("policy_group_stacks m")
	enabledPacks = database.NewTable[EnabledPack](`policy_group_packs e JOIN policy_groups g ON g.id = e.group_id
		JOIN policy_packs p ON p.id = e.pack_id JOIN policy_pack_versions v ON v.id = e.version_id`)
)

// isMember returns the condition that the stack with an id, an expression, is a member of the group g.
func isMember(stackID string) string {
	return "COALESCE((SELECT m.member FROM policy_group_stacks m WHERE m.group_id = g.id AND m.stack_id = " + stackID + "), g.all_stacks) = 1"
}

// InsertPolicyGroup adds a group, or returns [ErrConflict] if its organization has one of this name.
func (tx *Tx) InsertPolicyGroup(g PolicyGroup) error { return policyGroups.Insert(tx.Tx, g) }

// SavePolicyGroup writes a group's name, pool, interval of evaluations and time of modification, or returns [ErrConflict] if
// the name is taken.
func (tx *Tx) SavePolicyGroup(g PolicyGroup) error {
	return policyGroups.Update(tx.Tx, g, "name", "pool_id", "evaluation_hours", "modified_at")
}

// PolicyGroup returns a group by its id.
func (tx *Tx) PolicyGroup(id string) (PolicyGroup, error) {
	return policyGroups.One(tx.Tx, "WHERE g.id = $1", id)
}

// PolicyGroupByName returns a group of an organization.
func (tx *Tx) PolicyGroupByName(orgID, name string) (PolicyGroup, error) {
	return policyGroups.One(tx.Tx, "WHERE g.org_id = $1 AND g.name = $2", orgID, name)
}

// PolicyGroups returns the groups of an organization that have rows, by name.
func (tx *Tx) PolicyGroups(orgID string) ([]PolicyGroup, error) {
	return policyGroups.All(tx.Tx, "WHERE g.org_id = $1 ORDER BY g.name", orgID)
}

// GroupsOfStack returns the groups of which a stack of an organization is a member, by name.
func (tx *Tx) GroupsOfStack(orgID, stackID string) ([]PolicyGroup, error) {
	return policyGroups.All(tx.Tx, "WHERE g.org_id = $2 AND "+isMember("$1")+" ORDER BY g.name", stackID, orgID)
}

// DeletePolicyGroup removes a group.
func (tx *Tx) DeletePolicyGroup(id string) error {
	return tx.ExecOne("DELETE FROM policy_groups WHERE id = $1", id)
}

// ReleaseGroups makes the groups that select a pool use the organization's default one.
func (tx *Tx) ReleaseGroups(poolID string) error {
	_, err := tx.Exec("UPDATE policy_groups SET pool_id = '' WHERE pool_id = $1", poolID)
	return err
}

// IsGroupMember reports whether a stack is a member of a group of its organization.
func (tx *Tx) IsGroupMember(g PolicyGroup, stackID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM policy_groups g WHERE g.id = $2 AND "+isMember("$1"), stackID, g.ID)
	return n > 0, err
}

// SaveGroupStack records that a stack is a member of a group, or has left it.
func (tx *Tx) SaveGroupStack(m GroupStack) error {
	return groupStacks.Save(tx.Tx, m, "group_id, stack_id")
}

// DeleteGroupStack removes what [Tx.SaveGroupStack] recorded.
func (tx *Tx) DeleteGroupStack(groupID, stackID string) error {
	_, err := tx.Exec("DELETE FROM policy_group_stacks WHERE group_id = $1 AND stack_id = $2", groupID, stackID)
	return err
}

// membersOf selects the members of a group of an organization, by id.
func membersOf(g PolicyGroup) (rest string, args []any) {
	if g.AllStacks {
		return "WHERE s.org_id = $1 AND NOT EXISTS (SELECT 1 FROM policy_group_stacks m WHERE m.group_id = $2 AND m.stack_id = s.id AND m.member = 0)", []any{g.OrgID, g.ID}
	}
	return "WHERE s.org_id = $1 AND s.id IN (SELECT m.stack_id FROM policy_group_stacks m WHERE m.group_id = $2 AND m.member = 1)", []any{g.OrgID, g.ID}
}

// GroupMembers returns up to limit stacks of a group that follow the stack with the id after, by id.
func (tx *Tx) GroupMembers(g PolicyGroup, after string, limit int) ([]Stack, error) {
	rest, args := membersOf(g)
	return stacks.All(tx.Tx, rest+fmt.Sprintf(" AND s.id > $3 ORDER BY s.id LIMIT %d", limit), append(args, after)...)
}

// CountGroupMembers returns the number of a group's stacks.
func (tx *Tx) CountGroupMembers(g PolicyGroup) (int64, error) {
	const named = "SELECT COUNT(*) FROM policy_group_stacks m JOIN live_stacks s ON s.id = m.stack_id WHERE s.org_id = $1 AND m.group_id = $2 AND m.member = "
	if g.AllStacks { // few have left
		return database.Scalar[int64](tx.Tx, "SELECT (SELECT COUNT(*) FROM live_stacks s WHERE s.org_id = $1) - ("+named+"0)", g.OrgID, g.ID)
	}
	return database.Scalar[int64](tx.Tx, named+"1", g.OrgID, g.ID)
}

// SaveEnabledPack enables a version of a pack in a group, or replaces the version, the configuration and the
// environments.
func (tx *Tx) SaveEnabledPack(e EnabledPack) error {
	return enabledPacks.Save(tx.Tx, e, "group_id, pack_id")
}

// DeleteEnabledPack disables a pack in a group.
func (tx *Tx) DeleteEnabledPack(groupID, packID string) error {
	return tx.ExecOne("DELETE FROM policy_group_packs WHERE group_id = $1 AND pack_id = $2", groupID, packID)
}

// EnabledPacks returns the packs that are enabled in a group, by name.
func (tx *Tx) EnabledPacks(groupID string) ([]EnabledPack, error) {
	return enabledPacks.All(tx.Tx, "WHERE e.group_id = $1 ORDER BY p.name", groupID)
}

// CountEnabledPacks returns the number of packs that are enabled in a group.
func (tx *Tx) CountEnabledPacks(groupID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM policy_group_packs WHERE group_id = $1", groupID)
}

// PacksOfStack returns the packs that are enabled in the groups of a stack of an organization with a mode, by name: of
// each pack the newest version, and of several groups with this version the one that was changed last.
func (tx *Tx) PacksOfStack(orgID, stackID, mode string) ([]EnabledPack, error) {
	return enabledPacks.All(tx.Tx, `WHERE (e.group_id, e.pack_id) IN (SELECT group_id, pack_id FROM (
			SELECT e.group_id, e.pack_id, ROW_NUMBER() OVER (PARTITION BY e.pack_id ORDER BY v.number DESC, e.modified_at DESC, g.id) AS place
			FROM policy_group_packs e JOIN policy_groups g ON g.id = e.group_id JOIN policy_pack_versions v ON v.id = e.version_id
			WHERE g.org_id = $2 AND g.mode = $3 AND `+isMember("$1")+`) chosen WHERE place = 1) ORDER BY p.name, p.id`, stackID, orgID, mode)
}

// EnabledSize returns the bytes of the configurations in the groups of an organization and of the levels of the versions
// that these enable.
func (tx *Tx) EnabledSize(orgID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM (
		SELECT octet_length(e.config) AS bytes FROM policy_group_packs e JOIN policy_groups g ON g.id = e.group_id WHERE g.org_id = $1
		UNION ALL SELECT octet_length(v.levels) FROM policy_pack_versions v WHERE v.id IN (
			SELECT e.version_id FROM policy_group_packs e JOIN policy_groups g ON g.id = e.group_id WHERE g.org_id = $1)) enabled`, orgID)
}

// GroupsWithVersion returns the names of the groups in which a version is enabled.
func (tx *Tx) GroupsWithVersion(versionID string) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT g.name FROM policy_group_packs e JOIN policy_groups g ON g.id = e.group_id WHERE e.version_id = $1 ORDER BY g.name", versionID)
}

// GroupsWithPack returns the names of the groups in which a pack is enabled.
func (tx *Tx) GroupsWithPack(packID string) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT g.name FROM policy_group_packs e JOIN policy_groups g ON g.id = e.group_id WHERE e.pack_id = $1 ORDER BY g.name", packID)
}

// StackCount is a number of stacks and of their resources.
type StackCount struct{ Stacks, Resources int64 }

// PolicyCoverage counts the stacks of an organization: all, and those to which packs apply in a mode.
type PolicyCoverage struct{ All, Preventative, Audit, Any StackCount }

// PolicyCoverage counts the stacks of an organization to which packs apply.
func (tx *Tx) PolicyCoverage(orgID string) (PolicyCoverage, error) {
	return database.One(tx.Tx, func(scan database.Scan) (c PolicyCoverage, err error) {
		err = scan(&c.All.Stacks, &c.All.Resources, &c.Preventative.Stacks, &c.Preventative.Resources, &c.Audit.Stacks, &c.Audit.Resources, &c.Any.Stacks, &c.Any.Resources)
		return c, err
	}, `SELECT COUNT(*), CAST(COALESCE(SUM(n), 0) AS BIGINT), CAST(COALESCE(SUM(preventative), 0) AS BIGINT), CAST(COALESCE(SUM(preventative * n), 0) AS BIGINT),
		CAST(COALESCE(SUM(audit), 0) AS BIGINT), CAST(COALESCE(SUM(audit * n), 0) AS BIGINT),
		CAST(COALESCE(SUM(CASE WHEN preventative + audit > 0 THEN 1 ELSE 0 END), 0) AS BIGINT),
		CAST(COALESCE(SUM(CASE WHEN preventative + audit > 0 THEN n ELSE 0 END), 0) AS BIGINT)
		FROM (SELECT s.resource_count AS n, `+covered("preventative")+" AS preventative, "+covered("audit")+" AS audit FROM live_stacks s WHERE s.org_id = $1) counted", orgID)
}

// covered is 1 if the stack s is a member of a group with a mode that enables a pack.
func covered(mode string) string {
	return `CASE WHEN EXISTS (SELECT 1 FROM policy_groups g WHERE g.org_id = s.org_id AND g.mode = '` + mode + `'
		AND EXISTS (SELECT 1 FROM policy_group_packs e WHERE e.group_id = g.id)
		AND ` + isMember("s.id") + `) THEN 1 ELSE 0 END`
}
