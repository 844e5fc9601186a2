package results

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Priorities are the priorities of issues, the most urgent first.
var Priorities = []string{"p0", "p1", "p2", "p3", "p4"}

// DefaultPriority is the priority of new issues.
const DefaultPriority = "p3"

// Bounds of a query for issues.
const (
	MaxPage       = 1000
	maxConditions = 200
	maxSorts      = 10
	maxOffset     = 1_000_000
	// RowMemory is the approximate size of an issue in a response, in bytes. [Service.Issues] takes it for each of [Query.Size].
	RowMemory = 12 << 10
)

// Query selects a page of the issues of an organization.
type Query struct {
	Closed     bool // the closed ones instead of the others
	All        bool // both
	StackID    string
	Where      []store.IssueCondition
	Sort       []store.IssueSort
	From, Size int
}

func (q Query) filter(p identity.Principal, o store.Organization) (store.IssueFilter, error) {
	f := store.IssueFilter{OrgID: o.ID, Reach: p.Reach(o.ID), StackID: q.StackID, Closed: &q.Closed, Where: q.Where, Sort: q.Sort, Limit: q.Size, Offset: q.From}
	if q.All {
		f.Closed = nil
	}
	n := 0
	if err := checkConditions(q.Where, &n); err != nil {
		return f, err
	}
	switch {
	case q.From < 0 || q.From > maxOffset || q.Size < 0 || q.Size > MaxPage:
		return f, fault.Invalid("the rows must be from 0 to %d, at most %d at a time", maxOffset, MaxPage)
	case len(q.Sort) > maxSorts:
		return f, fault.Invalid("issues cannot be sorted by more than %d columns", maxSorts)
	}
	for _, by := range q.Sort {
		if store.IssueColumns[by.Column] == "" {
			return f, fault.Invalid("issues cannot be sorted by %q", by.Column)
		}
	}
	return f, nil
}

// checkConditions returns an error unless the conditions are valid. n counts them.
func checkConditions(list []store.IssueCondition, n *int) error {
	for _, c := range list {
		if *n++; *n > maxConditions {
			return fault.Invalid("a filter of issues cannot have more than %d conditions", maxConditions)
		}
		var err error
		switch {
		case len(c.All) > 0:
			err = checkConditions(c.All, n)
		case len(c.Any) > 0:
			err = checkConditions(c.Any, n)
		case store.IssueColumns[c.Column] == "":
			err = fault.Invalid("issues cannot be filtered by %q", c.Column)
		case !store.IssueOp(c.Op):
			err = fault.Invalid("issues cannot be compared with %q", c.Op)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Issues is a page of issues.
type Issues struct {
	List  []store.ListedIssue
	Total int64
}

// Issues returns a page of the issues in the stacks that a caller sees.
func (s *Service) Issues(ctx context.Context, p identity.Principal, o store.Organization, q Query) (Issues, error) {
	f, err := q.filter(p, o)
	if err != nil {
		return Issues{}, err
	}
	if err := budget.Of(ctx).Take(ctx, int64(q.Size)*RowMemory); err != nil {
		return Issues{}, err
	}
	page, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) (out Issues, err error) {
		if out.Total, err = tx.CountPolicyIssues(f); err == nil && f.Limit > 0 {
			out.List, err = tx.PolicyIssues(f)
		}
		return out, err
	})
	return page, fault.During(err, "listing policy issues")
}

// Searched is the number of issues that a page compares with its filter.
const Searched = 2000

// IssuePage is a page of issues, the newest first.
type IssuePage struct {
	List []store.ListedIssue
	Next string // for the next page; "" on the last page
}

// IssuePage returns a page of the issues in the stacks that a caller sees, without their number. It ignores the order and the
// first row of a query. after is [IssuePage.Next] of the page before.
func (s *Service) IssuePage(ctx context.Context, p identity.Principal, o store.Organization, q Query, after string) (out IssuePage, err error) {
	f, err := q.filter(p, o)
	if err != nil {
		return out, err
	}
	var at store.IssuePosition
	if after != "" {
		observed, id, _ := strings.Cut(after, "-")
		n, err := strconv.ParseInt(observed, 10, 64)
		if err != nil || id == "" {
			return out, fault.Invalid("the page of policy issues does not exist; begin with the first one")
		}
		at = store.IssuePosition{ObservedAt: time.UnixMicro(n), ID: id}
	}
	if err := budget.Of(ctx).Take(ctx, int64(q.Size)*RowMemory); err != nil {
		return out, err
	}
	err = s.db.ReadLong(ctx, func(tx *store.Tx) error {
		list, next, err := tx.IssuePage(f, at, Searched)
		out = IssuePage{List: list}
		if next.ID != "" {
			out.Next = strconv.FormatInt(next.ObservedAt.UnixMicro(), 10) + "-" + next.ID
		}
		return err
	})
	return out, fault.During(err, "listing policy issues")
}

// Counted is the number up to which [Service.OpenOfPacks] counts.
const Counted = 200

// OpenOfPacks returns the numbers of the open issues of packs, by level, in the stacks that a caller sees. The largest
// number is [Counted], which also means more.
func (s *Service) OpenOfPacks(ctx context.Context, p identity.Principal, o store.Organization, packs []string) ([]store.PackIssues, error) {
	levels := []string{policies.Mandatory, policies.Advisory}
	list, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) ([]store.PackIssues, error) {
		return tx.OpenIssuesOfPacks(o.ID, p.Reach(o.ID), packs, levels, Counted)
	})
	for i := range list {
		list[i].Count = min(list[i].Count, Counted)
	}
	return list, fault.During(err, "counting policy issues")
}

// maxValues bounds the values of [Service.Values].
const maxValues = 1000

