package deployments

import (
	"context"
	"slices"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// AgentWork is what an agent does and has done.
type AgentWork struct {
	// Running are the jobs of the agent that the caller can see, and Active is the number of all.
	Running []store.QueueEntry
	Active  int64
	// Today is the number of jobs that the agent has finished in the last 24 hours.
	Today int64
	// Last are the last finished jobs of the agent that the caller can see, oldest first.
	Last []store.Run
}

const (
	// shownWork is the maximum number of running jobs that [Service.Work] returns.
	shownWork = 500
	// readWork bounds the finished jobs of a pool that [Service.Work] reads.
	readWork = 400
)

// Work returns the work of a pool's agents, by the id of the agent.
func (s *Service) Work(ctx context.Context, p identity.Principal, pool store.AgentPool) (map[string]AgentWork, error) {
	if !p.CanReadPools(pool.OrgID) {
		return nil, errNoOrg
	}
	out := map[string]AgentWork{}
	change := func(agent string, fn func(w *AgentWork)) {
		w := out[agent]
		fn(&w)
		out[agent] = w
	}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		reach := p.Reach(pool.OrgID)
		running, err := tx.ActiveJobs(pool.OrgID, pool.ID, reach, shownWork)
		if err != nil {
			return err
		}
		for _, r := range running {
			change(r.AgentID, func(w *AgentWork) { w.Running = append(w.Running, r) })
		}
		active, err := tx.CountActiveJobsByAgent(pool)
		if err != nil {
			return err
		}
		for id, n := range active {
			change(id, func(w *AgentWork) { w.Active = n })
		}
		done, err := tx.CountJobsByAgent(pool, tx.Now().Add(-24*time.Hour))
		if err != nil {
			return err
		}
		for id, n := range done {
			change(id, func(w *AgentWork) { w.Today = n })
		}
		last, err := tx.RunsOfAgents(pool, reach, readWork)
		for _, r := range slices.Backward(last) {
			change(r.AgentID, func(w *AgentWork) { w.Last = append(w.Last, r.Run) })
		}
		return err
	})
	for id, w := range out {
		w.Last = w.Last[max(0, len(w.Last)-store.MaxRuns):]
		out[id] = w
	}
	return out, fault.While(err, "listing the work of agents")
}
