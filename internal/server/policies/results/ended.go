package results

import (
	"slices"
	"time"

	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// noTime is the time of what has not happened.
var noTime time.Time

// NoLonger is the reason of issues that are closed because their pack no longer applies.
const NoLonger = "the policy pack is no longer required"

// Ended records the results of an update that ends: it closes the issues that the update has fixed, and sets in u the
// required packs that did not run. Call it in the transaction that ends the update, before the update is stored. The
// number of statements does not depend on the number of results; it is one for a stack without packs.
func (s *Service) Ended(tx *store.Tx, st store.Stack, u *store.Update) error {
	concerned, err := tx.HasPolicyResults(u.ID, u.StackID)
	if err != nil || !concerned {
		return err
	}
	runs, err := s.conclude(tx, u, u.StateBlob != "")
	if err != nil {
		return err
	}
	if err := s.notify(tx, st, *u, runs); err != nil {
		return err
	}
	tx.OnCommit(func() {
		for _, r := range runs {
			s.violations.WithLabelValues(string(findings.Mandatory)).Add(float64(r.Mandatory))
			s.violations.WithLabelValues(string(findings.Advisory)).Add(float64(r.Advisory))
			s.violations.WithLabelValues("excepted").Add(float64(r.Excepted))
		}
		if len(u.Unevaluated) > 0 {
			s.unevaluated.Inc()
		}
	})
	return nil
}

// conclude derives from the results of a finished update what follows for its stack. It can be repeated. stored says whether
// the update has stored a state.
func (s *Service) conclude(tx *store.Tx, u *store.Update, stored bool) ([]store.PolicyRun, error) {
	runs, err := tx.PolicyRuns(u.ID)
	if err != nil {
		return nil, err
	}
	u.Unevaluated = missing(*u, runs, stored)
	if u.Preview {
		return runs, nil
	}
	var required, incomplete []string
	for _, r := range runs {
		if r.Required() {
			required = append(required, r.Pack)
		}
		if r.Omitted > 0 {
			incomplete = append(incomplete, r.Pack)
		}
	}
	if err := tx.CloseIssues(u.StackID, policies.Preventative, u.ID, incomplete); err != nil {
		return nil, err
	}
	if err := tx.DeleteSurplusIssues(u.StackID, policies.Preventative, maxIssues); err != nil {
		return nil, err
	}
	if u.Kind != string(stacks.KindUpdate) {
		return runs, nil
	}
	for _, r := range runs {
		if r.Required() {
			if err := tx.SavePolicyStanding(standing(tx, *u, r)); err != nil {
				return nil, err
			}
		}
	}
	if err := tx.DeletePolicyStandings(u.StackID, policies.Preventative, required); err != nil {
		return nil, err
	}
	return runs, tx.CloseOtherIssues(u.StackID, policies.Preventative, required, NoLonger)
}

// ran reports whether there are signs that a pack ran.
func ran(r store.PolicyRun) bool { return r.Ran || len(r.Counts) > 0 }

// missing returns the required packs without which an update ended. A client that ended early, and changed nothing, does
// not count: it had nothing to evaluate.
func missing(u store.Update, runs []store.PolicyRun, stored bool) (names []string) {
	summarized := u.ResourceChanges != "" || slices.ContainsFunc(runs, func(r store.PolicyRun) bool { return r.Ran })
	if !summarized && u.Status != string(stacks.Succeeded) && !stored {
		return nil
	}
	for _, r := range runs {
		if r.Required() && !ran(r) {
			names = append(names, r.Pack)
		}
	}
	return names
}

func standing(tx *store.Tx, u store.Update, r store.PolicyRun) store.PolicyStanding {
	return store.PolicyStanding{
		StackID: u.StackID, Kind: policies.Preventative, Pack: r.Pack, PackID: r.PackID, Number: r.Number, Tag: r.Tag, Group: r.Group,
		Version: u.Version, At: tx.Now(), Ran: ran(r), Levels: r.Levels, Counts: r.Counts,
	}
}