// Values returns the values of a column of the issues that a query selects, the most frequent first.
func (s *Service) Values(ctx context.Context, p identity.Principal, o store.Organization, q Query, column string) ([]store.IssueValue, error) {
	f, err := q.filter(p, o)
	if err != nil {
		return nil, err
	}
	if store.IssueColumns[column] == "" {
		return nil, fault.Invalid("issues have no field %q", column)
	}
	list, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) ([]store.IssueValue, error) { return tx.IssueValues(f, column, maxValues) })
	return list, fault.During(err, "reading the values of policy issues")
}

// Issue is an issue with its stack.
type Issue struct {
	store.ListedIssue
	StackRow store.Stack
}

// Issue returns an issue by its id, if the caller sees its stack.
func (s *Service) Issue(ctx context.Context, p identity.Principal, o store.Organization, id string) (Issue, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (Issue, error) { return issueOf(tx, p, o, id) })
	return out, fault.During(err, "reading a policy issue")
}

func issueOf(tx *store.Tx, p identity.Principal, o store.Organization, id string) (out Issue, err error) {
	list, err := tx.PolicyIssues(store.IssueFilter{OrgID: o.ID, Reach: p.Reach(o.ID), ID: id, Limit: 1})
	if err != nil {
		return out, err
	}
	if len(list) == 0 {
		return out, fault.NotFound("%s has no policy issue %q", o.Name, id)
	}
	out.ListedIssue = list[0]
	out.StackRow, err = tx.Stack(list[0].StackID)
	return out, err
}

// Change is a change of an issue. A nil field stays as it is.
type Change struct {
	Status   *store.IssueStatus // open, in_progress or ignored
	Priority *string
	Assignee *string // login of a member; "" for none
	// Reason says why the issue is ignored, and Lasts how long, 0 for without an end.
	Reason *string
	Lasts  *time.Duration
}

const maxReason = 2048

func (c Change) check() error {
	switch {
	case c.Status != nil && !slices.Contains([]store.IssueStatus{store.IssueOpen, store.IssueInProgress, store.IssueIgnored}, *c.Status):
		return fault.Invalid("the status of a policy issue can be set to open, in_progress or ignored")
	case c.Priority != nil && !slices.Contains(Priorities, *c.Priority):
		return fault.Invalid("the priority of a policy issue is one of %s", strings.Join(Priorities, ", "))
	case c.Reason != nil && len(*c.Reason) > maxReason:
		return fault.Invalid("a reason has at most %d bytes", maxReason)
	case c.Lasts != nil && *c.Lasts < 0:
		return fault.Invalid("a policy issue cannot be ignored for a negative time")
	}
	return nil
}

// ChangeIssue changes an issue for a caller who may write to its stack. It changes what is shown, and not what is
// enforced: only exceptions do.
func (s *Service) ChangeIssue(ctx context.Context, p identity.Principal, o store.Organization, id string, c Change) (Issue, error) {
	if err := c.check(); err != nil {
		return Issue{}, err
	}
	found, err := s.Issue(ctx, p, o, id)
	if err != nil {
		return Issue{}, err
	}
	err = s.db.Write(ctx, scope.Organization(o.ID).Shared().And(found.StackRow.Scope()), func(tx *store.Tx) error {
		now, err := issueOf(tx, p, o, id)
		if err != nil {
			return err
		}
		on, err := p.On(tx, now.StackRow)
		if err != nil {
			return err
		}
		if err := on.Check(now.StackRow, identity.Write); err != nil {
			return err
		}
		issue, err := c.apply(tx, o, now.PolicyIssue)
		if err != nil {
			return err
		}
		if err := tx.SavePolicyIssue(now.PolicyIssue, issue); err != nil {
			return err
		}
		detail := map[string]any{"pack": issue.Pack, "policy": issue.Policy, "target": issue.URN, "to": issue.Status, "priority": issue.Priority}
		if issue.Reason != "" {
			detail["because"] = issue.Reason
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: o.ID, Action: audit.PolicyIssueChanged, Subject: audit.Stack(now.StackRow), Detail: detail})
	})
	if err != nil {
		return Issue{}, fault.During(err, "changing a policy issue")
	}
	return s.Issue(ctx, p, o, id)
}

func (c Change) apply(tx *store.Tx, o store.Organization, i store.PolicyIssue) (store.PolicyIssue, error) {
	if c.Status != nil && *c.Status != i.Status {
		if i.Status == store.IssueFixed {
			return i, fault.Conflict("the policy issue is fixed; it opens again when an update reports it")
		}
		i.Status, i.Reason, i.IgnoredUntil = *c.Status, "", noTime
	}
	if c.Reason != nil || c.Lasts != nil {
		if i.Status != store.IssueIgnored {
			return i, fault.Invalid("only an ignored policy issue has a reason and an end; set the status to ignored")
		}
		if c.Reason != nil {
			i.Reason = strings.TrimSpace(*c.Reason)
		}
		if c.Lasts != nil {
			if i.IgnoredUntil = noTime; *c.Lasts > 0 {
				i.IgnoredUntil = tx.Now().Add(*c.Lasts)
			}
		}
	}
	if c.Priority != nil {
		i.Priority = *c.Priority
	}
	if c.Assignee != nil {
		if i.AssignedTo = ""; *c.Assignee != "" {
			m, err := tx.MemberByLogin(o.ID, *c.Assignee)
			if errors.Is(err, store.ErrNotFound) {
				return i, fault.Invalid("%s has no member %q", o.Name, *c.Assignee)
			}
			if err != nil {
				return i, err
			}
			i.AssignedTo = m.UserID
		}
	}
	i.ModifiedAt = tx.Now()
	return i, nil
}
