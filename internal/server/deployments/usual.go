package deployments

import (
	"context"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
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
