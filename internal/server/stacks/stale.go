package stacks

import (
	"context"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// StaleLock is the lock of a stack whose holder no longer renews its lease.
type StaleLock struct {
	Stack store.Stack
	Lock
}

// maxStale bounds the locks of [Service.StaleLocks].
const maxStale = 10

// StaleLocks returns locks of an organization's stacks that the caller sees and whose holders are silent, the longest
// silent first. The server ends their updates when the leases lapse.
func (s *Service) StaleLocks(ctx context.Context, p identity.Principal, orgID string) ([]StaleLock, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]StaleLock, error) {
		now := tx.Now()
		held, err := tx.SilentStacks(orgID, p.Reach(orgID), now.Add(s.lease-s.lease/silentAfter), maxStale)
		if err != nil {
			return nil, err
		}
		var list []StaleLock
		for _, st := range held {
			u, err := tx.Update(st.ActiveUpdate)
			if err != nil {
				return nil, err
			}
			lock, err := s.lockOf(tx, st, u, now)
			if err != nil {
				return nil, err
			}
			if lock.State != LockAlive {
				list = append(list, StaleLock{st, lock})
			}
		}
		return list, nil
	})
	return list, fault.While(err, "searching stale locks")
}
