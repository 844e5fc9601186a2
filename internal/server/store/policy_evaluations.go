package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// EvaluationCause is what requested an evaluation first.
type EvaluationCause string

// The causes of evaluations.
const (
	CauseUpdate   EvaluationCause = "update"   // the stack's state changed
	CauseGroup    EvaluationCause = "group"    // packs, configuration or members of the group changed
	CauseRequest  EvaluationCause = "request"  // a user requested it
	CauseSchedule EvaluationCause = "schedule" // the last one was long ago
)

// Evaluation is the evaluation of a stack's state with the packs of an audit policy group, and its position in the
// queue. It always evaluates the newest state at the time of its claim, so one that waits also stands for later changes.
type Evaluation struct {
	ID, OrgID, StackID, GroupID string
	Cause                       EvaluationCause
	RequestedBy                 string // name of the caller who requested it; "" if none did
	Status                      workflow.Status
	QueuedAt, ModifiedAt        time.Time
	Epoch                       int64 // number of the current or next claim; starts at 1
	// Version and Packs are what the current claim evaluates; zero until it has fetched its definition.
	Version int64
	Packs   []EvaluatedPack
	Reason  workflow.Reason
	Message string
	PoolID  string // of the claim; "" while it waits
	AgentID, AgentHostname, AgentVersion,
	AgentPlatform, PollID string
	Stock                            bool // claimed by an agent that uses only the stock API
	CancelRequested                  bool
	Holder                           string // see [Job]
	Steps                            []StepState
	Notes                            []Note
	Silences                         int64 // claims whose agent or runner stopped reporting
	ClaimedAt, StartedAt, LastSeenAt time.Time
	ReportedAt                       time.Time // time of the results; zero before
	Violations                       int64     // number of violations in the results
	EndedAt                          time.Time
}

// EvaluatedPack is a version of a pack that an evaluation evaluates.
type EvaluatedPack struct {
	PackID    string `json:"packId"`
	VersionID string `json:"versionId"`
	Name      string `json:"name"`
	Number    int64  `json:"number"`
	Tag       string `json:"tag,omitempty"`
	// Levels are those that apply to the stack.
	Levels []PolicyLevel `json:"levels"`
}

var evaluations = database.NewTable[Evaluation]("policy_evaluations e")

// Job returns what the log of an evaluation must know about it.
func (e *Evaluation) Job() Job {
	return Job{
		ID: e.ID, OrgID: e.OrgID, StackID: e.StackID, PoolID: e.PoolID, Status: e.Status, Reason: e.Reason, Message: e.Message, Epoch: e.Epoch,
		AgentID: e.AgentID, AgentHostname: e.AgentHostname, AgentVersion: e.AgentVersion, AgentPlatform: e.AgentPlatform, PollID: e.PollID,
		Stock: e.Stock, Steps: e.Steps, Notes: e.Notes, QueuedAt: e.QueuedAt, ClaimedAt: e.ClaimedAt, StartedAt: e.StartedAt,
		LastSeenAt: e.LastSeenAt, EndedAt: e.EndedAt, ModifiedAt: e.ModifiedAt, Silences: e.Silences,
	}
}

// NewEvaluations is what evaluations that are added together have in common.
type NewEvaluations struct {
	Prefix string // of the ids: the part before the last 12 digits
	Cause  EvaluationCause
	By     string // name of the caller who requests them; "" if none does
	At     time.Time
}

// enqueue begins the statement that adds evaluations. Its rest selects pairs of a group g and a stack s. The ids have the
// form of UUIDs that begin with $1 and end with the number of the row.
var enqueue = `INSERT INTO policy_evaluations (id, org_id, stack_id, group_id, cause, requested_by, status, queued_at, modified_at)
	SELECT CAST($1 AS TEXT) || CAST(100000000000 + ROW_NUMBER() OVER (ORDER BY s.id, g.id) AS TEXT), g.org_id, s.id, g.id, CAST($2 AS TEXT), CAST($4 AS TEXT), 'not-started', CAST($3 AS BIGINT), CAST($3 AS BIGINT)
	` + evaluable

// evaluable selects the pairs of an audit group g that has packs and a member s that has a state.
var evaluable = `FROM policy_groups g JOIN live_stacks s ON s.org_id = g.org_id
	WHERE g.mode = 'audit' AND g.entity_type = 'stacks' AND EXISTS (SELECT 1 FROM policy_group_packs e WHERE e.group_id = g.id)
	AND s.state_blob <> '' AND ` + isMember("s.id") + " "

