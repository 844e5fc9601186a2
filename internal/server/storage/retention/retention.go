// Package retention removes old states, events and logs, and stacks that were deleted long ago. It runs on one server at a time, leaves
// the database to other writers most of the time, and keeps the metadata.
package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Policy defines which data is kept. The current state of each stack is always kept, and so is all
// data that a waiting, running or latest deployment or update needs.
type Policy struct {
	States    int64         // number of each stack's newest states that are kept
	StatesFor time.Duration // age up to which other states are kept; 0 means forever
	LogsFor   time.Duration // age up to which logs and events are kept; 0 means forever
	// DeletedFor is the time for which deleted stacks can be restored; 0 means not at all.
	DeletedFor time.Duration
}

// deletedStacks purges deleted stacks.
type deletedStacks interface {
	PurgeDeleted(ctx context.Context, before time.Time) (int, error)
}

// Sweeper applies a policy.
type Sweeper struct {
	db      *store.DB
	log     *logrus.Entry
	deleted deletedStacks
	policy  Policy
	clock   clock
}

// New returns a sweeper that applies policy to a database.
func New(db *store.DB, log *logrus.Entry, deleted deletedStacks, policy Policy) *Sweeper {
	return &Sweeper{db: db, log: log, deleted: deleted, policy: policy, clock: clock{up: upSince(time.Now())}}
}

// unstartedFor is the age up to which updates are kept that no client has started. A client starts an
// update right after it has created it.
const unstartedFor = 24 * time.Hour

// deletedPart is the only part for which no time means that nothing is kept.
const deletedPart = "deleted_stacks"

// page is the maximum number of rows that one query returns.
const page = 100

// Sweep removes all data that the policy does not keep. It removes nothing for a day after the clock
// was set ahead, or after no server has run for a day.
func (s *Sweeper) Sweep(ctx context.Context) error {
	now, err := s.db.Now(ctx)
	if err != nil {
		return fmt.Errorf("reading the time: %w", err)
	}
	if held, err := s.held(ctx, now); err != nil || held {
		return fault.While(err, "checking the clock")
	}
	removed := logrus.Fields{}
	var errs []error
	for _, part := range []struct {
		name  string
		after time.Duration
		sweep func(ctx context.Context, before time.Time) (int, error)
	}{
		{"states", s.policy.StatesFor, s.sweepStates},
		{"events", s.policy.LogsFor, s.sweepEvents},
		{"configurations", s.policy.LogsFor, s.sweepPrograms},
		{"logs", s.policy.LogsFor, s.sweepLogs},
		{"unstarted_updates", unstartedFor, s.sweepUnstarted},
		{deletedPart, s.policy.DeletedFor, s.deleted.PurgeDeleted},
	} {
		if part.after == 0 && part.name != deletedPart {
			continue
		}
		n, err := part.sweep(ctx, now.Add(-part.after))
		if err != nil {
			errs = append(errs, fmt.Errorf("removing old %s: %w", part.name, err))
		}
		if n > 0 {
			removed[part.name] = n
		}
	}
	if len(removed) > 0 {
		s.log.WithFields(removed).Info("removed old data according to the retention settings")
	}
	return errors.Join(append(errs, s.shrink(ctx))...)
}

// held reports whether no data is removed now, because the clock might be wrong.
func (s *Sweeper) held(ctx context.Context, now time.Time) (bool, error) {
	stored, err := read(ctx, s, (*store.Tx).SweepClock)
	if err != nil {
		return false, err
	}
	next, step := s.clock.check(now, stored)
	if step > 0 {
		s.log.WithField("step", step.Round(time.Second)).Warnf("the clock was set ahead, or no server has run for long; no old data is removed for %v", clockWait)
	}
	return now.Before(next.HeldUntil), s.write(ctx, scope.Free, func(tx *store.Tx) error { return tx.SaveSweepClock(next) })
}

func (s *Sweeper) sweepStates(ctx context.Context, before time.Time) (int, error) {
	removed := 0
	for after := ""; ; {
		stacks, err := read(ctx, s, func(tx *store.Tx) ([]store.StackOwner, error) { return tx.StackOwners(after, page) })
		if err != nil || len(stacks) == 0 {
			return removed, err
		}
		for _, st := range stacks {
			n, err := s.sweepStack(ctx, st, before)
			removed += n
			if err != nil {
				return removed, err
			}
		}
		after = stacks[len(stacks)-1].ID
	}
}

func (s *Sweeper) sweepStack(ctx context.Context, st store.StackOwner, before time.Time) (int, error) {
	old := func(tx *store.Tx, limit int) ([]string, error) {
		return tx.OldStates(st.ID, s.policy.States, before, limit)
	}
	some, err := read(ctx, s, func(tx *store.Tx) ([]string, error) { return old(tx, 1) })
	if err != nil || len(some) == 0 {
		return 0, err
	}
	n, err := s.inSlices(ctx, scope.Stack(st.OrgID, st.ID), func(tx *store.Tx, limit int) (int64, error) {
		ids, err := old(tx, limit)
		for _, id := range ids {
			if err == nil {
				err = tx.ExpireState(id)
			}
		}
		return int64(len(ids)), err
	})
	return int(n), err
}

