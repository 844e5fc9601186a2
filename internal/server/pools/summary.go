package pools

import (
	"context"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Summary is a pool with the state of its agents and of its queue in numbers.
type Summary struct {
	store.AgentPool
	store.Presence
	Default bool
	Stacks  int64 // stacks whose settings name the pool
}

// Free returns the number of online agents that run no job and can start one.
func (s Summary) Free() int64 { return max(s.Online-s.Busy, 0) }

// errRead is the error of callers who may not see an organization's pools.
var errRead = fault.Forbidden("you may not see the agent pools of the organization")

// Summaries returns the summaries of an organization's pools, oldest first, in a few queries.
func (s *Service) Summaries(ctx context.Context, p identity.Principal, orgID string) ([]Summary, error) {
	if !p.CanReadPools(orgID) {
		return nil, errRead
	}
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Summary, error) {
		list, err := tx.Pools(orgID)
		if err != nil {
			return nil, err
		}
		return summarize(tx, orgID, list)
	})
	return out, fault.While(err, "listing agent pools")
}

// Own returns the named ones of an organization's pools without their agents, for callers who may not
// see the others.
func Own(list []Overview, ids ...string) []Overview {
	var own []Overview
	for _, o := range list {
		if slices.Contains(ids, o.ID) {
			o.Agents = nil
			own = append(own, o)
		}
	}
	return own
}

// Summary returns the summary of one pool.
func (s *Service) Summary(ctx context.Context, p identity.Principal, orgID, id string) (Summary, error) {
	if !p.CanReadPools(orgID) {
		return Summary{}, errRead
	}
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Summary, error) {
		pool, err := tx.Pool(orgID, id)
		if err != nil {
			return nil, err
		}
		return summarize(tx, orgID, []store.AgentPool{pool})
	})
	if err != nil {
		return Summary{}, notFound(err, id)
	}
	return out[0], nil
}

func summarize(tx *store.Tx, orgID string, list []store.AgentPool) ([]Summary, error) {
	queue, err := tx.OrgQueue(orgID)
	if err != nil {
		return nil, err
	}
	presences, err := tx.Presences(orgID, Silence)
	if err != nil {
		return nil, err
	}
	stacks, err := tx.StacksByPool(orgID)
	if err != nil {
		return nil, err
	}
	out := make([]Summary, len(list))
	for i, pool := range list {
		out[i] = Summary{AgentPool: pool, Presence: presences[pool.ID], Default: pool.ID == queue.DefaultPool, Stacks: stacks[pool.ID]}
	}
	return out, nil
}

// Silent returns the number of an organization's pools that have work or had agents, and of which no agent is online. It
// is 0 for callers who may not see the pools.
func (s *Service) Silent(ctx context.Context, p identity.Principal, orgID string) (int64, error) {
	if !p.CanReadPools(orgID) {
		return 0, nil
	}
	n, err := store.Read(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountSilentPools(orgID, Silence) })
	return n, fault.While(err, "counting agent pools")
}