// overdue continues [evaluable] with the pairs whose last evaluation is older than the interval of the group at a time.
func overdue(at string) string {
	return fmt.Sprintf(`AND g.evaluation_hours > 0 AND NOT EXISTS (SELECT 1 FROM policy_evaluations n
		WHERE n.stack_id = s.id AND n.group_id = g.id AND n.queued_at > CAST(%s AS BIGINT) - g.evaluation_hours * %d)`, at, time.Hour.Microseconds())
}

// EvaluateStack adds an evaluation of a stack for each audit group of which it is a member, except for those in which one
// waits already. It returns the number of added ones.
func (tx *Tx) EvaluateStack(orgID, stackID string, n NewEvaluations) (int64, error) {
	return tx.enqueue(n, "AND g.org_id = $5 AND s.id = $6", orgID, stackID)
}

func (tx *Tx) enqueue(n NewEvaluations, rest string, args ...any) (int64, error) {
	return tx.Exec(enqueue+rest+" ON CONFLICT DO NOTHING", append([]any{n.Prefix, n.Cause, n.At, n.By}, args...)...)
}

// EvaluateGroup is like [Tx.EvaluateStack] for all members of a group.
func (tx *Tx) EvaluateGroup(groupID string, n NewEvaluations) (int64, error) {
	return tx.enqueue(n, "AND g.id = $5", groupID)
}

// EvaluateStale is like [Tx.EvaluateStack] for those members of all groups of an organization whose last evaluation is
// older than the interval of the group.
func (tx *Tx) EvaluateStale(orgID string, n NewEvaluations) (int64, error) {
	return tx.enqueue(n, "AND g.org_id = $5 "+overdue("$3"), orgID)
}

// HasStale reports whether [Tx.EvaluateStale] would add an evaluation.
func (tx *Tx) HasStale(orgID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM (SELECT 1 AS due "+evaluable+"AND g.org_id = $2 "+overdue("$1")+" LIMIT 1) d", tx.Now(), orgID)
	return n > 0, err
}

// AuditingOrganizations returns the organizations that have audit groups with an interval.
func (tx *Tx) AuditingOrganizations() ([]string, error) {
	return database.Scalars[string](tx.Tx, `SELECT DISTINCT g.org_id FROM policy_groups g WHERE g.mode = 'audit' AND g.entity_type = 'stacks' AND g.evaluation_hours > 0
		AND EXISTS (SELECT 1 FROM policy_group_packs e WHERE e.group_id = g.id) ORDER BY g.org_id`)
}

// Evaluation returns an evaluation by its id.
func (tx *Tx) Evaluation(id string) (Evaluation, error) {
	return evaluations.One(tx.Tx, "WHERE e.id = $1", id)
}

// SaveEvaluation stores the named columns of an evaluation, or all columns if none is named. It returns [ErrConflict] if
// another one of the stack and the group is in the way.
func (tx *Tx) SaveEvaluation(e Evaluation, columns ...string) error {
	return evaluations.Update(tx.Tx, e, columns...)
}

// DeleteEvaluation removes an evaluation, whose log the caller has removed.
func (tx *Tx) DeleteEvaluation(id string) error {
	_, err := tx.Exec("DELETE FROM policy_evaluations WHERE id = $1", id)
	return err
}

// WaitsAgain reports whether another evaluation of the same stack and group waits.
func (tx *Tx) WaitsAgain(e Evaluation) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM policy_evaluations WHERE stack_id = $1 AND group_id = $2 AND status = 'not-started' AND id <> $3",
		e.StackID, e.GroupID, e.ID)
	return n > 0, err
}

// groupsOfPool are the groups of the organization $1 whose evaluations belong to the pool $2. So a claim does not read the
// waiting evaluations of other pools.
const groupsOfPool = `SELECT g.id FROM policy_groups g WHERE g.org_id = $1 AND g.mode = 'audit' AND $2 = COALESCE(
	(SELECT p.id FROM agent_pools p WHERE p.id = g.pool_id AND p.org_id = g.org_id), (SELECT o.default_pool FROM org_queues o WHERE o.org_id = g.org_id), '')`

// stillEvaluated is the condition that the stack of an evaluation e exists and is a member of its group, which has packs.
var stillEvaluated = `EXISTS (SELECT 1 FROM live_stacks s WHERE s.id = e.stack_id) AND EXISTS (SELECT 1 FROM policy_groups g WHERE g.id = e.group_id
	AND EXISTS (SELECT 1 FROM policy_group_packs k WHERE k.group_id = g.id)
	AND ` + isMember("e.stack_id") + ")"

