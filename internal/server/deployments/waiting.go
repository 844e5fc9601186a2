package deployments

import (
	"fmt"
	"time"

	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// claimTime is the time in which a free agent is expected to claim a job. After that time, the job
// is reported as waiting.
const claimTime = 3 * time.Second

// queued is a queued job, with the data needed to list what could take it.
type queued struct {
	tx  *store.Tx
	d   store.Deployment
	job store.Job
}

// shownPools is the maximum number of pools in [Waiting].
const shownPools = 10

// Waiting describes why a queued deployment does not start. Pools and Agents are empty if the queue
// itself holds the deployment back, because no agent can take it then.
type Waiting struct {
	Reason string
	Pools  []WaitingPool  // at most shownPools
	Agents []WaitingAgent // of the deployment's pool, at most shownAgents, connected agents first
}

// WaitingPool is a pool that could take a queued deployment.
type WaitingPool struct {
	ID, Name          string
	Agents, Connected int
}

// WaitingAgent is an agent that has not taken a queued deployment.
type WaitingAgent struct {
	ID, Hostname string
	Connected    bool
	Running      int64 // deployments
	Why          string
}

// shownAgents is the maximum number of agents in [Waiting].
const shownAgents = 10

// considered returns a reason for waiting with the pools and agents to which it applies.
func (q queued) considered(reason string) (*Waiting, error) {
	w := &Waiting{Reason: reason}
	switch reason {
	case waiting.NoPool:
		list, err := q.tx.Pools(q.d.OrgID)
		if err != nil {
			return nil, err
		}
		w.Pools, err = q.poolsOf(list)
		return w, err
	case waiting.NoAgent, waiting.Drained, waiting.NotReady, waiting.Busy:
		pool, err := q.tx.Pool(q.d.OrgID, q.job.PoolID)
		if err != nil {
			return nil, err
		}
		if w.Pools, err = q.poolsOf([]store.AgentPool{pool}); err != nil {
			return nil, err
		}
		w.Agents, err = q.agentsOf(pool)
		return w, err
	default:
		return w, nil
	}
}

// poolsOf returns the first pools of a list with the numbers of their agents.
func (q queued) poolsOf(list []store.AgentPool) ([]WaitingPool, error) {
	now := q.tx.Now()
	var out []WaitingPool
	for _, pool := range list[:min(len(list), shownPools)] {
		agents, err := q.tx.Agents(pool.ID)
		if err != nil {
			return nil, err
		}
		p := WaitingPool{ID: pool.ID, Name: pool.Name, Agents: len(agents)}
		for _, a := range agents {
			if pools.Online(a, now) {
				p.Connected++
			}
		}
		out = append(out, p)
	}
	return out, nil
}

func (q queued) agentsOf(pool store.AgentPool) ([]WaitingAgent, error) {
	agents, err := q.tx.Agents(pool.ID)
	if err != nil {
		return nil, err
	}
	running, err := q.tx.CountActiveJobsByAgent(pool)
	if err != nil {
		return nil, err
	}
	now := q.tx.Now()
	var connected, others []WaitingAgent
	for _, a := range agents {
		w := WaitingAgent{ID: a.AgentID, Hostname: a.Hostname, Connected: pools.Online(a, now), Running: running[a.AgentID]}
		switch {
		case !w.Connected:
			w.Why = "is not connected; was last seen at " + a.LastSeenAt.UTC().Format(time.RFC3339)
			others = append(others, w)
			continue
		case a.Slots == 0 && w.Running == 0:
			w.Why = "reports that it cannot start deployments"
		case w.Running > 0:
			w.Why = fmt.Sprintf("requests no more deployments; running: %d", w.Running)
		default:
			w.Why = "requests no deployments, for example because it drains"
		}
		connected = append(connected, w)
	}
	out := append(connected, others...)
	return out[:min(len(out), shownAgents)], nil
}
