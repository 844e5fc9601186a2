package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	builtInName        = "built-in"
	builtInDescription = "Runners that workflow-server itself starts."
)

// BuiltIn returns the pool of the server's own runners with a new token, and revokes the previous
// token of the same host and key. It creates the pool if it is missing. The pool becomes the
// organization's default pool if the organization has none.
//
// The previous agent has stopped. If its server stopped too, nothing recorded that its session
// ended, so BuiltIn does: the new agent need not wait until the session expires.
func (s *Service) BuiltIn(ctx context.Context, orgID, host, key string) (Created, error) {
	holder := "built-in runners of " + host + " " + key
	token, hash := identity.NewToken()
	var pool store.AgentPool
	chosen := false
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		chosen = false
		list, err := tx.Pools(orgID)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(list, func(p store.AgentPool) bool { return p.BuiltIn }); i >= 0 {
			pool = list[i]
		} else {
			pool = store.AgentPool{
				ID: identity.NewID(), OrgID: orgID, Name: freeName(list), Description: builtInDescription,
				CreatedAt: tx.Now(), BuiltIn: true,
			}
			if err := tx.InsertPool(pool); err != nil {
				return err
			}
		}
		old, err := tx.Tokens(store.TokenFilter{Kind: store.PoolToken, PoolID: pool.ID})
		if err != nil {
			return err
		}
		for _, t := range old {
			if t.Description == holder && t.CreatedBy == "" {
				if err := tx.DeleteToken(t.ID); err != nil {
					return err
				}
				tx.Notify(identity.PoolTokenTopic, orgID)
			}
		}
		agents, err := tx.Agents(pool.ID)
		if err != nil {
			return err
		}
		for _, a := range agents {
			if a.Hostname != host {
				continue
			}
			if _, err := tx.EndSession(a); err != nil {
				return err
			}
		}
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return err
		}
		if chosen = queue.DefaultPool == ""; chosen {
			if err := chooseDefault(tx, orgID, pool.ID); err != nil {
				return err
			}
		}
		return tx.InsertToken(store.Token{
			ID: identity.NewID(), Hash: hash, Kind: store.PoolToken, Name: pool.Name, Description: holder,
			OrgID: orgID, PoolID: pool.ID, CreatedAt: tx.Now(),
		})
	})
	if err == nil && chosen {
		err = s.moveQueued(ctx, orgID, pool.ID)
	}
	if err != nil {
		return Created{}, fmt.Errorf("preparing the pool of the built-in runners: %w", err)
	}
	return Created{pool, token}, nil
}

// BuiltInJobs returns the number of jobs that built-in runners on a host have claimed or run.
func (s *Service) BuiltInJobs(ctx context.Context, host string) (int64, error) {
	n, err := store.Read(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountBuiltInJobs(host) })
	return n, fault.While(err, "counting the jobs of the built-in runners")
}

// freeName returns a name for the built-in pool that no other pool has.
func freeName(list []store.AgentPool) string {
	name := builtInName
	for i := 2; slices.ContainsFunc(list, func(p store.AgentPool) bool { return p.Name == name }); i++ {
		name = fmt.Sprintf("%s-%d", builtInName, i)
	}
	return name
}

// ErrPoolGone reports that a pool was deleted.
var ErrPoolGone = errors.New("the agent pool was deleted")

// Exists returns [ErrPoolGone] if an organization has no pool with an id.
func (s *Service) Exists(ctx context.Context, orgID, id string) error {
	_, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.AgentPool, error) { return tx.Pool(orgID, id) })
	return store.IfMissing(err, ErrPoolGone)
}