func (s *Sweeper) sweepEvents(ctx context.Context, before time.Time) (int, error) {
	var from time.Time
	return sweepEach(ctx, s, func(tx *store.Tx) ([]store.OldUpdate, error) { return tx.OldEvents(from, before, page) }, func(u store.OldUpdate) error {
		from = u.FinishedAt
		// An update remains old enough: it cannot start again, and later ones only follow.
		_, err := s.inSlices(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx, limit int) (int64, error) { return tx.ExpireEvents(u.ID, limit) })
		return err
	})
}

// sweepPrograms removes the configurations from long programs of updates, which are history otherwise.
func (s *Sweeper) sweepPrograms(ctx context.Context, before time.Time) (int, error) {
	return sweepEach(ctx, s, func(tx *store.Tx) ([]store.OldUpdate, error) { return tx.OldPrograms(before, page) }, func(u store.OldUpdate) error {
		return s.write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) error {
			program, err := tx.Program(u.ID)
			if err != nil {
				return err
			}
			short, err := stacks.ShortProgram(program)
			if err != nil {
				return err
			}
			return tx.SetProgram(u.ID, short)
		})
	})
}

func (s *Sweeper) sweepLogs(ctx context.Context, before time.Time) (int, error) {
	var from time.Time
	return sweepEach(ctx, s, func(tx *store.Tx) ([]store.OldJob, error) { return tx.OldLogs(from, before, page) }, func(job store.OldJob) error {
		from = job.EndedAt
		if err := retry.Paced(ctx, func() error { return s.db.Blobs().Delete(ctx, joblog.Blobs(job.ID)) }); err != nil {
			return err
		}
		return s.write(ctx, scope.Stack(job.OrgID, job.StackID), func(tx *store.Tx) error { return tx.ExpireLog(job.ID) })
	})
}

// sweepEach calls remove for each of the rows, which list returns page by page, and counts them.
func sweepEach[T any](ctx context.Context, s *Sweeper, list func(tx *store.Tx) ([]T, error), remove func(row T) error) (removed int, err error) {
	for {
		old, err := read(ctx, s, list)
		if err != nil || len(old) == 0 {
			return removed, err
		}
		for _, row := range old {
			if err := remove(row); err != nil {
				return removed, err
			}
			removed++
		}
	}
}

func (s *Sweeper) sweepUnstarted(ctx context.Context, before time.Time) (int, error) {
	n, err := s.inSlices(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) { return tx.DeleteUnstarted(before, limit) })
	return int(n), err
}

func read[T any](ctx context.Context, s *Sweeper, query func(*store.Tx) (T, error)) (v T, err error) {
	err = retry.Paced(ctx, func() error {
		v, err = store.Read(ctx, s.db, query)
		return err
	})
	return v, err
}

func (s *Sweeper) write(ctx context.Context, scopes scope.Set, change func(*store.Tx) error) error {
	return retry.Paced(ctx, func() error { return s.db.Write(ctx, scopes.Remaining(), change) })
}

// A slice is the part of a large change that one transaction makes. Its size depends on the
// duration of transactions, because other writers wait for them.
const (
	minSlice  = 16
	maxSlice  = 256
	sliceTime = 20 * time.Millisecond
)

// inSlices makes a large change in slices, and returns the number of changed rows. It calls change until
// a call changes fewer rows than its limit.
func (s *Sweeper) inSlices(ctx context.Context, scopes scope.Set, change func(tx *store.Tx, limit int) (int64, error)) (changed int64, err error) {
	for limit := minSlice; ; {
		var n int64
		var took time.Duration
		err := retry.Paced(ctx, func() error {
			var began time.Time
			err := s.db.Write(ctx, scopes.Remaining(), func(tx *store.Tx) (err error) {
				began = time.Now()
				n, err = change(tx, limit)
				return err
			})
			took = time.Since(began) // with the commit, which can take longer than the change
			return err
		})
		if err != nil {
			return changed, err
		}
		if changed += n; n < int64(limit) {
			return changed, nil
		}
		if took > sliceTime {
			limit = max(minSlice, limit/2)
		} else if took < sliceTime/4 {
			limit = min(2*limit, maxSlice)
		}
	}
}

// shrink returns the space of removed rows to the file system. On PostgreSQL it does nothing,
// because PostgreSQL reuses the space.
func (s *Sweeper) shrink(ctx context.Context) error {
	if s.db.Shared() {
		return nil
	}
	_, err := s.inSlices(ctx, scope.Free, (*store.Tx).FreePages)
	if err == nil {
		err = retry.Paced(ctx, func() error { return s.db.Checkpoint(ctx) })
	}
	return fault.While(err, "shrinking the database")
}
