package pools

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// maxAgents is the number of a pool's agents that the server remembers. Concurrent first polls of
// agents can exceed it a little. The limit is one of the pool and not of its tokens: with OIDC, clients
// obtain new tokens all the time.
const maxAgents = 10_000

// offlinePerWrite is the number of agents that [Service.makeRoom] forgets at once, so that a full pool
// does not need a further transaction for each new agent.
const offlinePerWrite = 100

// errForgotten means that the server has forgotten an agent to make room for others.
var errForgotten = errors.New("the agent was forgotten")

// makeRoom forgets agents that are offline if the pool has the maximum number of agents and does not
// contain the agent of a poll. It returns an error if all are online.
func (s *Service) makeRoom(ctx context.Context, g *Sighting) error {
	var full bool
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		_, err := tx.Agent(g.PoolID, g.AgentID)
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		n, err := tx.CountAgents(g.PoolID, s.maxAgents)
		full = n >= int64(s.maxAgents)
		return err
	})
	if err != nil {
		return fmt.Errorf("counting the agents of a pool: %w", err)
	}
	if !full {
		return nil
	}
	var n int64
	err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) (err error) {
		if n, err = tx.ForgetOffline(g.PoolID, Silence, offlinePerWrite); n > 0 {
			changed(tx, g.OrgID, g.PoolID)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("forgetting agents that are offline: %w", err)
	}
	if n == 0 {
		return fault.New(fault.KindUnavailable, "the agent pool has %d connected agents, which is the maximum of a pool: "+
			"stop some of them, or connect this agent to another pool", s.maxAgents)
	}
	return nil
}
