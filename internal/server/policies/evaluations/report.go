package evaluations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Report records the results of the current claim of an evaluation, once. The caller has the evaluation's access token.
// version is the one of the state in the path of the request.
func (s *Service) Report(ctx context.Context, p identity.Principal, st store.Stack, version int64, r workflow.PolicyReport) error {
	if p.JobID == "" || p.DeploymentID != "" {
		return fault.Forbidden("only the job of a policy evaluation reports its results")
	}
	if p.StackID != st.ID {
		return fault.Forbidden("the token is for the evaluation of another stack")
	}
	return s.onJob(ctx, p, p.JobID, func(tx *store.Tx, e *store.Evaluation, now time.Time) error {
		switch {
		case r.ClaimID != claimID(*e):
			return fault.Conflict("the results are those of the claim %q, but the current one is %q", r.ClaimID, claimID(*e))
		case e.Version != version || version == 0:
			return fault.Conflict("the evaluation is one of version %d of the stack", e.Version)
		case !e.ReportedAt.IsZero():
			return nil // a repetition
		case e.Status.Final():
			return ended(*e)
		case e.Status == workflow.StatusAccepted:
			return fault.Conflict("the evaluation has not started")
		}
		if err := checkReport(*e, r.Results); err != nil {
			return err
		}
		e.ReportedAt, e.LastSeenAt, e.ModifiedAt = now, now, now
		e.Violations, e.Message = int64(len(r.Results.Violations)), termtext.OneLine(failures(r.Results), maxMessage)
		if s.opts.Results != nil {
			if err := s.keep(tx, *e, r.Results); err != nil {
				return err
			}
		}
		return save(tx, *e)
	})
}

// checkReport returns an error if a report is too long, or names other packs than those of the evaluation.
func checkReport(e store.Evaluation, r workflow.PolicyResults) error {
	if len(r.Violations) > workflow.MaxPolicyViolations {
		return fault.New(fault.KindTooLarge, "a report can have at most %d violations", workflow.MaxPolicyViolations)
	}
	known := func(name string) bool {
		return slices.ContainsFunc(e.Packs, func(p store.EvaluatedPack) bool { return p.Name == name })
	}
	for _, v := range r.Violations {
		if !known(v.PolicyPackName) {
			return fault.Invalid("the evaluation has no policy pack %q", v.PolicyPackName)
		}
	}
	for _, p := range r.Packs {
		if !known(p.Name) {
			return fault.Invalid("the evaluation has no policy pack %q", p.Name)
		}
	}
	return nil
}

// failures says which packs could not be evaluated, or returns "".
func failures(r workflow.PolicyResults) string {
	var failed []string
	for _, p := range r.Packs {
		if p.Error != "" {
			failed = append(failed, fmt.Sprintf("%s: %s", p.Name, p.Error))
		}
	}
	switch {
	case len(failed) > 0:
		return "Policy packs could not be evaluated: " + strings.Join(failed, "; ")
	case !r.Succeeded:
		return "A policy pack could not be evaluated."
	}
	return ""
}

// keep records the results where issues and the compliance matrix are kept.
func (s *Service) keep(tx *store.Tx, e store.Evaluation, r workflow.PolicyResults) error {
	st, err := tx.Stack(e.StackID)
	if err != nil {
		return store.IfMissing(err, fault.New(fault.KindGone, "the stack was deleted"))
	}
	group, err := tx.PolicyGroup(e.GroupID)
	if err != nil {
		return store.IfMissing(err, fault.New(fault.KindGone, "the policy group was deleted"))
	}
	all, err := policies.PacksOf(tx, st, policies.Audit)
	if err != nil {
		return err
	}
	out := results.Evaluation{ID: e.ID, Version: e.Version}
	for _, p := range e.Packs {
		if !slices.ContainsFunc(all, func(r policies.Required) bool { return r.PackID == p.PackID }) {
			continue // since the claim, the stack has left the group, or the group has disabled the pack
		}
		found := results.EvaluatedPack{
			PackID: p.PackID, Pack: p.Name, Number: p.Number, Tag: p.Tag, Group: group.Name, Levels: p.Levels,
			Problem: problemOf(p, r), Incomplete: incomplete(p, r),
		}
		for _, v := range r.Violations {
			if v.PolicyPackName != p.Name {
				continue
			}
			found.Violations = append(found.Violations, findings.Violation{
				Pack: p.Name, Tag: p.Tag, Policy: termtext.OneLine(v.PolicyName, maxMessage), Level: findings.LevelOf(v.EnforcementLevel),
				Severity: severityOf(v), URN: termtext.OneLine(v.ResourceURN, maxMessage), Message: findings.Text(v.Message),
			})
		}
		out.Packs = append(out.Packs, found)
	}
	for _, other := range all {
		if !slices.ContainsFunc(e.Packs, func(p store.EvaluatedPack) bool { return p.Name == other.PackName }) {
			out.Others = append(out.Others, other.PackName)
		}
	}
	return s.opts.Results.Evaluated(tx, st, out)
}

// severityOf returns the severity of a violation, or "" if it is none that the server knows.
func severityOf(v workflow.PolicyViolation) string {
	if slices.Contains(findings.Severities, v.Severity) {
		return v.Severity
	}
	return ""
}

// incomplete reports whether the report lacks violations of a pack. Runners that do not say of which pack lack those of any.
func incomplete(p store.EvaluatedPack, r workflow.PolicyResults) bool {
	if !slices.ContainsFunc(r.Packs, func(p workflow.PolicyPackResult) bool { return p.Truncated }) {
		return r.Truncated
	}
	return slices.ContainsFunc(r.Packs, func(result workflow.PolicyPackResult) bool { return result.Name == p.Name && result.Truncated })
}

// problemOf says why a pack could not be evaluated, or returns "". Stock runners do not say which pack it was.
func problemOf(p store.EvaluatedPack, r workflow.PolicyResults) string {
	for _, result := range r.Packs {
		if result.Name == p.Name {
			return termtext.OneLine(result.Error, maxMessage)
		}
	}
	if !r.Succeeded {
		return "the runner reports that the evaluation has failed"
	}
	return ""
}
