package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// IssueStatus is the status of a policy issue.
type IssueStatus string

// The statuses of a policy issue.
const (
	IssueOpen       IssueStatus = "open"
	IssueInProgress IssueStatus = "in_progress"
	IssueIgnored    IssueStatus = "ignored"
	IssueByDesign   IssueStatus = "by_design" // an exception applies
	IssueFixed      IssueStatus = "fixed"
)

// PolicyIssue is what a pack found in a stack, from the first violation until long after it is fixed.
type PolicyIssue struct {
	ID, StackID  string
	OrgID        string // of the stack
	Kind         string // preventative or audit
	Pack, Policy string
	URN          string `db:"urn"`
	MessageHash  string
	Message      string
	Tag          string
	Level        string
	Severity     string
	ResourceType string
	ResourceName string
	Group        string `db:"group_name"`
	Status       IssueStatus
	Priority     string
	AssignedTo   string // id of a user; "" for none
	Reason       string // why the issue is ignored, or closed without a fix
	IgnoredUntil time.Time
	Exceptions   []string // names
	Version      int64    // of the stack, when the issue was seen last
	ObservedAt   time.Time
	SeenAt       time.Time
	ModifiedAt   time.Time
	FixedAt      time.Time
	Reopened     int64
	SeenIn       string // the last update or evaluation that reports the violation
	EvaluatedIn  string // the last one that evaluated the policy for the resource, or removed the resource
}

var policyIssues = database.NewTable[PolicyIssue]("policy_issues i")

// IssuesAt returns the issues of a kind in a stack about any of at most a few hundred resources: all that are not fixed,
// and the fixed ones whose message has one of the given hashes.
func (tx *Tx) IssuesAt(stackID, kind string, urns, hashes []string) ([]PolicyIssue, error) {
	if len(urns) == 0 {
		return nil, nil
	}
	args := []any{stackID, kind}
	where := "WHERE i.stack_id = $1 AND i.kind = $2 AND i.urn IN " + listOf(argumentsOf(&args), urns)
	if len(hashes) == 0 {
		return policyIssues.All(tx.Tx, where+" AND i.fixed_at = 0", args...)
	}
	return policyIssues.All(tx.Tx, where+" AND (i.fixed_at = 0 OR i.message_hash IN "+listOf(argumentsOf(&args), hashes)+")", args...)
}

// CountUnfixedIssues returns the number of issues of a kind in a stack that are not fixed.
func (tx *Tx) CountUnfixedIssues(stackID, kind string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM policy_issues WHERE stack_id = $1 AND kind = $2 AND fixed_at = 0", stackID, kind)
}

// DeleteSurplusIssues removes fixed issues of a kind in a stack, the oldest ones, up to 10 000 at once. The newest ones
// remain; keep is their number.
func (tx *Tx) DeleteSurplusIssues(stackID, kind string, keep int) error {
	_, err := tx.Exec(fmt.Sprintf(`DELETE FROM policy_issues WHERE id IN (
		SELECT id FROM policy_issues WHERE stack_id = $1 AND kind = $2 AND fixed_at > 0 ORDER BY fixed_at DESC, id LIMIT 10000 OFFSET %d)`, keep), stackID, kind)
	return err
}

// InsertPolicyIssue adds an issue.
func (tx *Tx) InsertPolicyIssue(i PolicyIssue) error { return policyIssues.Insert(tx.Tx, i) }

// SavePolicyIssue writes what differs between two states of an issue.
func (tx *Tx) SavePolicyIssue(before, i PolicyIssue) error {
	columns := policyIssues.Differences(before, i)
	if len(columns) == 0 {
		return nil
	}
	return policyIssues.Update(tx.Tx, i, columns...)
}

// EvaluateIssues records that a run evaluated policies of a pack for all resources of a stack.
func (tx *Tx) EvaluateIssues(stackID, kind, pack, run string, policies []string) error {
	if len(policies) == 0 {
		return nil
	}
	args := []any{stackID, kind, pack, run}
	_, err := tx.Exec("UPDATE policy_issues SET evaluated_in = $4 WHERE stack_id = $1 AND kind = $2 AND pack = $3 AND fixed_at = 0 AND evaluated_in <> $4 AND policy IN "+
		listOf(argumentsOf(&args), policies), args...)
	return err
}

// MarkEvaluated records that a run evaluated the policies of issues.
func (tx *Tx) MarkEvaluated(run string, ids []string) error {
	args := []any{run}
	_, err := tx.Exec("UPDATE policy_issues SET evaluated_in = $1 WHERE id IN "+listOf(argumentsOf(&args), ids), args...)
	return err
}

// CloseIssues closes, as fixed, the issues that a run evaluated without reporting them, except those of some packs.
func (tx *Tx) CloseIssues(stackID, kind, run string, except []string) error {
	query, args := othersThan(`UPDATE policy_issues SET status = 'fixed', reason = '', ignored_until = 0, fixed_at = $4, modified_at = $4
		WHERE stack_id = $1 AND kind = $2 AND fixed_at = 0 AND evaluated_in = $3 AND seen_in <> $3`, []any{stackID, kind, run, tx.Now()}, except)
	_, err := tx.Exec(query, args...)
	return err
}

