package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// The operations on agent pools.
var (
	ListPools    = Operation[PoolsOf, []Pool]{"pool-list", (*Service).listPools}
	CreatePool   = Operation[NewPool, CreatedPool]{"pool-create", (*Service).createPool}
	DeletePool   = Operation[OldPool, Pool]{"pool-delete", (*Service).deletePool}
	AddPoolToken = Operation[NewPoolToken, CreatedToken]{"pool-token", (*Service).addPoolToken}
)

// operator is the principal of all operations.
var operator = identity.Operator()

// PoolsOf selects the pools of an organization, or all if it is "".
type PoolsOf struct {
	Organization string `json:"organization,omitempty"`
}

// Pool is an agent pool in a list.
type Pool struct {
	Organization string     `json:"organization"`
	Name         string     `json:"name"`
	ID           string     `json:"id"`
	Description  string     `json:"description"`
	Default      bool       `json:"default"`
	Online       int64      `json:"agentsOnline"`
	Active       int64      `json:"deploymentsRunning"`
	Queued       int64      `json:"deploymentsQueued"`
	Created      time.Time  `json:"created"`
	LastSeen     *time.Time `json:"lastSeen,omitempty"`
}

// NewPool is a pool to create. The organization "" is the only one.
type NewPool struct {
	Organization string `json:"organization,omitempty"`
	Name         string `json:"name"`
	Description  string `json:"description,omitempty"`
}

// CreatedPool is a new pool with the token of its agents.
type CreatedPool struct {
	Organization string `json:"organization"`
	Name         string `json:"name"`
	ID           string `json:"id"`
	Token        string `json:"token"`
}

// OldPool is a pool to delete. Pool is its name or its id.
type OldPool struct {
	Organization string `json:"organization,omitempty"`
	Pool         string `json:"pool"`
	Force        bool   `json:"force,omitempty"`
}

// NewPoolToken is a further token of a pool. Pool is its name or its id.
type NewPoolToken struct {
	Organization string        `json:"organization,omitempty"`
	Pool         string        `json:"pool"`
	Description  string        `json:"description,omitempty"`
	Lifetime     time.Duration `json:"lifetime,omitempty"` // 0 means forever
}

func (s *Service) listPools(ctx context.Context, q PoolsOf) ([]Pool, error) {
	orgs, err := s.organizations(ctx, q.Organization)
	if err != nil {
		return nil, err
	}
	list := []Pool{}
	for _, o := range orgs {
		summaries, err := s.Pools.Summaries(ctx, operator, o.ID)
		if err != nil {
			return nil, err
		}
		for _, p := range summaries {
			list = append(list, poolOf(o, p))
		}
	}
	return list, nil
}

func poolOf(o store.Organization, p pools.Summary) Pool {
	return Pool{
		Organization: o.Name, Name: p.Name, ID: p.ID, Description: p.Description, Default: p.Default, Online: p.Online, Active: p.Active, Queued: p.Queued,
		Created: p.CreatedAt, LastSeen: known(p.LastSeenAt),
	}
}

// known returns a time, or nil if it is zero.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (s *Service) createPool(ctx context.Context, q NewPool) (CreatedPool, error) {
	o, err := s.organization(ctx, q.Organization)
	if err != nil {
		return CreatedPool{}, err
	}
	created, err := s.Pools.Create(ctx, operator, o, q.Name, q.Description)
	return CreatedPool{Organization: o.Name, Name: created.Pool.Name, ID: created.Pool.ID, Token: created.Token}, err
}

// pool returns the pool of an organization with a name or an id.
func (s *Service) pool(ctx context.Context, organization, pool string) (o store.Organization, p pools.Summary, err error) {
	if o, err = s.organization(ctx, organization); err != nil {
		return o, p, err
	}
	list, err := s.Pools.Summaries(ctx, operator, o.ID)
	if err != nil {
		return o, p, err
	}
	for _, same := range []func(pools.Summary) bool{
		func(p pools.Summary) bool { return p.Name == pool }, func(p pools.Summary) bool { return p.ID == pool },
	} {
		if i := slices.IndexFunc(list, same); i >= 0 {
			return o, list[i], nil
		}
	}
	return o, p, fault.NotFound("%s has no agent pool %q", o.Name, pool)
}

func (s *Service) deletePool(ctx context.Context, q OldPool) (Pool, error) {
	o, p, err := s.pool(ctx, q.Organization, q.Pool)
	if err != nil {
		return Pool{}, err
	}
	err = s.Pools.Delete(ctx, o.ID, p.ID, q.Force, deployments.ForgetPool)
	if used, ok := errors.AsType[*pools.InUseError](err); ok {
		err = fault.Conflict("the agent pool %q of %s is in use: %s; use --force to delete it nevertheless", p.Name, o.Name, used.By)
	}
	return poolOf(o, p), err
}

func (s *Service) addPoolToken(ctx context.Context, q NewPoolToken) (CreatedToken, error) {
	o, p, err := s.pool(ctx, q.Organization, q.Pool)
	if err != nil {
		return CreatedToken{}, err
	}
	text, id, err := s.Pools.AddToken(ctx, operator, o.ID, p.ID, q.Description, expiry(q.Lifetime))
	return CreatedToken{ID: id, Token: text}, err
}

// expiry returns the time at which something ends that begins now; a lifetime of 0 means never.
func expiry(lifetime time.Duration) time.Time {
	if lifetime == 0 {
		return time.Time{}
	}
	return time.Now().Add(lifetime)
}
