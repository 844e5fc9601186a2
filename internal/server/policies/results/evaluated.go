package results

import (
	"maps"
	"slices"

	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Evaluation is the result of packs of audit groups for a version of a stack.
type Evaluation struct {
	ID      string
	Version int64
	Packs   []EvaluatedPack
	// Others are the names of other packs of audit groups of the stack, whose results remain.
	Others []string
}

// EvaluatedPack is the result of a pack.
type EvaluatedPack struct {
	PackID, Pack string // id and name
	Number       int64
	Tag, Group   string
	Levels       []store.PolicyLevel
	Problem      string // why the pack did not run, or ""
	Violations   []findings.Violation
	Incomplete   bool // there are more violations, which are unknown
}

// urnsPerRead bounds the resources about which one statement reads issues.
const urnsPerRead = 200

// Evaluated records the result of an evaluation. Call it in the transaction that ends the evaluation. The packs without a
// problem are those of all resources: what they do not report is fixed.
func (s *Service) Evaluated(tx *store.Tx, st store.Stack, e Evaluation) error {
	valid, err := tx.ExceptionsOfStack(st.OrgID, st.ID, tx.Now())
	if err != nil {
		return err
	}
	opened := map[string][]violation{} // by level
	left := &room{tx: tx, stackID: st.ID, kind: policies.Audit}
	names := slices.Clone(e.Others)
	for _, p := range e.Packs {
		names = append(names, p.Pack)
		if p.Problem == "" && p.Incomplete && len(p.Violations) == 0 {
			p.Problem = "the report had no room for what the pack found"
		}
		standing := store.PolicyStanding{
			StackID: st.ID, Kind: policies.Audit, Pack: p.Pack, PackID: p.PackID, Number: p.Number, Tag: p.Tag, Group: p.Group, Version: e.Version,
			At: tx.Now(), Ran: p.Problem == "", Problem: p.Problem, Levels: p.Levels,
		}
		if p.Problem == "" {
			if standing.Counts, err = s.evaluatedPack(tx, st, e, p, valid, opened, left); err != nil {
				return err
			}
		}
		if err := tx.SavePolicyStanding(standing); err != nil {
			return err
		}
	}
	if err := tx.DeletePolicyStandings(st.ID, policies.Audit, names); err != nil {
		return err
	}
	if err := tx.CloseOtherIssues(st.ID, policies.Audit, names, NoLonger); err != nil {
		return err
	}
	if err := tx.DeleteSurplusIssues(st.ID, policies.Audit, maxIssues); err != nil {
		return err
	}
	u := store.Update{ID: e.ID, Version: e.Version, Kind: string(workflow.TypePolicyEvaluation), Status: string(stacks.Succeeded)}
	for _, each := range levelEvents {
		list := opened[string(each.level)]
		if len(list) == 0 {
			continue
		}
		err := s.record(tx, st, u, each.name, func() (map[string]any, error) {
			return map[string]any{"violations": list[:min(len(list), maxTold)], "violationCount": len(list)}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// evaluatedPack opens and closes the issues of a pack, adds new ones to opened, and returns the numbers of its policies.
func (s *Service) evaluatedPack(tx *store.Tx, st store.Stack, e Evaluation, p EvaluatedPack, valid []store.PolicyException, opened map[string][]violation, left *room) (counts []store.PolicyCount, err error) {
	list := p.Violations[:min(len(p.Violations), maxRows)]
	known, err := s.auditIssues(tx, st.ID, list)
	if err != nil {
		return nil, err
	}
	failed := map[[2]string]bool{}
	for _, v := range list {
		row := store.PolicyViolation{Pack: p.Pack, Tag: p.Tag, Policy: v.Policy, Level: string(v.Level), Severity: v.Severity, URN: v.URN, Message: v.Message}
		row.Exceptions = exceptions.Match(valid, p.PackID, v.Policy, v.URN, tx.Now())
		if at := [2]string{v.Policy, v.URN}; !failed[at] {
			failed[at] = true
			counts = count(counts, findings.Summary{Failed: []string{v.Policy}})
		}
		at := key{p.Pack, v.Policy, v.URN, hashOf(v.Message)}
		before, old := known[at]
		issue := before
		if !old {
			issue = newIssue(tx, st.OrgID, st.ID, policies.Audit, row)
		}
		isNew := !old || issue.Status == store.IssueFixed
		if isNew {
			if ok, err := left.take(); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		issue.OrgID = st.OrgID // a server of an earlier version stores none
		report(tx, &issue, p.Group, e.Version, e.ID, row)
		if known[at] = issue; old {
			err = tx.SavePolicyIssue(before, issue)
		} else {
			err = tx.InsertPolicyIssue(issue)
		}
		if err != nil {
			return nil, err
		}
		if isNew && len(row.Exceptions) == 0 {
			opened[row.Level] = append(opened[row.Level], violation{p.Pack, p.Tag, v.Policy, row.Level, v.Severity, v.URN, v.Message})
		}
	}
	if p.Incomplete || len(list) < len(p.Violations) {
		return counts, nil
	}
	return counts, tx.CloseIssuesOfPack(st.ID, policies.Audit, p.Pack, e.ID)
}

// auditIssues returns the issues about the resources of violations.
func (s *Service) auditIssues(tx *store.Tx, stackID string, list []findings.Violation) (map[key]store.PolicyIssue, error) {
	hashes := map[string]map[string]bool{} // of the messages, by URN
	for _, v := range list {
		if hashes[v.URN] == nil {
			hashes[v.URN] = map[string]bool{}
		}
		hashes[v.URN][hashOf(v.Message)] = true
	}
	known := map[key]store.PolicyIssue{}
	for part := range slices.Chunk(slices.Sorted(maps.Keys(hashes)), urnsPerRead) {
		of := map[string]bool{}
		for _, urn := range part {
			maps.Copy(of, hashes[urn])
		}
		issues, err := tx.IssuesAt(stackID, policies.Audit, part, slices.Sorted(maps.Keys(of)))
		if err != nil {
			return nil, err
		}
		for _, i := range issues {
			known[key{i.Pack, i.Policy, i.URN, i.MessageHash}] = i
		}
	}
	return known, nil
}
