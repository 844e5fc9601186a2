package evaluations

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Definition returns the definition of a claimed evaluation. The last call of a claim decides which version of the state
// and of the packs it evaluates, because the job uses the answer to that call. If the agent uses only the stock API,
// fetching the definition starts the job.
func (s *Service) Definition(ctx context.Context, p identity.Principal, id string) (*workflow.JobDefinition, error) {
	token, hash := identity.NewToken()
	var e store.Evaluation
	var st store.Stack
	var group store.PolicyGroup
	var packs []policies.Required
	err := s.onJob(ctx, p, id, func(tx *store.Tx, job *store.Evaluation, now time.Time) (err error) {
		if job.Status.Final() {
			return ended(*job)
		}
		if st, err = tx.Stack(job.StackID); err != nil {
			return store.IfMissing(err, fault.New(fault.KindGone, "the stack was deleted"))
		}
		if group, err = tx.PolicyGroup(job.GroupID); err != nil {
			return store.IfMissing(err, fault.New(fault.KindGone, "the policy group was deleted"))
		}
		if packs, err = policies.PacksOfGroup(tx, group.ID); err != nil {
			return err
		}
		if job.Version, err = tx.NewestState(st.ID); err != nil {
			return err
		}
		job.Packs = nil
		for _, r := range packs {
			job.Packs = append(job.Packs, store.EvaluatedPack{PackID: r.PackID, VersionID: r.VersionID, Name: r.PackName, Number: r.Number, Tag: r.Tag, Levels: r.Policies})
		}
		if job.Stock && job.Status == workflow.StatusAccepted {
			if err := leave(job, now); err != nil {
				return err
			}
		}
		job.LastSeenAt = now
		e = *job
		if err := save(tx, e); err != nil {
			return err
		}
		return tx.InsertToken(store.Token{
			ID: identity.NewID(), Hash: hash, Kind: store.JobToken, Name: "policy evaluation", OrgID: e.OrgID, PoolID: e.PoolID,
			JobID: e.ID, Epoch: e.Epoch, StackID: e.StackID, CreatedAt: now, Scope: identity.EvaluationScope(e.StackID).String(),
		})
	})
	if err != nil {
		return nil, err
	}
	def := &workflow.JobDefinition{
		OS: "linux", Architecture: deployments.Architecture(e.AgentPlatform), Image: &workflow.Image{Reference: s.opts.Image}, Shell: "bash",
		Timeout: workflow.Duration(workflow.PolicyJobTimeout), Env: map[string]string{"PULUMI_SKIP_UPDATE_CHECK": "true"}, Steps: workflow.PolicySteps(),
		PolicyEvaluation: &workflow.PolicyEvaluation{
			ClaimID: claimID(e), Organization: st.OrgName, Project: st.Project, Stack: st.Name, Group: group.Name, Version: e.Version,
			BackendURL: s.opts.ExternalURL, AccessToken: token, PackTimeout: workflow.Duration(workflow.PolicyPackTimeout), Packs: []workflow.PolicyPack{},
		},
	}
	for _, r := range packs {
		pack := workflow.PolicyPack{Name: r.PackName, Version: r.Number, VersionTag: r.Tag, SHA256: r.SHA256, Environments: r.Environments}
		if pack.Location, err = s.opts.Locator.LocationForJob(ctx, r.VersionID); err != nil {
			return nil, fmt.Errorf("signing the address of the policy pack %s: %w", r.PackName, err)
		}
		if pack.Config, err = json.Marshal(r.PolicyConfig); err != nil {
			return nil, fmt.Errorf("encoding the configuration of the policy pack %s: %w", r.PackName, err)
		}
		def.PolicyEvaluation.Packs = append(def.PolicyEvaluation.Packs, pack)
	}
	return def, nil
}

// claimID names the current claim of an evaluation.
func claimID(e store.Evaluation) string { return fmt.Sprintf("%s.%d", e.ID, e.Epoch) }