// claimableEvaluation is the condition on a waiting evaluation e of the organization $1 that the pool $2 may claim it.
var claimableEvaluation = `e.org_id = $1 AND e.status = 'not-started' AND e.group_id IN (` + groupsOfPool + `)
	AND ` + stillEvaluated + `
	AND NOT EXISTS (SELECT 1 FROM policy_evaluations a WHERE a.stack_id = e.stack_id AND a.group_id = e.group_id AND a.status IN ('accepted', 'running'))
	AND NOT EXISTS (SELECT 1 FROM org_queues o WHERE o.org_id = e.org_id AND o.paused = 1)`

// NextEvaluations returns up to limit evaluations that a pool may claim, in the order of their claims.
func (tx *Tx) NextEvaluations(orgID, poolID string, limit int) ([]Evaluation, error) {
	return evaluations.All(tx.Tx, "WHERE "+claimableEvaluation+fmt.Sprintf(" ORDER BY e.queued_at, e.id LIMIT %d", limit), orgID, poolID)
}

// StillNextEvaluations returns those of evaluations from [Tx.NextEvaluations] that the pool may still claim.
func (tx *Tx) StillNextEvaluations(orgID, poolID string, ids []string) ([]Evaluation, error) {
	where, args := among("e.id", ids, []any{orgID, poolID})
	return evaluations.All(tx.Tx, "WHERE "+claimableEvaluation+" AND "+where+" ORDER BY e.queued_at, e.id", args...)
}

// EvaluationLoad is what [Tx.QueueLoad] is for deployments.
func (tx *Tx) EvaluationLoad(orgID, poolID string, limit int) (QueueLoad, error) {
	return database.One(tx.Tx, func(scan database.Scan) (l QueueLoad, err error) {
		var oldest int64
		if err = scan(&l.Claimable, &oldest); oldest > 0 {
			l.Oldest = time.UnixMicro(oldest)
		}
		l.Queued = l.Claimable
		return l, err
	}, fmt.Sprintf("SELECT COUNT(*), COALESCE(MIN(n.queued_at), 0) FROM (SELECT e.queued_at FROM policy_evaluations e WHERE "+claimableEvaluation+
		" ORDER BY e.queued_at, e.id LIMIT %d) n", limit), orgID, poolID)
}

// EvaluationsByPolls returns the evaluations that polls of a pool's agents claimed and that are claimed or running.
func (tx *Tx) EvaluationsByPolls(poolID string, pollIDs []string) ([]Evaluation, error) {
	where, args := among("e.poll_id", pollIDs, []any{poolID})
	return evaluations.All(tx.Tx, "WHERE "+where+" AND e.poll_id <> '' AND e.pool_id = $1 AND e.status IN ('accepted', 'running')", args...)
}

// SilentEvaluations returns claimed and running evaluations whose last sign of life was before a time, without their packs.
func (tx *Tx) SilentEvaluations(before time.Time) ([]Evaluation, error) {
	return tx.pendingEvaluations("WHERE e.status IN ('accepted', 'running') AND e.last_seen_at < $1 ORDER BY e.last_seen_at LIMIT 200", before)
}

// OverdueEvaluations returns running evaluations that started before a time, without their packs.
func (tx *Tx) OverdueEvaluations(before time.Time) ([]Evaluation, error) {
	return tx.pendingEvaluations("WHERE e.status = 'running' AND e.started_at < $1 ORDER BY e.started_at LIMIT 200", before)
}

// PointlessEvaluations returns waiting evaluations that were queued before a time, or that no agent may claim any more.
func (tx *Tx) PointlessEvaluations(before time.Time) ([]Evaluation, error) {
	return tx.pendingEvaluations(`WHERE e.status = 'not-started' AND (e.queued_at < $1 OR NOT (`+stillEvaluated+`)) LIMIT 200`, before)
}

// EvaluationFilter selects evaluations of one organization.
type EvaluationFilter struct {
	OrgID   string
	StackID string // "" for all stacks of Reach
	GroupID string // "" for all groups
	Reach   Reach
	// Unfinished selects those that have not ended, and Failed those that have failed.
	Unfinished, Failed bool
	// Before and BeforeID are those of the last evaluation of the page before; zero for the first page.
	Before   time.Time
	BeforeID string
	Limit    int
}

// ShownEvaluation is an evaluation with the names of its stack and group. They are "" if these are gone.
type ShownEvaluation struct {
	Evaluation
	Project, Stack, Group string
}

var shownEvaluations = "SELECT " + evaluations.Expressions() + `, COALESCE(s.project, ''), COALESCE(s.name, ''), COALESCE(g.name, '')
	FROM policy_evaluations e LEFT JOIN live_stacks s ON s.id = e.stack_id AND s.org_id = e.org_id LEFT JOIN policy_groups g ON g.id = e.group_id `

