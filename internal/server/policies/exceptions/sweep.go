package exceptions

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// keptFor is the time for which an exception that was removed, or has expired, remains readable.
	keptFor = 2 * 365 * 24 * time.Hour
	// keptNumber is the number of the newest exceptions of an organization that remain readable for that time. Of the others,
	// only those that apply remain.
	keptNumber  = 10_000
	sweptAtOnce = 200
)

// Sweep removes exceptions that ended long ago. Otherwise, an organization that gives and removes exceptions would store
// ever more of them.
func (s *Service) Sweep(ctx context.Context) error {
	for {
		list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EndedException, error) {
			return tx.EndedExceptions(tx.Now().Add(-keptFor), keptNumber, sweptAtOnce)
		})
		if err != nil {
			return fmt.Errorf("searching exceptions from policies that ended long ago: %w", err)
		}
		if len(list) == 0 {
			return nil
		}
		for _, e := range list {
			err := retry.Paced(ctx, func() error {
				return s.db.Write(ctx, scope.Organization(e.OrgID).Remaining(), func(tx *store.Tx) error { return tx.DeletePolicyException(e.ID) })
			})
			if err != nil {
				return fmt.Errorf("removing an exception from policies that ended long ago: %w", err)
			}
		}
	}
}
