package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Plan says which backups a server writes by itself.
type Plan struct {
	Request
	// Next returns the first time after another at which a backup is due. It is nil without a schedule.
	Next func(after time.Time) (time.Time, error)
}

// startDelay is the time that a server has run before it writes a backup that was due earlier. Only tests lower it.
var startDelay = time.Minute

const (
	// clockEvery is the interval at which the clock is read, which can be set while the server waits.
	clockEvery = time.Minute
	// writeTime bounds a backup of the schedule.
	writeTime = 12 * time.Hour
	// recordTime bounds the record of a failure.
	recordTime = 30 * time.Second
)

// again is the pause after a failed backup.
var again = retry.Policy{First: 2 * time.Minute, Max: time.Hour}

var errTooLong = fmt.Errorf("it took longer than %s", writeTime)

// Run writes backups when the schedule of the plan says so, until ctx is canceled. A backup that was due while no
// server ran is written about a minute after the start, and so is the first one.
func (s *Service) Run(ctx context.Context) error {
	status, err := s.Status(ctx)
	if err != nil {
		return err
	}
	if err := retry.Sleep(ctx, retry.Spread(startDelay)); err != nil {
		return err
	}
	for begun := status.Begun; ; {
		if err := s.awaitDue(ctx, begun); err != nil {
			return err
		}
		if begun, err = s.writeDue(ctx); err != nil {
			return err
		}
	}
}

// awaitDue waits until a backup is due after the one that has begun at a time, or that does not exist.
func (s *Service) awaitDue(ctx context.Context, begun time.Time) error {
	if begun.IsZero() {
		return nil
	}
	if now := time.Now(); begun.After(now) { // the clock was wrong
		begun = now
	}
	due, err := s.plan.Next(begun)
	if err != nil {
		return err
	}
	for {
		left := time.Until(due)
		if left <= 0 {
			return nil
		}
		if err := retry.Sleep(ctx, min(left, clockEvery)); err != nil {
			return err
		}
	}
}

// writeDue writes a backup, however often that fails. It returns when the backup began.
func (s *Service) writeDue(ctx context.Context) (begun time.Time, err error) {
	for failures := 0; ; failures++ {
		begun = time.Now()
		err := s.writePlanned(ctx, begun)
		if err == nil {
			return begun, nil
		}
		if ctx.Err() != nil {
			return begun, context.Cause(ctx)
		}
		pause := again.Pause(failures, nil)
		s.src.Log.WithError(err).WithField("again_in", pause.Round(time.Second).String()).Error("backing up the installation failed; retrying")
		if err := retry.Sleep(ctx, pause); err != nil {
			return begun, err
		}
	}
}

func (s *Service) writePlanned(ctx context.Context, begun time.Time) error {
	writing, cancel := context.WithTimeoutCause(ctx, writeTime, errTooLong)
	defer cancel()
	r, err := s.Write(writing, s.plan.Request)
	if err == nil {
		err = errors.Join(r.Unrecorded, s.src.DB.Write(ctx, scope.Server(), func(tx *store.Tx) error {
			return change(tx, func(status *Status) {
				status.Begun, status.Unsealed = begun.UTC(), ""
				if r.Manifest.Key == nil {
					status.Unsealed = r.Path
				}
			})
		}))
		if err != nil {
			s.src.Log.WithError(err).Warn("the backup was written, but that is not recorded, so a restarted server writes another one")
		}
		if r.Unremoved != nil {
			s.src.Log.WithError(r.Unremoved).Warn("old backups were not removed")
		}
		return nil
	}
	if ctx.Err() != nil || fault.KindOf(err) == fault.KindConflict { // another backup is being written
		return err
	}
	if writing.Err() != nil {
		err = context.Cause(writing)
	}
	recording, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	if unrecorded := s.recordFailure(recording, err); unrecorded != nil {
		err = errors.Join(err, fmt.Errorf("recording the failure: %w", unrecorded))
	}
	return err
}

// BeforeUpdate backs up an installation whose schema is an earlier one, and is about to be updated.
func BeforeUpdate(ctx context.Context, src Source, q Request) error {
	ctx, cancel := context.WithTimeoutCause(ctx, writeTime, errTooLong)
	defer cancel()
	r, err := Write(ctx, src, q, func(Progress) {})
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		kind := fault.KindOf(err)
		if kind == fault.KindUnavailable || store.IsFull(err) {
			kind = fault.KindInvalid // another attempt would fail, too
		}
		return fault.Wrap(kind, err, "the schema was not updated, because the backup before that failed: %v; solve this, let backup_directory name another disk, or back up with the earlier version and set backup_before_upgrade to false", err)
	}
	src.Log.WithField("path", r.Path).Info("wrote a backup before the update of the schema")
	if r.Unremoved != nil {
		src.Log.WithError(r.Unremoved).Warn("old backups were not removed")
	}
	err = src.DB.Write(ctx, scope.Server(), func(tx *store.Tx) error { // the audit log can have another schema
		return change(tx, func(status *Status) { status.Last = written(r) })
	})
	if err != nil {
		src.Log.WithError(err).Warn("the backup was written, but that is not recorded")
	}
	return nil
}
