package deployments

import (
	"context"
	"slices"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Board is the list of an organization's deployments in all stages, as far as the caller sees them.
type Board struct {
	Queues
	// Running, Waiting and Finished are parts of the list. Those that the query does not select are empty.
	Running, Waiting, Finished Listing
	// Bad is the number of deployments that failed or were lost, up to [BadLimit]. It is 0 if Counted is false.
	Bad     int64
	Counted bool
	// Older reports whether there are finished deployments that only Since keeps from the query. With a text, there can be.
	Older bool
	// Usual is how long good deployments of the same operation usually run, by the ids of running and queued ones.
	Usual map[string]time.Duration
}

const (
	// boardFirst is the number of running and of queued deployments of a [Board] that also shows finished ones.
	boardFirst = 20
	// BadLimit is the number up to which failed deployments are counted.
	BadLimit = 100
)

// Board returns the list of the deployments that a query selects. A query without a state selects all: with After, the
// following finished ones. Its stage is ignored, and Since applies only to finished deployments. Running and Queued of
// the result count those that the query selects without its state and text.
func (s *Service) Board(ctx context.Context, p identity.Principal, orgID string, q Query) (Board, error) {
	var b Board
	if p.Role(orgID) == "" {
		return b, errNoOrg
	}
	stages := q.stages()
	filters := map[store.Stage]store.StageFilter{}
	for _, stage := range []store.Stage{StageActive, StageQueued, StageFinished} {
		one := q.of(stage, len(stages) > 1)
		f, err := one.filter(p, orgID)
		if err != nil {
			return b, err
		}
		filters[stage] = f
	}
	if err := budget.Of(ctx).Take(ctx, (2*boardFirst+PageSize)*listedMemory); err != nil {
		return b, err
	}
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if b.Queues, err = s.orgQueues(tx, orgID); err != nil {
			return err
		}
		first := filters[StageFinished]
		if found, err := q.resolve(tx, &first); err != nil || !found {
			return err
		}
		for stage, f := range filters {
			f.SelectedBy(first)
			filters[stage] = f
		}
		// No index contains both failures and who requested them.
		b.Counted = first.RequestedBy == "" && first.Initiator == ""
		if err := b.count(tx, filters); err != nil {
			return err
		}
		to := map[store.Stage]*Listing{StageActive: &b.Running, StageQueued: &b.Waiting, StageFinished: &b.Finished}
		for _, stage := range stages {
			if *to[stage], err = s.stage(tx, filters[stage], q.Text); err != nil {
				return err
			}
		}
		if b.Older, err = older(tx, q, filters[StageFinished], b.Finished); err != nil {
			return err
		}
		b.Usual, err = usualTimes(tx, append(slices.Clip(b.Running.Items), b.Waiting.Items...))
		return err
	})
	return b, fault.While(err, "listing deployments")
}

// stages returns the stages that a query selects.
func (q Query) stages() []store.Stage {
	switch q.State {
	case "":
		if q.After != "" {
			return []store.Stage{StageFinished}
		}
		return []store.Stage{StageActive, StageQueued, StageFinished}
	case waiting.StateQueued:
		return []store.Stage{StageQueued}
	case StateStarted, waiting.StateClaimed, waiting.StateRunning:
		return []store.Stage{StageActive}
	default:
		return []store.Stage{StageFinished}
	}
}

// of returns the query for a stage, in a list with others or alone.
func (q Query) of(stage store.Stage, others bool) Query {
	q.Stage = stage
	if stage != StageFinished {
		q.Since = time.Time{}
		if others {
			q.Limit = boardFirst
		}
	}
	return q
}

// older reports whether there are finished deployments before those that a filter selects.
func older(tx *store.Tx, q Query, f store.StageFilter, found Listing) (bool, error) {
	if q.Since.IsZero() || found.Next != "" || !slices.Contains(q.stages(), StageFinished) {
		return false, nil
	}
	if q.Text != "" {
		return true, nil
	}
	f.Since, f.Until, f.After = time.Time{}, f.Since, store.StagePosition{}
	n, err := tx.CountInStage(f, 1)
	return n > 0, err
}

// count sets the numbers of deployments that a query selects without its state, text and page.
func (b *Board) count(tx *store.Tx, filters map[store.Stage]store.StageFilter) (err error) {
	for stage, n := range map[store.Stage]*int64{StageActive: &b.Queues.Running, StageQueued: &b.Queues.Queued, StageFinished: &b.Bad} {
		f, limit := filters[stage], CountLimit
		f.Outcome, f.Unsuccessful = store.Outcome{}, false
		if stage == StageFinished {
			if limit = BadLimit; !b.Counted {
				continue
			}
			if f.Outcome, err = outcomeOf(StateBad); err != nil {
				return err
			}
			f.Unsuccessful = true
		}
		if *n, err = tx.CountInStage(f, limit); err != nil {
			return err
		}
	}
	return nil
}

// orgQueues returns the state of an organization's queues, without the numbers that the caller sees.
func (s *Service) orgQueues(tx *store.Tx, orgID string) (q Queues, err error) {
	if q.Org, err = tx.OrgQueue(orgID); err != nil {
		return q, err
	}
	var quota int64
	q.Active, quota, err = tx.CountActiveJobs(orgID)
	q.Cap = s.cap(quota)
	return q, err
}
