package results

import (
	"context"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/store"
)

// Report is what the packs of an update found.
type Report struct {
	Packs      []store.PolicyRun
	Violations []store.PolicyViolation // the first ones: mandatory ones, then those with exceptions and the advisory ones
	// Mandatory, Advisory and Excepted are the numbers of all violations. Exceptions apply to the last ones only.
	Mandatory, Advisory, Excepted int64
	// Missing are the required packs without which the update ended.
	Missing []string
	// Unknown are the policies of required packs that had no result in a preview, for example because they check the
	// whole stack, or values that only an update knows.
	Unknown []PolicyName
}

// PolicyName is the name of a policy of a pack.
type PolicyName struct{ Pack, Policy string }

// Empty reports whether the update ran no packs, and had to run none.
func (r Report) Empty() bool { return len(r.Packs) == 0 }

// Total returns the number of violations.
func (r Report) Total() int64 { return r.Mandatory + r.Advisory + r.Excepted }

// Of returns what the packs of an update found, with the first violations.
func (s *Service) Of(ctx context.Context, u store.Update, limit int) (Report, error) {
	r, err := store.Read(ctx, s.db, func(tx *store.Tx) (Report, error) { return Of(tx, u, limit) })
	return r, fault.During(err, "reading the policy results of an update")
}

// Of returns what the packs of an update found, with the first violations. It runs one statement if there are no packs.
func Of(tx *store.Tx, u store.Update, limit int) (r Report, err error) {
	if r.Packs, err = tx.PolicyRuns(u.ID); err != nil || len(r.Packs) == 0 {
		return r, err
	}
	r.Missing = u.Unevaluated
	for _, p := range r.Packs {
		r.Mandatory, r.Advisory, r.Excepted = r.Mandatory+p.Mandatory, r.Advisory+p.Advisory, r.Excepted+p.Excepted
		if u.Preview && p.Required() && ran(p) {
			r.Unknown = append(r.Unknown, unknown(p)...)
		}
	}
	if r.Total() > 0 && limit > 0 {
		r.Violations, err = tx.PolicyViolations(u.ID, limit)
	}
	return r, err
}

// unknown returns the enabled policies of a pack without a result.
func unknown(p store.PolicyRun) (out []PolicyName) {
	for _, level := range p.Levels {
		counted := slices.ContainsFunc(p.Counts, func(c store.PolicyCount) bool { return c.Policy == level.Name })
		if level.Level != policies.Disabled && !counted {
			out = append(out, PolicyName{p.Pack, level.Name})
		}
	}
	return out
}

// Blocks reports whether a violation stops an update.
func Blocks(v store.PolicyViolation) bool {
	return v.Level == string(findings.Mandatory) && len(v.Exceptions) == 0
}

// Standing is what is known about a stack.
type Standing struct {
	Packs  []store.PolicyStanding // the newest result of each pack
	Issues Issues                 // the first open ones
}

// OfStack returns what is known about a stack, with the first open issues.
func (s *Service) OfStack(ctx context.Context, st store.Stack, limit int) (Standing, error) {
	open := false
	f := store.IssueFilter{OrgID: st.OrgID, Reach: store.Reach{All: []string{st.OrgID}}, StackID: st.ID, Closed: &open, Limit: limit, Sort: []store.IssueSort{
		{Column: "level", Desc: true}, {Column: "severity", Desc: true},
	}}
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (out Standing, err error) {
		if out.Packs, err = tx.StandingsOfStack(st.ID); err != nil || len(out.Packs) == 0 {
			return out, err
		}
		if out.Issues.Total, err = tx.CountPolicyIssues(f); err != nil || out.Issues.Total == 0 {
			return out, err
		}
		out.Issues.List, err = tx.PolicyIssues(f)
		return out, err
	})
	return out, fault.During(err, "reading the policy results of a stack")
}
