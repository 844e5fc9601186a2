package report

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/termtext"
)

const (
	// timeout bounds one report.
	timeout = time.Minute
	// maxPause bounds the time until which a forge can refuse requests.
	maxPause = 2 * time.Hour
	// maxMissing is the number of attempts for a commit or pull request that the forge does not have.
	// Some forges show a new commit late.
	maxMissing = 5
	// maxError is the maximum length of a stored error.
	maxError = 500
)

// send sends the due reports of an integration, one after the other.
func (s *Service) send(ctx context.Context, integrationID string) error {
	last, err := store.Read(ctx, s.db, func(tx *store.Tx) (time.Time, error) { return tx.LastVCSReport(integrationID) })
	if err != nil {
		return fmt.Errorf("reading the time of the last report: %w", err)
	}
	var to *Integration
	for range maxTurn {
		r, now, err := s.next(ctx, integrationID)
		if err != nil {
			return store.IgnoreMissing(err)
		}
		// The pause also separates this server's first report from the last one of another server.
		if wait := min(last.Add(s.opts.Spacing).Sub(now), s.opts.Spacing); wait > 0 {
			if retry.Sleep(ctx, wait) != nil {
				return nil //nolint:nilerr // the end of ctx is not an error: the report stays due
			}
		}
		if to == nil {
			opened, err := s.opts.Connect(ctx, integrationID)
			if errors.Is(err, store.ErrNotFound) {
				return s.drop(ctx, r, "the integration was removed")
			}
			if err != nil {
				return s.fail(ctx, r, err)
			}
			to = &opened
		}
		at, err := s.sendOne(ctx, *to, r)
		if err != nil {
			return err
		}
		if !at.IsZero() {
			last = at
		}
	}
	return nil
}

// next returns the report of an integration that is due first, or [store.ErrNotFound].
func (s *Service) next(ctx context.Context, integrationID string) (r store.VCSReport, now time.Time, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		now = tx.Now()
		r, err = tx.DueVCSReport(integrationID, now)
		return err
	})
	return r, now, fault.While(err, "reading the next report")
}

// sendOne sends the newest state of a report and records the outcome. An attempt that has begun is
// not interrupted, because its outcome would be unknown. at is the time of the forge's answer, or zero
// if the forge was not asked.
func (s *Service) sendOne(ctx context.Context, to Integration, r store.VCSReport) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	charged, done := s.opts.Memory.Begin(ctx)
	defer done()
	// The report is read again with its content, so that it never says less than Wanted.
	m, err := s.compose(charged, to, r.ID)
	if err != nil {
		return at, s.fail(ctx, r, err)
	}
	id, sent, err := m.sendTo(ctx, to.Client)
	if err != nil {
		return at, s.fail(ctx, m.row, err)
	}
	err = s.record(ctx, m.row, func(tx *store.Tx, cur *store.VCSReport) error {
		cur.Sent, cur.Failures, cur.Error = m.row.Wanted, 0, ""
		if !sent {
			return nil
		}
		at = tx.Now()
		cur.RemoteID, cur.SentAt = id, at
		if next := cur.SentAt.Add(s.opts.Rewrite); m.comment != nil && cur.TryAt.Before(next) {
			cur.TryAt = next
		}
		return nil
	})
	return at, err
}

// sendTo sends a message. If the forge does not support it, or if there is nothing to say, sent is
// not set.
func (m message) sendTo(ctx context.Context, client vcs.Repository) (id string, sent bool, err error) {
	switch {
	case m.comment != nil:
		commenter, ok := client.(vcs.Commenter)
		if !ok {
			return "", false, nil
		}
		id, err = commenter.Comment(ctx, m.repo, int(m.row.Pull), *m.comment)
	case m.report != nil:
		reporter, ok := client.(vcs.Reporter)
		if !ok {
			return "", false, nil
		}
		id, err = reporter.Report(ctx, m.repo, *m.report)
	default:
		return "", false, nil
	}
	return id, true, err
}

// record changes a report, unless it was removed.
func (s *Service) record(ctx context.Context, r store.VCSReport, change func(*store.Tx, *store.VCSReport) error) error {
	err := s.db.Write(ctx, scope.Repository(r.OrgID, r.RepoID), func(tx *store.Tx) error {
		cur, err := tx.VCSReport(r.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = change(tx, &cur)
		}
		if err != nil {
			return err
		}
		return tx.SaveVCSReport(cur)
	})
	return fault.While(err, "recording the outcome of a report")
}

// drop records that a report is not sent until it changes again.
func (s *Service) drop(ctx context.Context, r store.VCSReport, why string) error {
	return s.record(ctx, r, func(_ *store.Tx, cur *store.VCSReport) error {
		cur.Sent, cur.Failures, cur.Error = r.Wanted, 0, termtext.OneLine(why, maxError)
		return nil
	})
}

// fail records a failure. It postpones all reports of the integration, unless the forge works and
// only lacks the subject of this one.
func (s *Service) fail(ctx context.Context, r store.VCSReport, cause error) error {
	log := s.log.WithError(cause).WithField("integration", r.IntegrationID).WithField("report", r.ID)
	return s.record(context.WithoutCancel(ctx), r, func(tx *store.Tx, cur *store.VCSReport) error {
		now := tx.Now()
		cur.Failures++
		cur.Error = termtext.OneLine(cause.Error(), maxError)
		pause := s.opts.Again.Pause(int(min(cur.Failures-1, 30)), cause)
		limited, isLimited := errors.AsType[*vcs.RateLimited](cause)
		if isLimited {
			pause = min(max(limited.Until.Sub(now), s.opts.Spacing), maxPause)
		}
		missing := errors.Is(cause, vcs.ErrNotFound)
		cur.TryAt = now.Add(pause)
		if missing && cur.Failures >= maxMissing || now.Sub(cur.WantedAt) > s.opts.GiveUp {
			cur.Sent, cur.Failures = r.Wanted, 0
			log.Warn("reporting to a forge failed; giving up until the state changes")
			return nil
		}
		log.WithField("pause", pause).Info("reporting to a forge failed; retrying")
		if missing {
			return nil
		}
		// Postponing the others waits for nothing, so it follows what can wait.
		if err := tx.SaveVCSReport(*cur); err != nil {
			return err
		}
		return tx.PostponeVCSReports(r.IntegrationID, cur.TryAt)
	})
}