// CloseIssuesOfPack closes, as fixed, the issues of a pack that a run of the whole pack does not report.
func (tx *Tx) CloseIssuesOfPack(stackID, kind, pack, run string) error {
	_, err := tx.Exec(`UPDATE policy_issues SET status = 'fixed', reason = '', ignored_until = 0, fixed_at = $5, modified_at = $5
		WHERE stack_id = $1 AND kind = $2 AND pack = $3 AND fixed_at = 0 AND seen_in <> $4`, stackID, kind, pack, run, tx.Now())
	return err
}

// CloseOtherIssues closes the issues of the packs that are not among the given ones, because these no longer apply.
func (tx *Tx) CloseOtherIssues(stackID, kind string, packs []string, reason string) error {
	query, args := othersThan(`UPDATE policy_issues SET status = 'fixed', reason = $3, ignored_until = 0, fixed_at = $4, modified_at = $4
		WHERE stack_id = $1 AND kind = $2 AND fixed_at = 0`, []any{stackID, kind, reason, tx.Now()}, packs)
	_, err := tx.Exec(query, args...)
	return err
}

// DeleteOldIssues removes up to limit issues that were fixed before a time, and returns their number.
func (tx *Tx) DeleteOldIssues(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM policy_issues WHERE id IN (
		SELECT id FROM policy_issues WHERE fixed_at > 0 AND fixed_at < $1 ORDER BY fixed_at LIMIT %d%s)`, limit, tx.SkipLocked()), before)
}

// ListedIssue is an issue with the names of its stack and of the user to whom it is assigned.
type ListedIssue struct {
	PolicyIssue
	Project, Stack string
	Login, Name    string // "" for none
}

// IssueCondition compares a column of issues with a value, or combines conditions.
type IssueCondition struct {
	Column string // a key of [IssueColumns]
	Op     string // a key of issueOps
	Value  string
	// All and Any combine conditions instead. Only one of them is set.
	All, Any []IssueCondition
}

// issueStatus is the status of an issue at the time $1: one that was ignored until then is open.
const issueStatus = "CASE WHEN i.status = 'ignored' AND i.ignored_until > 0 AND i.ignored_until <= $1 THEN 'open' ELSE i.status END"

// IssueColumns are the columns by which clients select, sort and count issues, by the names that they use.
var IssueColumns = map[string]string{
	"entityType": "CAST('stack' AS TEXT)", "entityProject": "s.project", "entityId": "s.name", "policyPack": "i.pack", "policyPackTag": "i.tag", "policyName": "i.policy",
	"policyGroupName": "i.group_name", "level": "i.level", "severity": "i.severity", "priority": "i.priority", "status": issueStatus, "kind": "i.kind",
	"resourceURN": "i.urn", "resourceType": "i.resource_type", "resourceName": "i.resource_name", "message": "i.message",
	"assignedTo": "COALESCE(u.login, '')", "observedAt": "i.observed_at", "lastModified": "i.modified_at", "stackVersion": "i.version",
}

// issueOrders are the columns that are not in the order of their texts.
var issueOrders = map[string]string{
	"severity": "CASE i.severity WHEN 'low' THEN 1 WHEN 'medium' THEN 2 WHEN 'high' THEN 3 WHEN 'critical' THEN 4 ELSE 0 END",
}

// The comparisons. The first argument is the column, the second the value.
var issueOps = map[string]string{
	"equals": "%s = %s", "notEqual": "%s <> %s", "contains": "%s LIKE %s ESCAPE '\\'", "notContains": "%s NOT LIKE %s ESCAPE '\\'",
	"startsWith": "%s LIKE %s ESCAPE '\\'", "endsWith": "%s LIKE %s ESCAPE '\\'",
}

// IssueOp reports whether a comparison exists.
func IssueOp(op string) bool { return issueOps[op] != "" }

func (c IssueCondition) where(arg func(any) string) string {
	join := func(list []IssueCondition, with string) string {
		parts := make([]string, len(list))
		for i, each := range list {
			parts[i] = each.where(arg)
		}
		return "(" + strings.Join(parts, with) + ")"
	}
	switch {
	case len(c.All) > 0:
		return join(c.All, " AND ")
	case len(c.Any) > 0:
		return join(c.Any, " OR ")
	}
	value, column := c.Value, IssueColumns[c.Column]
	switch c.Op {
	case "contains", "notContains":
		value = "%" + likeText.Replace(value) + "%"
	case "startsWith":
		value = likeText.Replace(value) + "%"
	case "endsWith":
		value = "%" + likeText.Replace(value)
	}
	return fmt.Sprintf("CAST("+strings.Replace(issueOps[c.Op], "%s", "%s AS TEXT)", 1), column, arg(value))
}

// IssueFilter selects and sorts the issues of an organization.
type IssueFilter struct {
	OrgID   string
	Reach   Reach
	StackID string // "" for all
	ID      string // "" for all
	Closed  *bool  // nil for all
	Where   []IssueCondition
	Sort    []IssueSort
	Limit   int
	Offset  int
}

// IssueSort is a column of [IssueColumns] by which issues are sorted.
type IssueSort struct {
	Column string
	Desc   bool
}

// closedIssue is the condition on the status of a closed issue.
const closedIssue = "IN ('fixed', 'ignored', 'by_design')"

// issueQuery returns the clauses of a query for issues, or "" if the filter selects nothing. The first argument is the time.
func (tx *Tx) issueQuery(f IssueFilter) (from string, args []any, err error) {
	where, args, err := tx.issueWhere(f)
	if err != nil || where == "" {
		return "", nil, err
	}
	return ` FROM policy_issues i JOIN live_stacks s ON s.id = i.stack_id
		LEFT JOIN users u ON u.id = i.assigned_to AND i.assigned_to <> '' WHERE ` + where, args, nil
}

// issueWhere returns the condition on an issue i of the stack s, or "" if the filter selects nothing. The first argument is
// the time.
func (tx *Tx) issueWhere(f IssueFilter) (where string, args []any, err error) {
	args = []any{tx.Now()}
	arg := argumentsOf(&args)
	if where, err = tx.visibleStacks(f.OrgID, f.Reach, arg); err != nil || where == "" {
		return "", nil, err
	}
	if f.StackID != "" {
		where += " AND i.stack_id = " + arg(f.StackID)
	}
	if f.ID != "" {
		where += " AND i.id = " + arg(f.ID)
	}
	if f.Closed != nil {
		not := "NOT "
		if *f.Closed {
			not = ""
		}
		where += " AND " + issueStatus + " " + not + closedIssue
	}
	where += " AND " + IssueCondition{All: append([]IssueCondition{{Column: "entityType", Op: "equals", Value: "stack"}}, f.Where...)}.where(arg)
	// The cast names the type of the time in queries that do not compare it.
	return "CAST($1 AS BIGINT) > 0 AND " + where, args, nil
}

// PolicyIssues returns the issues that a filter selects, by default the newest first.
func (tx *Tx) PolicyIssues(f IssueFilter) ([]ListedIssue, error) {
	from, args, err := tx.issueQuery(f)
	if err != nil || from == "" {
		return nil, err
	}
	var order []string
	for _, by := range f.Sort {
		column := IssueColumns[by.Column]
		if in, ok := issueOrders[by.Column]; ok {
			column = in
		}
		if by.Desc {
			column += " DESC"
		}
		order = append(order, column)
	}
	order = append(order, "i.observed_at DESC", "i.id")
	return tx.listedIssues(from+" ORDER BY "+strings.Join(order, ", ")+fmt.Sprintf(" LIMIT %d OFFSET %d", f.Limit, f.Offset), args)
}

func (tx *Tx) listedIssues(rest string, args []any) ([]ListedIssue, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (l ListedIssue, err error) {
		err = scan(append(policyIssues.Fields(&l.PolicyIssue), &l.Project, &l.Stack, &l.Login, &l.Name)...)
		if l.Status == IssueIgnored && !l.IgnoredUntil.IsZero() && !l.IgnoredUntil.After(tx.Now()) {
			l.Status, l.Reason, l.IgnoredUntil = IssueOpen, "", time.Time{}
		}
		return l, err
	}, "SELECT "+policyIssues.Expressions()+", s.project, s.name, COALESCE(u.login, ''), COALESCE(u.name, '')"+rest, args...)
}

// CountPolicyIssues returns the number of issues that a filter selects.
func (tx *Tx) CountPolicyIssues(f IssueFilter) (int64, error) {
	from, args, err := tx.issueQuery(f)
	if err != nil || from == "" {
		return 0, err
	}
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*)"+from, args...)
}

// IssueValue is a value of a column, with the number of issues that have it.
type IssueValue struct {
	Value string
	Count int64
}

// IssueValues returns up to limit values of a column of the issues that a filter selects, the most frequent first.
func (tx *Tx) IssueValues(f IssueFilter, column string, limit int) ([]IssueValue, error) {
	from, args, err := tx.issueQuery(f)
	if err != nil || from == "" {
		return nil, err
	}
	return database.Collect(tx.Tx, func(scan database.Scan) (v IssueValue, err error) {
		err = scan(&v.Value, &v.Count)
		return v, err
	}, "SELECT CAST("+IssueColumns[column]+" AS TEXT), COUNT(*)"+from+" GROUP BY 1 ORDER BY 2 DESC, 1"+fmt.Sprintf(" LIMIT %d", limit), args...)
}

// FailingResources returns the number of resources with an issue that is not fixed.
func (tx *Tx) FailingResources(f IssueFilter) (int64, error) {
	from, args, err := tx.issueQuery(f)
	if err != nil || from == "" {
		return 0, err
	}
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM (SELECT DISTINCT i.stack_id, i.urn"+from+") r", args...)
}
