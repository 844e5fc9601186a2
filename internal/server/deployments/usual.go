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
	return store.Read(ctx, s.db, func(tx *store.Tx) (map[string]time.Duration, error) { return usualTimes(tx, list) })
}

// listedRuns is the number of a stack's newest deployments among which those of an operation are searched for a list.
const listedRuns = 100

func usualTimes(tx *store.Tx, list []Listed) (map[string]time.Duration, error) {
	type kind struct {
		stackID   string
		operation workflow.Operation
	}
	known := map[kind]time.Duration{}
	times := map[string]time.Duration{}
	for _, d := range list {
		k := kind{d.StackID, d.Operation}
		if _, ok := known[k]; !ok {
			good, err := tx.GoodTimes(d.StackID, d.Operation, listedRuns, usualRuns)
			if err != nil {
				return nil, fault.While(err, "reading how long deployments usually run")
			}
			if known[k] = 0; len(good) >= leastRuns {
				known[k] = part(good, 50)
			}
		}
		if known[k] > 0 {
			times[d.ID] = known[k]
		}
	}
	return times, nil
}

// Usual returns how long good deployments of an operation of a stack usually run.
func (s *Service) Usual(ctx context.Context, st store.Stack, op workflow.Operation) (Usual, error) {
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (Usual, error) {
		good, err := tx.GoodCourses(st.ID, math.MaxInt64, op, usualRuns)
		return usual(good), err
	})
	return u, fault.While(err, "reading how long deployments of %s usually run", st.Ref())
}
