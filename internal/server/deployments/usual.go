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
	return store.Read(ctx, s.db, func(tx *store.Tx) (map[string]time.Duration, error) { return usualTimes(tx, list) })
}

func usualTimes(tx *store.Tx, list []Listed) (map[string]time.Duration, error) {
	times := map[string]time.Duration{}
	for _, d := range list {
		good, err := tx.GoodCourses(d.StackID, d.Version, d.Operation, usualRuns)
		if err != nil {
			return nil, fault.While(err, "reading how long deployments usually run")
		}
		if u := usual(good); u.Runs > 0 {
			times[d.ID] = u.Median
		}
	}
	return times, nil
}
