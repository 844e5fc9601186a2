package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// PolicyCount is the number of resources for which a policy has passed and failed.
type PolicyCount struct {
	Policy string `json:"policy"`
	Passed int64  `json:"passed"`
	Failed int64  `json:"failed"`
}

// PolicyCover is a policy that is advisory for a stack because of an exception.
type PolicyCover struct {
	Policy    string `json:"policy"`
	Exception string `json:"exception"` // name
}

// PolicyRun is a policy pack of an update: one that the server required when the update was created, or one that only
// its events name.
type PolicyRun struct {
	UpdateID string
	Pack     string // name
	PackID   string // "" if the server did not require the pack
	Number   int64
	Tag      string
	Group    string `db:"group_name"`
	Levels   []PolicyLevel
	Covered  []PolicyCover
	Ran      bool // the summary of the update names the pack
	Counts   []PolicyCount
	// Mandatory and Advisory are the numbers of violations without those to which exceptions apply.
	Mandatory, Advisory int64
	Excepted            int64
	Omitted             int64 // violations without rows, because there are too many
}

// Required reports whether the server required the pack.
func (r PolicyRun) Required() bool { return r.PackID != "" }

// PolicyViolation is a violation in an event of an update.
type PolicyViolation struct {
	UpdateID string
	Sequence int64
	Pack     string
	Tag      string
	Policy   string
	Level    string
	Severity string // "" if the policy has none
	URN      string `db:"urn"`
	Message  string
	// Exceptions are the names of the organization's exceptions that apply, and Claimed those of others that the client
	// has applied.
	Exceptions, Claimed []string
}

var (
	policyRuns       = database.NewTable[PolicyRun]("policy_runs p")
	policyViolations = database.NewTable[PolicyViolation]("policy_violations v")
)

// PolicyRuns returns the packs of an update, by name.
func (tx *Tx) PolicyRuns(updateID string) ([]PolicyRun, error) {
	return policyRuns.All(tx.Tx, "WHERE p.update_id = $1 ORDER BY p.pack", updateID)
}

// SavePolicyRun adds or replaces a pack of an update.
func (tx *Tx) SavePolicyRun(r PolicyRun) error {
	return policyRuns.Save(tx.Tx, r, "update_id, pack")
}

// InsertPolicyViolation adds a violation.
func (tx *Tx) InsertPolicyViolation(v PolicyViolation) error {
	return policyViolations.Insert(tx.Tx, v)
}

// PolicyViolations returns up to limit violations of an update: mandatory ones first, then in the order of the events.
func (tx *Tx) PolicyViolations(updateID string, limit int) ([]PolicyViolation, error) {
	return policyViolations.All(tx.Tx, `WHERE v.update_id = $1
		ORDER BY CASE WHEN v.level = 'mandatory' AND v.exceptions IN ('', 'null', '[]') THEN 0 WHEN v.level = 'mandatory' THEN 1 ELSE 2 END, v.sequence LIMIT $2`,
		updateID, int64(limit))
}

// HasPolicyResults reports whether an update has packs, or its stack has open issues or results of earlier ones.
func (tx *Tx) HasPolicyResults(updateID, stackID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT CASE WHEN EXISTS (SELECT 1 FROM policy_runs WHERE update_id = $1)
		OR EXISTS (SELECT 1 FROM policy_standings WHERE stack_id = $2)
		OR EXISTS (SELECT 1 FROM policy_issues WHERE stack_id = $2 AND fixed_at = 0) THEN 1 ELSE 0 END`, updateID, stackID)
	return n == 1, err
}

// SetUnevaluated records the required packs without which a finished update ended.
func (tx *Tx) SetUnevaluated(u Update) error {
	if err := updates.Update(tx.Tx, u, "unevaluated"); err != nil {
		return err
	}
	return tx.evaluationChanged(u)
}

// Superseded reports whether a stack has changed since an update: by a newer one, or by a transfer to an organization with
// other packs.
func (tx *Tx) Superseded(u Update) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT (SELECT COUNT(*) FROM updates WHERE stack_id = $1 AND preview = 0 AND version > $2)
		+ (SELECT COUNT(*) FROM policy_runs r JOIN policy_packs p ON p.id = r.pack_id JOIN stacks s ON s.id = $1 WHERE r.update_id = $3 AND p.org_id <> s.org_id)`,
		u.StackID, u.Version, u.ID)
	return n > 0, err
}

