package home

import (
	"context"
	"time"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Counters count what the navigation shows.
type Counters struct {
	Deployments *deployments.Service
	Pools       *pools.Service
	Stacks      *stacks.Service
	Estate      *estate.Service
	Invitations *invitations.Service
}

// Numbers returns the numbers of the navigation, for users who see all stacks of the organization. Every page shows them, so
// they must be cheap: the permissions on each stack are not checked.
func (c Counters) Numbers(ctx context.Context, who identity.Principal, org store.Organization) (view.Numbers, error) {
	var n view.Numbers
	if who.Role(org.ID) == "" {
		return n, nil
	}
	counted, all, err := c.Estate.Numbers(ctx, who, org.ID)
	if err != nil || !all {
		return n, err
	}
	n.Stacks = number(counted.All, estate.NumbersLimit)
	open, err := c.Deployments.Open(ctx, who, org.ID)
	if err != nil {
		return n, err
	}
	n.Deployments = number(open.Open, deployments.OpenLimit)
	needed := counted.Attention
	if open.Paused {
		needed++
	}
	silent, err := c.Pools.Silent(ctx, who, org.ID)
	if err != nil {
		return n, err
	}
	needed += silent
	if counted.Running > 0 {
		stale, err := c.Stacks.StaleLocks(ctx, who, org.ID)
		if err != nil {
			return n, err
		}
		needed += int64(len(stale))
	}
	if who.CanAdminOrg(org.ID) {
		waiting, err := c.Invitations.List(ctx, org.ID)
		if err != nil {
			return n, err
		}
		if _, ok := invited(org.Name, waiting, time.Now()); ok {
			needed++
		}
	}
	n.Home = number(needed, estate.NumbersLimit)
	return n, nil
}

// number returns a number that was counted up to a limit, or "" for none.
func number(n, limit int64) string {
	switch {
	case n == 0:
		return ""
	case n >= limit:
		return words.Number(limit-1) + "+"
	default:
		return words.Number(n)
	}
}
