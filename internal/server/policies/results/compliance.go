package results

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/store"
)

// The kinds of rows of a [Matrix].
const (
	ByStack    = "stack"
	ByAccount  = "account"
	BySeverity = "severity"
)

// The scores that are no percentages.
const (
	ScoreNone    = -1 // nothing was evaluated
	ScoreProblem = -2 // the pack or its configuration has an error
)

// Matrix is the compliance of stacks, or of packs by severity.
type Matrix struct {
	Columns []string
	Rows    []Row
	Next    string // names of the last stack, for the next page; "" on the last page
}

// Row is a row of a [Matrix].
type Row struct {
	Name   string
	Scores []int // one for each column
}

const (
	maxStacks    = 1000 // of a page
	maxStandings = 5000 // that are read together, with texts of at most maxText bytes, or those of one stack
	maxText      = 4 << 20
	// A standing takes about standingMemory bytes in memory, and textMemory bytes for each byte of its texts.
	standingMemory = 512
	textMemory     = 4
)

// Compliance returns a page of the compliance matrix of the stacks that a caller sees. The columns of stacks are the
// group and the name of each pack that has results for the stacks of the page.
func (s *Service) Compliance(ctx context.Context, p identity.Principal, o store.Organization, entity, after string, size int) (Matrix, error) {
	if size <= 0 || size > maxStacks {
		size = maxStacks
	}
	switch entity {
	case ByAccount: // accounts are a part of Insights
		return Matrix{}, nil
	case ByStack:
		project, name, _ := strings.Cut(after, "/")
		return s.byStack(ctx, p, o, [2]string{project, name}, size)
	case BySeverity:
		return s.bySeverity(ctx, p, o)
	default:
		return Matrix{}, fault.Invalid("member \"entity\" must be stack, account or severity")
	}
}

// part is the results of some stacks.
type part struct {
	list []store.StackStanding
	more bool  // stacks follow
	held int64 // bytes of the budget
}

// standings returns the results of the first stacks that follow the one with the names in after: of at most size stacks
// if size is not 0.
func (s *Service) standings(ctx context.Context, p identity.Principal, o store.Organization, after [2]string, size int) (out part, err error) {
	reach := p.Reach(o.ID)
	sizes, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) ([]store.StandingSize, error) {
		return tx.StandingSizes(o.ID, reach, after, maxStandings)
	})
	if err != nil {
		return out, fault.During(err, "reading the compliance of stacks")
	}
	rows := 0
	if rows, out.more = fitting(sizes, size); rows == 0 {
		return out, nil
	}
	out.held = int64(rows) * standingMemory
	for _, t := range sizes[:rows] {
		out.held += t.Bytes * textMemory
	}
	if err := budget.Of(ctx).Take(ctx, out.held); err != nil {
		return out, err
	}
	out.list, err = store.ReadLong(ctx, s.db, func(tx *store.Tx) ([]store.StackStanding, error) {
		return tx.PolicyStandings(o.ID, reach, after, rows)
	})
	return out, fault.During(err, "reading the compliance of stacks")
}

// fitting returns the number of the first results to read together: those of whole stacks, and of at least one. more
// reports whether stacks follow.
func fitting(sizes []store.StandingSize, stacks int) (rows int, more bool) {
	text, begun := int64(0), 0
	for i, t := range sizes {
		if i > 0 && t.StackID != sizes[i-1].StackID {
			rows = i // the stack before is complete
		}
		if rows == i {
			if begun++; stacks > 0 && begun > stacks {
				return rows, true
			}
		}
		if text += t.Bytes; text > maxText && rows > 0 {
			return rows, true
		}
	}
	if len(sizes) == maxStandings && rows > 0 { // the results of the last stack can be cut off; one stack has fewer
		return rows, true
	}
	return len(sizes), len(sizes) == maxStandings
}