// evaluationChanged records in a stack's row whether its last update ended without a required pack. Only updates that
// run the program evaluate.
func (tx *Tx) evaluationChanged(u Update) error {
	if u.Preview || u.Kind != kindUpdate {
		return nil
	}
	newer, err := database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM updates
		WHERE stack_id = $1 AND preview = 0 AND kind = 'update' AND finished_at > 0 AND version > $2`, u.StackID, u.Version)
	if err != nil || newer > 0 {
		return err
	}
	return tx.changeEstate(u.StackID, func(e *Estate) { e.Unevaluated = len(u.Unevaluated) > 0 })
}

// PolicyStanding is the newest result of a pack for a stack.
type PolicyStanding struct {
	StackID string
	Kind    string // preventative or audit
	Pack    string
	PackID  string
	Number  int64
	Tag     string
	Group   string `db:"group_name"`
	Version int64  // of the stack
	At      time.Time
	Ran     bool
	Problem string // why the pack did not run; "" if it ran, or if that is unknown
	Levels  []PolicyLevel
	Counts  []PolicyCount
}

var policyStandings = database.NewTable[PolicyStanding]("policy_standings t")

// SavePolicyStanding adds or replaces the newest result of a pack for a stack.
func (tx *Tx) SavePolicyStanding(s PolicyStanding) error {
	return policyStandings.Save(tx.Tx, s, "stack_id, kind, pack")
}

// StandingsOfStack returns the newest results of the packs of a stack, by kind and name.
func (tx *Tx) StandingsOfStack(stackID string) ([]PolicyStanding, error) {
	return policyStandings.All(tx.Tx, "WHERE t.stack_id = $1 ORDER BY t.kind DESC, t.pack", stackID)
}

// DeletePolicyStandings removes the results of a kind for a stack of the packs that are not among the given ones.
func (tx *Tx) DeletePolicyStandings(stackID, kind string, except []string) error {
	query, args := othersThan("DELETE FROM policy_standings WHERE stack_id = $1 AND kind = $2", []any{stackID, kind}, except)
	_, err := tx.Exec(query, args...)
	return err
}

// noLongerAudited is the condition that no audit group of the organization $1 of which the stack of a row of %s is a member
// enables the pack of the row.
const noLongerAudited = `%[1]s.kind = 'audit' AND %[1]s.stack_id IN (SELECT s.id FROM stacks s WHERE s.org_id = $1)
	AND NOT EXISTS (SELECT 1 FROM policy_groups g JOIN policy_group_packs k ON k.group_id = g.id JOIN policy_packs p ON p.id = k.pack_id
	WHERE g.org_id = $1 AND g.mode = 'audit' AND p.name = %[1]s.pack AND %[2]s)`

func noLongerAuditedIn(table string) string {
	return fmt.Sprintf(noLongerAudited, table, isMember(table+".stack_id"))
}

// EndAudits closes the issues and removes the results of the packs of audit groups that no longer apply to the stacks of an
// organization. The write must hold the organization.
func (tx *Tx) EndAudits(orgID, reason string) error {
	_, err := tx.Exec(`UPDATE policy_issues SET status = 'fixed', reason = $2, ignored_until = 0, fixed_at = $3, modified_at = $3
		WHERE fixed_at = 0 AND `+noLongerAuditedIn("policy_issues"), orgID, reason, tx.Now())
	if err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM policy_standings WHERE "+noLongerAuditedIn("policy_standings"), orgID)
	return err
}

// othersThan adds the condition that the pack of a row is not among the given ones.
func othersThan(query string, args []any, packs []string) (string, []any) {
	if len(packs) > 0 {
		query += " AND pack NOT IN " + listOf(argumentsOf(&args), packs)
	}
	return query, args
}

// StackStanding is a result with the names of the stack.
type StackStanding struct {
	PolicyStanding
	Project, Name string
}

// StandingSize is the size of a result.
type StandingSize struct {
	StackID string
	Bytes   int64 // of the levels and the numbers of the policies
}

// StandingSizes returns the sizes of the results that [Tx.PolicyStandings] returns, in their order.
func (tx *Tx) StandingSizes(orgID string, r Reach, after [2]string, limit int) ([]StandingSize, error) {
	rest, args, err := tx.standingsAfter(orgID, r, after, limit)
	if err != nil || rest == "" {
		return nil, err
	}
	return database.Collect(tx.Tx, func(scan database.Scan) (t StandingSize, err error) {
		err = scan(&t.StackID, &t.Bytes)
		return t, err
	}, "SELECT t.stack_id, octet_length(t.levels) + octet_length(t.counts)"+rest, args...)
}

// PolicyStandings returns the results for the stacks of an organization that r selects, by name of the stack: up to
// limit, of the stacks that follow the one with the names in after.
func (tx *Tx) PolicyStandings(orgID string, r Reach, after [2]string, limit int) ([]StackStanding, error) {
	rest, args, err := tx.standingsAfter(orgID, r, after, limit)
	if err != nil || rest == "" {
		return nil, err
	}
	return database.Collect(tx.Tx, func(scan database.Scan) (t StackStanding, err error) {
		err = scan(append(policyStandings.Fields(&t.PolicyStanding), &t.Project, &t.Name)...)
		return t, err
	}, "SELECT "+policyStandings.Expressions()+", s.project, s.name"+rest, args...)
}

// standingsAfter returns the clauses of a query for results, or "" if the caller sees none.
func (tx *Tx) standingsAfter(orgID string, r Reach, after [2]string, limit int) (rest string, args []any, err error) {
	arg := argumentsOf(&args)
	where, err := tx.visibleStacks(orgID, r, arg)
	if err != nil || where == "" {
		return "", nil, err
	}
	if after != [2]string{} {
		where += " AND (s.project > " + arg(after[0]) + " OR s.project = " + arg(after[0]) + " AND s.name > " + arg(after[1]) + ")"
	}
	return ` FROM policy_standings t JOIN live_stacks s ON s.id = t.stack_id
		WHERE ` + where + " ORDER BY s.project, s.name, t.kind, t.pack LIMIT " + arg(int64(limit)), args, nil
}

// GovernedResources returns the number of resources in the stacks of an organization that r selects and that have
// results of packs.
func (tx *Tx) GovernedResources(orgID string, r Reach) (int64, error) {
	var args []any
	arg := argumentsOf(&args)
	where, err := tx.visibleStacks(orgID, r, arg)
	if err != nil || where == "" {
		return 0, err
	}
	return database.Scalar[int64](tx.Tx, `SELECT COALESCE(SUM(s.resource_count), 0) FROM live_stacks s
		WHERE `+where+" AND EXISTS (SELECT 1 FROM policy_standings t WHERE t.stack_id = s.id)", args...)
}
