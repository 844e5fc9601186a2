package store

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// IssuePosition is the place of an issue in a list, of which the newest issues are first. The zero value is the beginning.
type IssuePosition struct {
	ObservedAt time.Time
	ID         string
}

// searchedIssues returns the clauses that select, and order, the issues among which a page after a position is searched.
// Each kind of list has an index.
func searchedIssues(f IssueFilter, after IssuePosition, arg func(any) string) string {
	column, id := "org_id", f.OrgID
	if f.StackID != "" {
		column, id = "stack_id", f.StackID
	}
	where := " WHERE p." + column + " = " + arg(id)
	switch {
	case f.Closed == nil:
	case *f.Closed:
		where += " AND p.status " + closedIssue
	default:
		where += " AND p.fixed_at = 0"
	}
	if after.ID != "" {
		where += " AND (p.observed_at, p.id) < (" + arg(after.ObservedAt) + ", " + arg(after.ID) + ")"
	}
	return where + " ORDER BY p.observed_at DESC, p.id DESC"
}

// IssuePage returns the issues that follow a position, the newest first. It compares at most search issues with the filter,
// whose order and offset it ignores. next is the position from which it continues; zero at the end.
func (tx *Tx) IssuePage(f IssueFilter, after IssuePosition, search int) (list []ListedIssue, next IssuePosition, err error) {
	where, args, err := tx.issueWhere(f)
	if err != nil || where == "" {
		return nil, next, err
	}
	searched := fmt.Sprintf("SELECT * FROM policy_issues p%s LIMIT %d", searchedIssues(f, after, argumentsOf(&args)), search)
	list, err = tx.listedIssues(" FROM ("+searched+") i CROSS JOIN live_stacks s LEFT JOIN users u ON u.id = i.assigned_to AND i.assigned_to <> ''"+
		" WHERE s.id = i.stack_id AND "+where+fmt.Sprintf(" ORDER BY i.observed_at DESC, i.id DESC LIMIT %d", f.Limit+1), args)
	if err != nil {
		return nil, next, err
	}
	if len(list) > f.Limit {
		list = list[:f.Limit]
		last := list[f.Limit-1]
		return list, IssuePosition{last.ObservedAt, last.ID}, nil
	}
	args = nil
	next, err = database.One(tx.Tx, func(scan database.Scan) (p IssuePosition, err error) {
		var at int64
		err = scan(&at, &p.ID)
		p.ObservedAt = micro(at)
		return p, err
	}, fmt.Sprintf("SELECT p.observed_at, p.id FROM policy_issues p%s LIMIT 1 OFFSET %d", searchedIssues(f, after, argumentsOf(&args)), search-1), args...)
	if errors.Is(err, ErrNotFound) {
		return list, IssuePosition{}, nil
	}
	return list, next, err
}

// PackIssues is the number of open issues of a pack with a level.
type PackIssues struct {
	Pack, Level string
	Count       int64
}

// OpenIssuesOfPacks returns the numbers of the open issues of packs with some levels, in the stacks of an organization that
// r selects. For callers who see all stacks, a number is at most most.
func (tx *Tx) OpenIssuesOfPacks(orgID string, r Reach, packs, levels []string, most int) ([]PackIssues, error) {
	if len(packs) == 0 {
		return nil, nil
	}
	all, err := tx.reachesAll(orgID, r)
	if err != nil {
		return nil, err
	}
	read := func(scan database.Scan) (p PackIssues, err error) {
		err = scan(&p.Pack, &p.Level, &p.Count)
		return p, err
	}
	args := []any{tx.Now()}
	arg := argumentsOf(&args)
	if !all {
		where, err := tx.visibleStacks(orgID, r, arg)
		if err != nil || where == "" {
			return nil, err
		}
		return database.Collect(tx.Tx, read, "SELECT i.pack, i.level, COUNT(*) FROM live_stacks s CROSS JOIN policy_issues i WHERE "+where+
			" AND i.stack_id = s.id AND i.fixed_at = 0 AND "+issueStatus+" NOT "+closedIssue+" AND i.pack IN "+listOf(arg, packs)+" AND i.level IN "+listOf(arg, levels)+" GROUP BY i.pack, i.level", args...)
	}
	org := arg(orgID)
	rows := make([]string, len(levels))
	for i, level := range levels {
		rows[i] = "SELECT CAST(" + arg(level) + " AS TEXT) AS level"
	}
	return database.Collect(tx.Tx, read, "SELECT p.name, l.level, (SELECT COUNT(*) FROM (SELECT 1 AS found FROM policy_issues i WHERE i.org_id = "+org+
		" AND i.pack = p.name AND i.level = l.level AND i.fixed_at = 0 AND "+issueStatus+" NOT "+closedIssue+
		" AND i.stack_id NOT IN (SELECT d.stack_id FROM deleted_stacks d WHERE d.org_id = "+org+")"+fmt.Sprintf(" LIMIT %d) counted)", most)+
		" FROM policy_packs p CROSS JOIN ("+strings.Join(rows, " UNION ALL ")+") l WHERE p.org_id = "+org+" AND p.name IN "+listOf(arg, packs), args...)
}