// each calls fn with the results of all stacks that a caller sees, and the severities of their policies.
func (s *Service) each(ctx context.Context, p identity.Principal, o store.Organization, fn func(t store.StackStanding, severities map[string]string)) error {
	known := map[string]map[string]string{}
	for after, more := [2]string{}, true; more; {
		found, err := s.standings(ctx, p, o, after, 0)
		if err != nil {
			return err
		}
		if err := s.severities(ctx, known, found.list); err != nil {
			return err
		}
		for _, t := range found.list {
			fn(t, known[versionKey(t.PolicyStanding)])
			after = [2]string{t.Project, t.Name}
		}
		more = found.more && len(found.list) > 0
		budget.Of(ctx).Give(found.held)
	}
	return nil
}

// byStack returns the scores of size stacks.
func (s *Service) byStack(ctx context.Context, p identity.Principal, o store.Organization, after [2]string, size int) (Matrix, error) {
	var m Matrix
	var scores []map[string]int // of the rows, by column
	columns := map[string]bool{}
	more := true
	for more && len(m.Rows) < size {
		found, err := s.standings(ctx, p, o, after, size-len(m.Rows))
		if err != nil {
			return Matrix{}, err
		}
		for _, t := range found.list {
			if name := t.Project + "/" + t.Name; len(m.Rows) == 0 || m.Rows[len(m.Rows)-1].Name != name {
				m.Rows, scores = append(m.Rows, Row{Name: name}), append(scores, map[string]int{})
			}
			column := t.Group + "/" + t.Pack
			columns[column] = true
			scores[len(scores)-1][column] = Score(t.PolicyStanding)
			after = [2]string{t.Project, t.Name}
		}
		more = found.more && len(found.list) > 0
		budget.Of(ctx).Give(found.held)
	}
	if more && len(m.Rows) > 0 {
		m.Next = m.Rows[len(m.Rows)-1].Name
	}
	m.Columns = slices.Sorted(maps.Keys(columns))
	for i := range m.Rows {
		for _, column := range m.Columns {
			score, ok := scores[i][column]
			if !ok {
				score = ScoreNone
			}
			m.Rows[i].Scores = append(m.Rows[i].Scores, score)
		}
	}
	return m, nil
}

// verdicts returns, for each enabled policy of a pack, whether no resource violates it. Policies that the pack has
// evaluated although the server does not know them are among them.
func verdicts(t store.PolicyStanding) map[string]bool {
	out := map[string]bool{}
	off := map[string]bool{}
	for _, p := range t.Levels {
		if off[p.Name] = p.Level == policies.Disabled; !off[p.Name] {
			out[p.Name] = true
		}
	}
	for _, c := range t.Counts {
		if !off[c.Policy] {
			out[c.Policy] = c.Failed == 0
		}
	}
	return out
}

// Score returns the policies without violations in percent. It is 100 only if that is all.
func Score(t store.PolicyStanding) int {
	switch {
	case t.Problem != "":
		return ScoreProblem
	case !t.Ran:
		return ScoreNone
	}
	all := verdicts(t)
	passed := 0
	for _, ok := range all {
		if ok {
			passed++
		}
	}
	if len(all) == 0 {
		return ScoreNone
	}
	return passed * 100 / len(all)
}

// severities adds to out the severity of each policy of the versions in a list.
func (s *Service) severities(ctx context.Context, out map[string]map[string]string, list []store.StackStanding) error {
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		for _, t := range list {
			id := versionKey(t.PolicyStanding)
			if _, known := out[id]; known {
				continue
			}
			out[id] = map[string]string{}
			v, err := tx.PackVersionByNumber(t.PackID, t.Number)
			if err != nil {
				if store.IgnoreMissing(err) == nil {
					continue
				}
				return err
			}
			known, err := policies.PoliciesOf(v)
			if err != nil {
				return err
			}
			for _, p := range known {
				out[id][p.Name] = p.Severity
			}
		}
		return nil
	})
	return fault.During(err, "reading the severities of policies")
}

