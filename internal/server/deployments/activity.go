package deployments

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/server/store"
)

// Activity is a deployment, or an update that no deployment ran.
type Activity struct {
	Deployment *Details
	Update     *store.Update
}

// activityChunk is the number of entries that a transaction of EachActivity reads.
const activityChunk = 20

// ActivityMemory is the memory that [Service.EachActivity] needs, in bytes.
const ActivityMemory = activityChunk * summaryMemory

// CountActivity returns the number of entries in the activity of a stack, and the time of the
// newest.
func (s *Service) CountActivity(ctx context.Context, st store.Stack) (n int64, newest time.Time, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		n, newest, err = tx.NewestActivity(st.ID)
		return err
	})
	return n, newest, err
}

// EachActivity calls each for the activity of a stack up to a time, newest first. It skips offset
// entries and stops after limit; 0 means no limit. No transaction is open during the calls, so each
// can block.
func (s *Service) EachActivity(ctx context.Context, st store.Stack, until time.Time, limit, offset int, each func(Activity) error) error {
	last := store.Activity{CreatedAt: until}
	for given := 0; limit == 0 || given < limit; {
		n := activityChunk
		if limit > 0 {
			n = min(n, limit-given)
		}
		var chunk []Activity
		var next store.Activity
		err := s.db.Read(ctx, func(tx *store.Tx) error {
			found, err := tx.Activity(store.ActivityFilter{StackID: st.ID, After: last, Offset: offset, Limit: n})
			if err != nil {
				return err
			}
			chunk, next = make([]Activity, 0, len(found)), last
			for _, a := range found {
				entry, err := s.activity(tx, a)
				if err != nil {
					return err
				}
				chunk, next = append(chunk, entry), a
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading the activity of %s: %w", st.Ref(), err)
		}
		for _, a := range chunk {
			if err := each(a); err != nil {
				return err
			}
		}
		if len(chunk) < n {
			return nil
		}
		given, last, offset = given+n, next, 0
	}
	return nil
}

func (s *Service) activity(tx *store.Tx, a store.Activity) (Activity, error) {
	if a.DeploymentID == "" {
		u, err := tx.Update(a.UpdateID)
		return Activity{Update: &u}, err
	}
	dj, err := tx.DeploymentSummary(a.DeploymentID)
	if err != nil {
		return Activity{}, err
	}
	facts, err := s.facts(tx, dj.OrgID, []store.DeploymentJob{dj}, nil)
	if err != nil {
		return Activity{}, err
	}
	d, err := s.summary(tx, dj, facts)
	return Activity{Deployment: &d}, err
}
