package results

import (
	"maps"
	"slices"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

// Recorded reads what new events of an update say about policies. Call it in the transaction that stores the events, at
// most a few hundred. Events may be in any order and arrive after the end of the update.
func (s *Service) Recorded(tx *store.Tx, u store.Update, found []findings.Finding) error {
	if len(found) == 0 {
		return nil
	}
	late, as := stacks.Status(u.Status).Finished(), u
	if late && !u.Preview {
		// What an update says after the stack has changed again says nothing about the stack, as with a preview.
		var err error
		if as.Preview, err = tx.Superseded(u); err != nil {
			return err
		}
	}
	b := batch{tx: tx, update: as, issues: map[key]*store.PolicyIssue{}, before: map[string]store.PolicyIssue{}}
	if err := b.read(found); err != nil {
		return err
	}
	for _, f := range found {
		if err := b.add(f); err != nil {
			return err
		}
	}
	if err := b.save(); err != nil {
		return err
	}
	if !late {
		return nil
	}
	if _, err := s.conclude(tx, &as, len(u.Unevaluated) > 0); err != nil {
		return err
	}
	u.Unevaluated = as.Unevaluated
	return tx.SetUnevaluated(u)
}

// key identifies an issue of a stack.
type key struct{ pack, policy, urn, hash string }

// batch is the results in some events of an update.
type batch struct {
	tx         *store.Tx
	update     store.Update
	runs       []store.PolicyRun
	changed    []bool // of runs
	exceptions []store.PolicyException
	// issues are those of the resources in the events. Previews have none.
	issues map[key]*store.PolicyIssue
	before map[string]store.PolicyIssue // by id
	room   room                         // for issues
}

// read reads what the findings change.
func (b *batch) read(found []findings.Finding) (err error) {
	named, claimed, gone := false, false, false
	urns, hashes := map[string]bool{}, map[string]bool{}
	for _, f := range found {
		switch {
		case f.Violation != nil:
			named, claimed = true, claimed || len(f.Violation.Exceptions) > 0
			urns[f.Violation.URN], hashes[hashOf(f.Violation.Message)] = true, true
		case f.Summary != nil && f.Summary.URN != "":
			named, urns[f.Summary.URN] = true, true
		case f.Gone != "":
			gone, urns[f.Gone] = true, true
		default:
			named = true
		}
	}
	if named {
		if b.runs, err = b.tx.PolicyRuns(b.update.ID); err != nil {
			return err
		}
		b.changed = make([]bool, len(b.runs))
	}
	if claimed {
		// Those that applied when the update received them; [exceptions.Match] checks the rest.
		if b.exceptions, err = b.tx.ExceptionsOfStack(b.update.OrgID, b.update.StackID, b.update.CreatedAt); err != nil {
			return err
		}
	}
	requires := slices.ContainsFunc(b.runs, store.PolicyRun.Required)
	if b.update.Preview || !requires && !gone {
		return nil
	}
	b.room = room{tx: b.tx, stackID: b.update.StackID, kind: policies.Preventative}
	issues, err := b.tx.IssuesAt(b.update.StackID, policies.Preventative, slices.Sorted(maps.Keys(urns)), slices.Sorted(maps.Keys(hashes)))
	if err != nil {
		return err
	}
	for i := range issues {
		issue := &issues[i]
		b.issues[key{issue.Pack, issue.Policy, issue.URN, issue.MessageHash}] = issue
		b.before[issue.ID] = *issue
	}
	return nil
}

// run returns a pack of the update, and adds one that only the client has named. It returns nil if there are too many.
func (b *batch) run(name string) *store.PolicyRun {
	at := slices.IndexFunc(b.runs, func(r store.PolicyRun) bool { return r.Pack == name })
	if at < 0 {
		if at = len(b.runs); at >= maxPacks {
			return nil
		}
		b.runs, b.changed = append(b.runs, store.PolicyRun{UpdateID: b.update.ID, Pack: name}), append(b.changed, false)
	}
	b.changed[at] = true
	return &b.runs[at]
}

func (b *batch) add(f findings.Finding) error {
	switch {
	case f.Violation != nil:
		return b.violation(f.Sequence, *f.Violation)
	case f.Summary != nil:
		return b.summary(*f.Summary)
	case f.Gone != "":
		b.evaluated(func(i *store.PolicyIssue) bool { return i.URN == f.Gone })
	default:
		for _, name := range f.Ran {
			if r := b.run(name); r != nil {
				r.Ran = true
			}
		}
	}
	return nil
}

func (b *batch) violation(sequence int64, v findings.Violation) error {
	r := b.run(v.Pack)
	if r == nil {
		return nil
	}
	row := store.PolicyViolation{
		UpdateID: b.update.ID, Sequence: sequence, Pack: v.Pack, Tag: v.Tag, Policy: v.Policy, Level: string(v.Level), Severity: v.Severity,
		URN: v.URN, Message: v.Message,
	}
	row.Exceptions, row.Claimed = b.excepted(*r, v)
	switch {
	case len(row.Exceptions) > 0:
		r.Excepted++
	case v.Level == findings.Mandatory:
		r.Mandatory++
	default:
		r.Advisory++
	}
	rows := int64(0)
	for _, each := range b.runs {
		rows += each.Mandatory + each.Advisory + each.Excepted - each.Omitted
	}
	if rows > maxRows {
		r.Omitted++
		return nil
	}
	if err := b.tx.InsertPolicyViolation(row); err != nil {
		return err
	}
	if b.update.Preview || !r.Required() {
		return nil
	}
	return b.seen(*r, row)
}

// excepted returns the exceptions that apply to a violation, and those that only the client knows.
func (b *batch) excepted(r store.PolicyRun, v findings.Violation) (apply, claimed []string) {
	if r.Required() && len(v.Exceptions) > 0 {
		for _, name := range exceptions.Match(b.exceptions, r.PackID, v.Policy, v.URN, b.update.CreatedAt) {
			if slices.Contains(v.Exceptions, name) { // clients before 3.276 apply none
				apply = append(apply, name)
			}
		}
	}
	for _, name := range v.Exceptions {
		if !slices.Contains(apply, name) && !slices.Contains(claimed, name) {
			claimed = append(claimed, name)
		}
	}
	for _, c := range r.Covered {
		if c.Policy == v.Policy && v.Level == findings.Advisory {
			apply = append(apply, c.Exception)
		}
	}
	return apply, claimed
}

// seen opens the issue of a violation if there is room, or records that it remains.
func (b *batch) seen(r store.PolicyRun, v store.PolicyViolation) error {
	at := key{v.Pack, v.Policy, v.URN, hashOf(v.Message)}
	issue := b.issues[at]
	if issue == nil || issue.Status == store.IssueFixed {
		if ok, err := b.room.take(); err != nil || !ok {
			return err
		}
	}
	if issue == nil {
		i := newIssue(b.tx, b.update.OrgID, b.update.StackID, policies.Preventative, v)
		report(b.tx, &i, r.Group, b.update.Version, b.update.ID, v)
		b.issues[at], b.before[i.ID] = &i, i
		return b.tx.InsertPolicyIssue(i)
	}
	issue.OrgID = b.update.OrgID // a server of an earlier version stores none
	report(b.tx, issue, r.Group, b.update.Version, b.update.ID, v)
	return nil
}

// room counts the issues that a stack can have in addition.
type room struct {
	tx            *store.Tx
	stackID, kind string
	known         bool // left
	left          int64
}

// take reports whether the stack can have one more issue that is not fixed.
func (r *room) take() (bool, error) {
	if !r.known {
		open, err := r.tx.CountUnfixedIssues(r.stackID, r.kind)
		if err != nil {
			return false, err
		}
		r.known, r.left = true, maxIssues-open
	}
	r.left--
	return r.left >= 0, nil
}

// newIssue returns the issue of a violation that was not seen before.
func newIssue(tx *store.Tx, orgID, stackID, kind string, v store.PolicyViolation) store.PolicyIssue {
	i := store.PolicyIssue{
		ID: identity.NewID(), OrgID: orgID, StackID: stackID, Kind: kind, Pack: v.Pack, Policy: v.Policy, URN: v.URN, MessageHash: hashOf(v.Message), Message: v.Message,
		Status: store.IssueOpen, Priority: DefaultPriority, ObservedAt: tx.Now(),
	}
	i.ResourceType, i.ResourceName = changes.Parts(v.URN)
	return i
}

// report records in an issue that a run reports its violation.
func report(tx *store.Tx, i *store.PolicyIssue, group string, version int64, run string, v store.PolicyViolation) {
	now := tx.Now()
	status := i.Status
	if status == store.IssueFixed {
		i.Reopened++
		i.FixedAt, i.Reason, status = noTime, "", store.IssueOpen
	}
	switch {
	case len(v.Exceptions) > 0:
		status = store.IssueByDesign
	case status == store.IssueByDesign:
		status = store.IssueOpen
	}
	if i.Status != status || i.Level != v.Level || i.ModifiedAt.IsZero() {
		i.ModifiedAt = now
	}
	i.Status, i.Tag, i.Level, i.Severity, i.Group, i.Exceptions = status, v.Tag, v.Level, v.Severity, group, v.Exceptions
	i.Version, i.SeenAt, i.SeenIn = version, now, run
}

func (b *batch) summary(sum findings.Summary) error {
	r := b.run(sum.Pack)
	if r == nil {
		return nil
	}
	if r.Tag == "" {
		r.Tag = sum.Tag
	}
	r.Counts = count(r.Counts, sum)
	if b.update.Preview || !r.Required() {
		return nil
	}
	policiesOf := slices.Concat(sum.Passed, sum.Failed)
	if sum.URN == "" {
		// A policy of the stack stands for all its resources. The issues that were read are among them.
		if err := b.tx.EvaluateIssues(b.update.StackID, policies.Preventative, sum.Pack, b.update.ID, policiesOf); err != nil {
			return err
		}
	}
	b.evaluated(func(i *store.PolicyIssue) bool {
		return i.Pack == sum.Pack && (sum.URN == "" || i.URN == sum.URN) && slices.Contains(policiesOf, i.Policy)
	})
	return nil
}

// evaluated records that the update has evaluated, or removed, what issues are about.
func (b *batch) evaluated(is func(*store.PolicyIssue) bool) {
	for _, issue := range b.issues {
		if issue.FixedAt.IsZero() && is(issue) {
			issue.EvaluatedIn = b.update.ID
		}
	}
}

// maxPolicies bounds the policies of a pack that are counted.
const maxPolicies = 1000

// count adds a summary to the numbers of a pack's policies.
func count(counts []store.PolicyCount, sum findings.Summary) []store.PolicyCount {
	add := func(policy string, passed, failed int64) {
		at := slices.IndexFunc(counts, func(c store.PolicyCount) bool { return c.Policy == policy })
		if at < 0 {
			if at = len(counts); at >= maxPolicies {
				return
			}
			counts = append(counts, store.PolicyCount{Policy: policy})
		}
		counts[at].Passed += passed
		counts[at].Failed += failed
	}
	for _, policy := range sum.Passed {
		add(policy, 1, 0)
	}
	for _, policy := range sum.Failed {
		add(policy, 0, 1)
	}
	return counts
}

// save writes what the findings have changed.
func (b *batch) save() error {
	for i, r := range b.runs {
		if !b.changed[i] {
			continue
		}
		if err := b.tx.SavePolicyRun(r); err != nil {
			return err
		}
	}
	var evaluated []string // can be all issues of the stack
	for _, issue := range b.issues {
		before := b.before[issue.ID]
		if before.EvaluatedIn != issue.EvaluatedIn {
			evaluated = append(evaluated, issue.ID)
			before.EvaluatedIn = issue.EvaluatedIn
		}
		if err := b.tx.SavePolicyIssue(before, *issue); err != nil {
			return err
		}
	}
	for ids := range slices.Chunk(evaluated, 500) {
		if err := b.tx.MarkEvaluated(b.update.ID, ids); err != nil {
			return err
		}
	}
	return nil
}