func versionKey(t store.PolicyStanding) string { return fmt.Sprintf("%s %d", t.PackID, t.Number) }

// bySeverity returns, for each pack and severity, the share of policies without violations in all stacks.
func (s *Service) bySeverity(ctx context.Context, p identity.Principal, o store.Organization) (Matrix, error) {
	type tally struct{ passed, all int }
	m := Matrix{Columns: findings.Severities}
	rows := map[string]map[string]*tally{}
	err := s.each(ctx, p, o, func(t store.StackStanding, severities map[string]string) {
		if !t.Ran {
			return
		}
		name := t.Group + "/" + t.Pack
		if rows[name] == nil {
			rows[name] = map[string]*tally{}
		}
		for policy, ok := range verdicts(t.PolicyStanding) {
			severity := severities[policy]
			if rows[name][severity] == nil {
				rows[name][severity] = &tally{}
			}
			rows[name][severity].all++
			if ok {
				rows[name][severity].passed++
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		row := Row{Name: name}
		for _, severity := range m.Columns {
			score := ScoreNone
			if t := rows[name][severity]; t != nil {
				score = t.passed * 100 / t.all
			}
			row.Scores = append(row.Scores, score)
		}
		m.Rows = append(m.Rows, row)
	}
	return m, err
}

// Policy is the compliance of all stacks with one policy.
type Policy struct {
	Name, Severity, Pack, Group, Mode string
	Failing, Governed                 int64 // resources
}

// Percent returns the compliant resources in percent.
func (p Policy) Percent() int64 {
	if p.Governed == 0 {
		return 100
	}
	return (p.Governed - p.Failing) * 100 / p.Governed
}

// Policies returns the compliance of the stacks that a caller sees with each policy, by pack and name.
func (s *Service) Policies(ctx context.Context, p identity.Principal, o store.Organization) ([]Policy, error) {
	byKey := map[[4]string]*Policy{}
	err := s.each(ctx, p, o, func(t store.StackStanding, severities map[string]string) {
		for policy := range verdicts(t.PolicyStanding) {
			at := [4]string{t.Pack, policy, t.Group, t.Kind}
			if byKey[at] == nil {
				byKey[at] = &Policy{Name: policy, Severity: severities[policy], Pack: t.Pack, Group: t.Group, Mode: t.Kind}
			}
		}
		for _, c := range t.Counts {
			if known := byKey[[4]string{t.Pack, c.Policy, t.Group, t.Kind}]; known != nil {
				known.Failing, known.Governed = known.Failing+c.Failed, known.Governed+c.Passed+c.Failed
			}
		}
	})
	if err != nil {
		return nil, err
	}
	var out []Policy
	for _, at := range slices.SortedFunc(maps.Keys(byKey), func(a, b [4]string) int { return slices.Compare(a[:], b[:]) }) {
		out = append(out, *byKey[at])
	}
	return out, nil
}

// Totals are the numbers of policies and resources in the stacks that a caller sees.
type Totals struct {
	Policies, PoliciesWithIssues   int64
	Resources, ResourcesWithIssues int64
}

// Totals returns the numbers of policies and resources. The resources are those of the stacks that have results.
func (s *Service) Totals(ctx context.Context, p identity.Principal, o store.Organization) (Totals, error) {
	list, err := s.Policies(ctx, p, o)
	if err != nil {
		return Totals{}, err
	}
	var out Totals
	for _, each := range list {
		out.Policies++
		if each.Failing > 0 {
			out.PoliciesWithIssues++
		}
	}
	open := false
	f := store.IssueFilter{OrgID: o.ID, Reach: p.Reach(o.ID), Closed: &open}
	err = s.db.ReadLong(ctx, func(tx *store.Tx) (err error) {
		if out.ResourcesWithIssues, err = tx.FailingResources(f); err == nil {
			out.Resources, err = tx.GovernedResources(o.ID, f.Reach)
		}
		return err
	})
	return out, fault.During(err, "counting resources with policy issues")
}
