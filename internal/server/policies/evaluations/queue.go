package evaluations

import (
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

var _ deployments.Evaluations = (*Service)(nil)

// spare is the number of claimable evaluations that a claim considers besides those that it needs, because other writes
// can hold the stacks of some.
const spare = 8

// newIDs returns the beginning of the ids of new evaluations.
func newIDs() string { return identity.NewID()[:len("xxxxxxxx-xxxx-xxxx-xxxx-")] }

// StateChanged queues evaluations of a stack whose state has changed. The caller's transaction must hold the stack.
func (s *Service) StateChanged(tx *store.Tx, st store.Stack) error {
	_, err := s.evaluateStack(tx, st, added(tx, store.CauseUpdate, ""))
	return err
}

// GroupChanged queues evaluations of all members of a group, and ends the results of what it no longer evaluates. The
// caller's transaction must hold the organization.
func (s *Service) GroupChanged(tx *store.Tx, g store.PolicyGroup) error {
	if _, err := s.evaluateGroup(tx, g, added(tx, store.CauseGroup, "")); err != nil || g.Mode != policies.Audit {
		return err
	}
	return tx.EndAudits(g.OrgID, results.NoLonger)
}

func (s *Service) evaluateStack(tx *store.Tx, st store.Stack, n store.NewEvaluations) (int64, error) {
	count, err := tx.EvaluateStack(st.OrgID, st.ID, n)
	if err == nil && count > 0 {
		queued(tx, st.OrgID)
	}
	return count, err
}

func (s *Service) evaluateGroup(tx *store.Tx, g store.PolicyGroup, n store.NewEvaluations) (int64, error) {
	count, err := tx.EvaluateGroup(g.ID, n)
	if err == nil {
		queued(tx, g.OrgID) // the pool of waiting ones can have changed, too
	}
	return count, err
}

// added returns what evaluations have in common that a transaction adds.
func added(tx *store.Tx, cause store.EvaluationCause, by string) store.NewEvaluations {
	return store.NewEvaluations{Prefix: newIDs(), Cause: cause, By: by, At: tx.Now()}
}

// queued notifies agents and pages that an organization has other waiting evaluations.
func queued(tx *store.Tx, orgID string) {
	tx.Notify(pools.QueueTopic, pools.OrgPayload(orgID))
	tx.Notify(Topic, About(orgID, ""))
}

// Ready implements [deployments.Evaluations].
func (s *Service) Ready(tx *store.Tx, agent pools.Sighting) (bool, error) {
	list, err := tx.NextEvaluations(agent.OrgID, agent.PoolID, 1)
	return len(list) > 0, err
}

// Load implements [deployments.Evaluations].
func (s *Service) Load(tx *store.Tx, orgID, poolID string, limit int) (store.QueueLoad, error) {
	return tx.EvaluationLoad(orgID, poolID, limit)
}

// Next implements [deployments.Evaluations].
func (s *Service) Next(tx *store.Tx, agent pools.Sighting, limit int) (jobs []store.Job, busy bool, err error) {
	list, err := tx.NextEvaluations(agent.OrgID, agent.PoolID, limit+spare)
	if err != nil {
		return nil, false, err
	}
	var ids []string
	for _, e := range list {
		free, err := tx.TryLock(scope.Stack(agent.OrgID, e.StackID))
		if err != nil {
			return nil, false, err
		}
		if !free {
			busy = true
			continue
		}
		if ids = append(ids, e.ID); len(ids) == limit {
			break
		}
	}
	// They were listed before their stacks were acquired.
	still, err := tx.StillNextEvaluations(agent.OrgID, agent.PoolID, ids)
	for i := range still {
		jobs = append(jobs, still[i].Job())
	}
	return jobs, busy || len(jobs) < len(ids), err
}

// Take implements [deployments.Evaluations].
func (s *Service) Take(tx *store.Tx, job *store.Job, r *deployments.Poll, now time.Time) error {
	e, err := tx.Evaluation(job.ID)
	if err != nil {
		return err
	}
	if err := apply(&e, workflow.EventClaim, now); err != nil {
		return err
	}
	e.ClaimedAt, e.LastSeenAt = now, now
	e.AgentID, e.AgentHostname, e.AgentVersion, e.AgentPlatform = r.Agent.AgentID, r.Agent.Hostname, r.Agent.Version, r.Agent.Platform
	e.PoolID, e.PollID, e.Stock = r.Agent.PoolID, r.PollID, r.Stock
	e.Steps = nil
	for _, step := range workflow.PolicySteps() {
		e.Steps = append(e.Steps, store.StepState{Name: step.Name, Status: workflow.StepNotStarted})
	}
	*job = e.Job()
	return save(tx, e)
}

// ByPolls implements [deployments.Evaluations].
func (s *Service) ByPolls(tx *store.Tx, poolID string, pollIDs []string) ([]store.Job, error) {
	list, err := tx.EvaluationsByPolls(poolID, pollIDs)
	var jobs []store.Job
	for i := range list {
		jobs = append(jobs, list[i].Job())
	}
	return jobs, err
}

// Touch implements [deployments.Evaluations].
func (s *Service) Touch(tx *store.Tx, id string, r *deployments.Poll, now time.Time) (job store.Job, current bool, err error) {
	e, err := tx.Evaluation(id)
	if err != nil || e.AgentID != r.Agent.AgentID || e.PollID != r.PollID {
		return store.Job{}, false, err
	}
	if e.Status == workflow.StatusAccepted {
		e.LastSeenAt = now
		err = tx.SaveEvaluation(e, "last_seen_at")
	}
	return e.Job(), true, err
}

// Find implements [deployments.Evaluations].
func (s *Service) Find(tx *store.Tx, id string) (store.Job, error) {
	e, err := tx.Evaluation(id)
	return e.Job(), err
}

// HandBack implements [deployments.Evaluations].
func (s *Service) HandBack(tx *store.Tx, claimed store.Job) error {
	e, err := tx.Evaluation(claimed.ID)
	if err != nil {
		return store.IgnoreMissing(err)
	}
	untouched := e.Status == workflow.StatusAccepted && e.Epoch == claimed.Epoch && e.LastSeenAt.UnixMicro() == claimed.LastSeenAt.UnixMicro()
	if !untouched {
		return nil
	}
	return s.requeue(tx, &e, tx.Now())
}
