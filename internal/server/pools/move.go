package pools

import (
	"context"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// MoveQueue moves the queued deployments of a pool to another pool of the organization, in several transactions. Those of
// pull requests stay.
func (s *Service) MoveQueue(ctx context.Context, p identity.Principal, orgID, fromID, toID string) error {
	if !p.CanAdminOrg(orgID) {
		return fault.Forbidden("only administrators of the organization may move queues")
	}
	if fromID == toID {
		return fault.Invalid("choose another pool than the one whose queue you move")
	}
	find := func(tx *store.Tx) (from, to store.AgentPool, err error) {
		if from, err = tx.Pool(orgID, fromID); err != nil {
			return from, to, err
		}
		to, err = tx.Pool(orgID, toID)
		return from, to, store.IfMissing(err, fault.Invalid("agent pool '%s' does not exist in this organization", toID))
	}
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		from, to, err := find(tx)
		if err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: orgID, Action: audit.PoolQueueMoved, Subject: audit.Subject{Kind: "pool", ID: from.ID, Name: from.Name}, Detail: map[string]any{"to": to.ID, "name": to.Name},
		})
	})
	if err == nil {
		err = s.db.WriteInPieces(ctx, scope.Organization(orgID), func(tx *store.Tx, limit int) (int64, error) {
			if _, _, err := find(tx); err != nil {
				return 0, err
			}
			tx.Notify(QueueTopic, toID)
			changed(tx, orgID, "")
			return tx.MoveQueue(fromID, toID, limit)
		})
	}
	return notFound(err, fromID)
}

// QueuedPulls returns the number of queued deployments of a pool that [Service.MoveQueue] leaves there.
func (s *Service) QueuedPulls(ctx context.Context, p identity.Principal, pool store.AgentPool) (int64, error) {
	if !p.CanReadPools(pool.OrgID) {
		return 0, errRead
	}
	n, err := store.Read(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountQueuedPulls(pool) })
	return n, fault.While(err, "counting the queued deployments of pull requests")
}
