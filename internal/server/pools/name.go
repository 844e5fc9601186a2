package pools

import (
	"cmp"
	"context"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Name returns the name of the pool in which the deployments of a stack run whose settings name the pool with an id, or
// none for the default pool. It is "" if there is no such pool.
func (s *Service) Name(ctx context.Context, orgID, id string) (string, error) {
	name, err := store.Read(ctx, s.db, func(tx *store.Tx) (string, error) {
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return "", err
		}
		if id = cmp.Or(id, queue.DefaultPool); id == "" {
			return "", nil
		}
		pool, err := tx.Pool(orgID, id)
		return pool.Name, store.IgnoreMissing(err)
	})
	return name, fault.While(err, "reading the name of a pool")
}
