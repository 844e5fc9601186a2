package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

const (
	// checkTime bounds the check of a pull request, whose author can make it long, and pullsTime the time after which a
	// poll begins no other one.
	checkTime = time.Minute
	pullsTime = 3 * time.Minute
)

// checkPulls checks the definitions of the open pull requests whose commits were not checked before.
func (s *Service) checkPulls(ctx context.Context, r *repository, src *store.EnvironmentSource) error {
	pulls, ok := r.client.(vcs.Pulls)
	if !ok {
		return nil
	}
	list, cursor, err := pulls.Pulls(ctx, r.repo.RepoID, vcs.Cursor(src.PullCursor))
	if err != nil && !errors.Is(err, vcs.ErrPartial) {
		return fmt.Errorf("listing the pull requests of %s: %w", r.repo.Name, err)
	}
	began := time.Now()
	var failed error
	for _, p := range list {
		if time.Since(began) > pullsTime {
			return failed // the next poll lists the others again
		}
		err := s.checkPull(ctx, r, p)
		if err == nil {
			continue
		}
		err = fmt.Errorf("checking pull request #%d: %w", p.Number, err)
		if _, limited := errors.AsType[*vcs.RateLimited](err); limited || ctx.Err() != nil {
			return err
		}
		failed = cmp.Or(failed, err) // the others do not wait for this one
	}
	if failed == nil {
		src.PullCursor = string(cursor)
	}
	return failed
}

// checkPull checks the definitions of a pull request of any author: only the definitions are evaluated, without secrets,
// without providers, and without what the server has stored.
func (s *Service) checkPull(ctx context.Context, r *repository, p vcs.Pull) error {
	known, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.EnvironmentCheck, error) {
		return tx.EnvironmentCheck(r.org.ID, int64(p.Number))
	})
	if store.IgnoreMissing(err) != nil {
		return err
	}
	switch {
	case p.State != vcs.PullOpen || p.Base != r.src.Branch:
		if known.OrgID == "" {
			return nil
		}
		return s.db.Write(ctx, scope.Organization(r.org.ID), func(tx *store.Tx) error { return tx.DeleteEnvironmentChecks(r.org.ID, int64(p.Number)) })
	case known.CommitID == p.Head:
		return nil
	}
	report := vcs.Report{Commit: p.Head, Pull: p.Number, State: vcs.ReportSucceeded}
	limited, cancel := context.WithTimeout(ctx, checkTime)
	plan, err := s.planOf(limited, r, p.Head, true)
	late := err != nil && limited.Err() != nil && ctx.Err() == nil
	cancel()
	switch {
	case late:
		report.State, report.Summary = vcs.ReportFailed, "the check took longer than "+checkTime.String()
	case errors.Is(err, vcs.ErrNotFound) && !errors.Is(err, vcs.ErrNoFolder):
		report.State, report.Summary = vcs.ReportNeutral, "the repository does not offer this commit, so that it was not checked"
	case final(err):
		report.State, report.Summary = vcs.ReportFailed, err.Error()
	case err != nil:
		return err
	default:
		// Not what would change, because the author may not know what the server has.
		report.Summary = "the definitions have no errors"
		if plan.Failed() {
			report.State, report.Summary = vcs.ReportFailed, plan.Summary()
		}
	}
	id, err := s.report(ctx, r, report)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, scope.Organization(r.org.ID), func(tx *store.Tx) error {
		if _, err := tx.EnvironmentSource(r.org.ID); err != nil {
			return store.IgnoreMissing(err)
		}
		return tx.SaveEnvironmentCheck(store.EnvironmentCheck{OrgID: r.org.ID, Pull: int64(p.Number), CommitID: p.Head, ReportID: id})
	})
}
