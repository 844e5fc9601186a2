package deployments

import (
	"context"
	"slices"

	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// changed notifies of a change of a job.
func changed(tx *store.Tx, job store.Job) {
	tx.Notify(Topic, About(store.Stack{OrgID: job.OrgID, ID: job.StackID}, job.DeploymentID))
}

// queueChanged notifies of a change of a stack's queue or settings. The stack "" means all stacks of
// the organization.
func queueChanged(tx *store.Tx, orgID, stackID string) {
	if stackID == "" {
		tx.Notify(Topic, orgID+"/")
		return
	}
	tx.Notify(Topic, About(store.Stack{OrgID: orgID, ID: stackID}, ""))
}

// whyQueued returns the reason why a queued deployment does not start, as its log shows it.
func (s *Service) whyQueued(tx *store.Tx, d store.DeploymentJob) (joblog.Wait, error) {
	facts, err := s.facts(tx, d.OrgID, []store.DeploymentJob{d}, nil)
	if err != nil {
		return joblog.Wait{}, err
	}
	why := facts.Explain(d)
	if why.Number() == 0 {
		return joblog.Wait{}, nil
	}
	return joblog.Wait{Reason: why.Number(), Text: why.Message()}, nil
}

// Prospect returns the reason why a deployment that the caller creates now would not start, apart from the state
// of the pools.
func (s *Service) Prospect(ctx context.Context, p identity.Principal, st store.Stack) (waiting.Why, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (waiting.Why, error) {
		queue, err := tx.StackQueue(st.ID)
		if err != nil {
			return waiting.Why{}, err
		}
		d := store.DeploymentJob{
			Deployment: store.Deployment{OrgID: st.OrgID, StackID: st.ID, Project: st.Project, Stack: st.Name, Version: queue.LastVersion + 1},
			Job:        store.Job{Status: workflow.StatusNotStarted, ConcurrencyGroup: queue.ConcurrencyGroup, QueuedAt: tx.Now()},
		}
		reach := p.Reach(st.OrgID)
		facts, err := s.facts(tx, st.OrgID, []store.DeploymentJob{d}, &reach)
		if err != nil {
			return waiting.Why{}, err
		}
		return facts.Explain(d), nil
	})
}

// knownClaims is the number of a pool's next jobs of which the place in the queue is known.
const knownClaims = 200

// knownQueued bounds the queued jobs of concurrency groups that an explanation takes into account.
const knownQueued = 1000

// facts returns what is needed to explain the queued ones of an organization's deployments, in a few
// queries. Without a reach, it omits the deployments that run meanwhile.
func (s *Service) facts(tx *store.Tx, orgID string, list []store.DeploymentJob, reach *store.Reach) (waiting.Facts, error) {
	f := waiting.Facts{Now: tx.Now(), URL: s.opts.ExternalURL, Patience: claimTime, Claimable: map[string][]store.QueuedJob{}}
	var jobIDs, stackIDs, poolIDs []string
	for _, d := range list {
		if d.Job.Status == workflow.StatusNotStarted {
			jobIDs, stackIDs, poolIDs = append(jobIDs, d.Job.ID), append(stackIDs, d.StackID), append(poolIDs, d.Job.PoolID)
		}
	}
	if len(jobIDs) == 0 {
		return f, nil
	}
	slices.Sort(stackIDs)
	stackIDs = slices.Compact(stackIDs)
	var err error
	if f.Org, err = tx.Organization(orgID); err != nil {
		return f, err
	}
	f.Cap = s.cap(f.Org.DeploymentQuota)
	if f.Stop, err = tx.OrgQueue(orgID); err != nil {
		return f, err
	}
	if err := s.poolFacts(tx, &f, poolIDs); err != nil {
		return f, err
	}
	if err := stackFacts(tx, &f, stackIDs); err != nil {
		return f, err
	}
	if err := groupFacts(tx, &f, list, reach); err != nil {
		return f, err
	}
	if f.Before, err = tx.QueuedBefore(jobIDs); err != nil || reach == nil {
		return f, err
	}
	running := map[string][]store.QueueEntry{}
	for _, id := range append(poolIDs, "") {
		if _, known := running[id]; known {
			continue
		}
		if running[id], err = tx.ActiveJobs(orgID, id, *reach, shownAgents); err != nil {
			return f, err
		}
	}
	f.Running = func(poolID string) []store.QueueEntry { return running[poolID] }
	return f, nil
}

func (s *Service) poolFacts(tx *store.Tx, f *waiting.Facts, used []string) error {
	list, err := tx.Pools(f.Org.ID)
	if err != nil {
		return err
	}
	presences, err := tx.Presences(f.Org.ID, pools.Silence)
	if err != nil {
		return err
	}
	f.Pools = map[string]waiting.Pool{}
	for _, p := range list {
		pool := waiting.Pool{AgentPool: p, Presence: presences[p.ID]}
		if slices.Contains(used, p.ID) {
			if pool.Agents > 0 && pool.Online == 0 {
				last, err := tx.LastAgent(p.ID)
				if err != nil {
					return err
				}
				pool.Host = last.Hostname
			}
			if f.Claimable[p.ID], err = tx.NextJobs(p.ID, knownClaims); err != nil {
				return err
			}
		}
		f.Pools[p.ID], f.Order = pool, append(f.Order, p.ID)
	}
	for _, p := range presences {
		f.Active += p.Active
	}
	return nil
}

func groupFacts(tx *store.Tx, f *waiting.Facts, list []store.DeploymentJob, reach *store.Reach) error {
	var groups []string
	for _, d := range list {
		if name := d.Job.ConcurrencyGroup; name != "" && d.Job.Status == workflow.StatusNotStarted && !slices.Contains(groups, name) {
			groups = append(groups, name)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	holders, err := tx.HoldersOfGroups(f.Org.ID, groups, nil)
	if err != nil {
		return err
	}
	queued, err := tx.QueuedOfGroups(f.Org.ID, groups, knownQueued)
	if err != nil {
		return err
	}
	var visible []store.QueueEntry
	if reach != nil && len(holders) > 0 {
		if visible, err = tx.HoldersOfGroups(f.Org.ID, groups, reach); err != nil {
			return err
		}
	}
	f.Groups = map[string]waiting.ConcurrencyGroup{}
	for _, name := range groups {
		g := waiting.ConcurrencyGroup{Holders: ofGroup(holders, name), Queued: queued[name]}
		if reach != nil {
			g.Visible = append([]store.QueueEntry{}, ofGroup(visible, name)...)
		}
		f.Groups[name] = g
	}
	return nil
}

func ofGroup(list []store.QueueEntry, name string) (out []store.QueueEntry) {
	for _, h := range list {
		if h.Group == name {
			out = append(out, h)
		}
	}
	return out
}

func stackFacts(tx *store.Tx, f *waiting.Facts, stackIDs []string) error {
	f.Stacks = map[string]waiting.Queue{}
	queues, err := tx.StackQueues(stackIDs)
	if err != nil {
		return err
	}
	for _, q := range queues {
		f.Stacks[q.StackID] = waiting.Queue{StackQueue: q}
	}
	first, err := tx.FirstOfStacks(stackIDs)
	if err != nil {
		return err
	}
	for _, entry := range first {
		q := f.Stacks[entry.StackID]
		if q.First == nil && entry.Status != workflow.StatusNotStarted {
			if q.Usual, err = tx.UsualTime(entry.StackID, entry.Operation); err != nil {
				return err
			}
		}
		q.First = append(q.First, entry)
		f.Stacks[entry.StackID] = q
	}
	return nil
}
