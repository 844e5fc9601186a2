package pools

import (
	"context"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// MoveQueue moves all queued deployments of a pool to another pool of the organization, in several transactions.
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
