package deployments

import (
	"context"
	"math"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// UsualTimes returns how long good deployments of the operations of listed ones usually run, by the ids of the
// deployments. Those with too few earlier ones are missing.
func (s *Service) UsualTimes(ctx context.Context, list []Listed) (map[string]time.Duration, error) {
	times := map[string]time.Duration{}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		for _, d := range list {
			good, err := tx.GoodCourses(d.StackID, d.Version, d.Operation, usualRuns)
			if err != nil {
				return err
			}
			if u := usual(good); u.Runs > 0 {
				times[d.ID] = u.Median
			}
		}
		return nil
	})
	return times, fault.While(err, "reading how long deployments usually run")
}

// Usual returns how long good deployments of an operation of a stack usually run.
func (s *Service) Usual(ctx context.Context, st store.Stack, op workflow.Operation) (Usual, error) {
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (Usual, error) {
		good, err := tx.GoodCourses(st.ID, math.MaxInt64, op, usualRuns)
		return usual(good), err
	})
	return u, fault.While(err, "reading how long deployments of %s usually run", st.Ref())
}
