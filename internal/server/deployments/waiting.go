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

// shownPools and shownAgents bound the lists in [Waiting].
const shownPools, shownAgents = 10, 10

// Waiting describes why a queued deployment does not start, as the API shows it. Pools and Agents are
// empty if the queue itself holds the deployment back, because no agent can take it then.
type Waiting struct {
	Reason  string         `json:"reason"`
	Message string         `json:"message"`
	Pools   []WaitingPool  `json:"pools,omitempty"`
	Agents  []WaitingAgent `json:"agents,omitempty"` // of the deployment's pool, connected agents first
}

// WaitingPool is a pool that could take a queued deployment.
type WaitingPool struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Agents    int64  `json:"agents"`
	Connected int64  `json:"connectedAgents"`
}

// WaitingAgent is an agent that has not taken a queued deployment.
type WaitingAgent struct {
	ID        string `json:"id"`
	Hostname  string `json:"hostname"`
	Connected bool   `json:"connected"`
	Running   int64  `json:"running"` // deployments
	Why       string `json:"why"`
}

// considered returns the reason of a queued deployment with the pools and agents to which it applies.
func considered(tx *store.Tx, d Details, facts waiting.Facts) (*Waiting, error) {
	w := &Waiting{Reason: d.Why.Reason, Message: d.Message}
	var ids []string
	switch d.Why.Reason {
	case waiting.NoPool:
		ids = facts.Order[:min(len(facts.Order), shownPools)]
	case waiting.NoAgent, waiting.Drained, waiting.NotReady, waiting.Busy:
		ids = []string{d.Job.PoolID}
	}
	for _, id := range ids {
		pool := facts.Pools[id]
		w.Pools = append(w.Pools, WaitingPool{ID: id, Name: pool.Name, Agents: pool.Agents, Connected: pool.Online})
	}
	if len(ids) == 0 || d.Why.Reason == waiting.NoPool {
		return w, nil
	}
	var err error
	w.Agents, err = waitingAgents(tx, facts.Pools[d.Job.PoolID].AgentPool)
	return w, err
}

func waitingAgents(tx *store.Tx, pool store.AgentPool) ([]WaitingAgent, error) {
	agents, err := tx.Agents(pool.ID)
	if err != nil {
		return nil, err
	}
	running, err := tx.CountActiveJobsByAgent(pool)
	if err != nil {
		return nil, err
	}
	now := tx.Now()
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