// withoutPacks reads no packs, whose levels are long.
func withoutPacks(expressions string) string {
	return strings.Replace(expressions, "e.packs", "'' AS packs", 1)
}

// pendingEvaluations returns evaluations, for sweeps, without their packs.
func (tx *Tx) pendingEvaluations(where string, args ...any) ([]Evaluation, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (e Evaluation, err error) {
		err = scan(evaluations.Fields(&e)...)
		return e, err
	}, "SELECT "+withoutPacks(evaluations.Expressions())+" FROM policy_evaluations e "+where, args...)
}

func readShownEvaluation(scan database.Scan) (s ShownEvaluation, err error) {
	err = scan(append(evaluations.Fields(&s.Evaluation), &s.Project, &s.Stack, &s.Group)...)
	return s, err
}

// Evaluations returns the newest selected evaluations of stacks that exist, without their packs.
func (tx *Tx) Evaluations(f EvaluationFilter) ([]ShownEvaluation, error) {
	all, err := tx.reachesAll(f.OrgID, f.Reach)
	if err != nil {
		return nil, err
	}
	if all {
		f.Reach.All = append(slices.Clone(f.Reach.All), f.OrgID)
	}
	where, args := ofOrgByStack("e", f.OrgID, f.Reach)
	if where == "" {
		return nil, nil
	}
	where += " AND s.id IS NOT NULL"
	if f.Unfinished {
		where += " AND e.ended_at = 0"
	}
	if f.Failed {
		where += " AND e.status = 'failed'"
	}
	if f.BeforeID != "" {
		args = append(args, f.Before, f.BeforeID)
		where += fmt.Sprintf(" AND (e.queued_at, e.id) < ($%d, $%d)", len(args)-1, len(args))
	}
	if f.StackID != "" || f.GroupID != "" { // SQLite then chooses the index of the stack or the group
		where = strings.Replace(where, "e.org_id = $1", "NOT e.org_id <> $1", 1)
	}
	for column, id := range map[string]string{"e.stack_id": f.StackID, "e.group_id": f.GroupID} {
		if id != "" {
			args = append(args, id)
			where += fmt.Sprintf(" AND %s = $%d", column, len(args))
		}
	}
	return database.Collect(tx.Tx, readShownEvaluation, withoutPacks(shownEvaluations)+where+fmt.Sprintf(" ORDER BY e.queued_at DESC, e.id DESC LIMIT %d", f.Limit), args...)
}

// ShownEvaluation returns an evaluation of a stack in its organization by its id.
func (tx *Tx) ShownEvaluation(stackID, id string) (ShownEvaluation, error) {
	return database.One(tx.Tx, readShownEvaluation, shownEvaluations+"WHERE e.id = $1 AND s.id = $2", id, stackID)
}

// RemovableEvaluations returns the ids of up to limit ended evaluations that ended before a time, that are not among the
// newest keep of their stack and group, or whose stack or group is gone or in another organization.
func (tx *Tx) RemovableEvaluations(before time.Time, keep, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, fmt.Sprintf(`SELECT e.id FROM policy_evaluations e WHERE e.ended_at > 0 AND (e.ended_at < $1
		OR NOT EXISTS (SELECT 1 FROM stacks s WHERE s.id = e.stack_id AND s.org_id = e.org_id) OR NOT EXISTS (SELECT 1 FROM policy_groups g WHERE g.id = e.group_id)
		OR (SELECT COUNT(*) FROM policy_evaluations n WHERE n.stack_id = e.stack_id AND n.group_id = e.group_id AND n.queued_at > e.queued_at) >= %d) LIMIT %d`, keep, limit), before)
}

// EvaluationsOfOrganization returns the ids of up to limit evaluations of a deleted organization.
func (tx *Tx) EvaluationsOfOrganization(orgID string, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT id FROM policy_evaluations WHERE org_id = $1 ORDER BY id LIMIT %d", limit), orgID)
}

// PurgeEvaluations removes evaluations of a deleted organization, whose logs the caller has removed.
func (tx *Tx) PurgeEvaluations(ids []string) error {
	where, args := among("id", ids, nil)
	_, err := tx.Exec("DELETE FROM policy_evaluations WHERE "+where, args...)
	return err
}

// NewestState returns the version of a stack's newest complete state, or 0 if it has none. A running update has none yet.
func (tx *Tx) NewestState(stackID string) (int64, error) {
	version, err := database.One(tx.Tx, func(scan database.Scan) (v int64, err error) {
		err = scan(&v)
		return v, err
	}, `SELECT version FROM updates WHERE stack_id = $1 AND preview = 0 AND finished_at > 0 AND state_blob <> '' AND state_expired = 0
		ORDER BY version DESC LIMIT 1`, stackID)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return version, err
}
