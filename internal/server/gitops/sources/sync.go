package sources

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/due"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

const (
	// most is the number of organizations whose sources are polled at the same time.
	most = 2
	// interval is the time between checks for due sources. Deliveries are notified.
	interval = 5 * time.Second
	// gather is the time between two polls of a source, because everyone who may open pull requests can cause deliveries.
	gather = 2 * time.Second
	maxDue = 100
	// safety is the interval of the polls of repositories whose deliveries arrive, as they did within trusted.
	safety  = 15 * time.Minute
	trusted = 24 * time.Hour
	// maxTime bounds a poll with a synchronization.
	maxTime = 30 * time.Minute
	// maxProblem bounds the text of a problem in bytes.
	maxProblem = 500
)

// pauses are the pauses after failed polls.
var pauses = retry.Policy{First: 15 * time.Second, Max: 15 * time.Minute}

// Run polls the sources that are due until ctx is canceled.
func (s *Service) Run(ctx context.Context) error {
	return (&due.Loop{
		Log: s.log, Name: "sources of environments", KeyName: "organization_id", Notices: s.db, Topic: Topic, Every: min(interval, s.opts.Interval),
		Gather: min(gather, s.opts.Interval), Most: most, Check: s.due,
	}).Run(ctx)
}

func (s *Service) due(ctx context.Context, _ []string) (work []due.Work, err error) {
	rows, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EnvironmentSource, error) {
		return tx.DueEnvironmentSources(tx.Now(), maxDue)
	})
	for _, src := range rows {
		work = append(work, due.Work{Key: src.OrgID, Do: func(ctx context.Context) error { return s.poll(ctx, src.OrgID) }})
	}
	return work, err
}

// poll synchronizes a source if it is due, and sets the time of the next poll.
func (s *Service) poll(ctx context.Context, orgID string) error {
	var src store.EnvironmentSource
	due := false
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		src, err = tx.EnvironmentSource(orgID)
		due = err == nil && !src.DueAt.After(tx.Now())
		return err
	})
	if err != nil || !due {
		return store.IgnoreMissing(err)
	}
	working, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	working, done := s.opts.Memory.Begin(working)
	defer done()
	after, failed := s.synchronize(working, src)
	if ctx.Err() != nil {
		return nil // the server stops, and the source stays due
	}
	if failed == nil && sameState(src, after) {
		return s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
			if err := s.opts.Integrations.Note(tx, src.IntegrationID, nil); err != nil {
				return store.IgnoreMissing(err)
			}
			return tx.PostponeEnvironmentSource(src, tx.Now().Add(retry.Spread(s.intervalOf(src, tx.Now()))))
		})
	}
	return s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error { return s.record(tx, src, after, failed) })
}

func sameState(a, b store.EnvironmentSource) bool {
	return a.RemoteID == b.RemoteID && a.Tried == b.Tried && a.Applied == b.Applied && a.Problem == b.Problem && a.PullCursor == b.PullCursor &&
		a.Failures == b.Failures && a.HookedAt.Equal(b.HookedAt)
}

// record stores the state of a source after a poll, unless its settings have changed since.
func (s *Service) record(tx *store.Tx, before, after store.EnvironmentSource, failed error) error {
	now, err := tx.EnvironmentSource(before.OrgID)
	if err != nil || !now.ModifiedAt.Equal(before.ModifiedAt) {
		return store.IgnoreMissing(err)
	}
	if now.Tried != before.Tried { // a synchronization was requested meanwhile
		after.Tried = now.Tried
	}
	after.HookAt = now.HookAt
	after.DueAt = tx.Now().Add(retry.Spread(s.intervalOf(now, tx.Now())))
	if failed != nil {
		after.DueAt = tx.Now().Add(pauses.Pause(int(min(before.Failures, 30)), nil))
		if limited, ok := errors.AsType[*vcs.RateLimited](failed); ok && limited.Until.After(after.DueAt) {
			after.DueAt = limited.Until
		}
		after.Failures, after.Problem = before.Failures+1, termtext.OneLine(failed.Error(), maxProblem)
		s.log.WithError(failed).WithFields(logrus.Fields{"organization_id": before.OrgID, "repository": before.Repository}).Warn("synchronizing environments with a repository failed; it is tried again")
	} else {
		after.Failures = 0
	}
	if now.DueAt.After(before.DueAt) || after.Tried == "" && failed == nil { // a delivery came meanwhile
		after.DueAt = tx.Now()
	}
	if err := s.opts.Integrations.Note(tx, before.IntegrationID, failed); err != nil {
		return store.IgnoreMissing(err)
	}
	return tx.SaveEnvironmentSource(after)
}

func (s *Service) intervalOf(src store.EnvironmentSource, now time.Time) time.Duration {
	if now.Sub(src.HookAt) < trusted {
		return max(safety, s.opts.Interval)
	}
	return s.opts.Interval
}

// synchronize applies the newest commit of a source if it was not read before, and checks the pull requests. It returns the
// state after it. An error means that another attempt can succeed.
func (s *Service) synchronize(ctx context.Context, src store.EnvironmentSource) (store.EnvironmentSource, error) {
	r, err := s.open(ctx, src)
	if err != nil {
		return src, err
	}
	src.RemoteID = r.repo.ID
	s.ensureHook(ctx, r, &src)
	head, err := r.head(ctx)
	if err != nil {
		return src, err
	}
	switch failed := src.Failures > 0; {
	case head != src.Tried, failed && src.Applied != head: // a failed poll has replaced the problem of the commit
		if err := s.apply(ctx, r, &src, head); err != nil {
			return src, err
		}
	case failed:
		src.Problem = ""
	}
	src.Failures = 0
	if !src.Checks {
		return src, nil
	}
	err = s.checkPulls(ctx, r, &src)
	return src, err
}

// errOutdated ends a synchronization whose source was set again or removed.
var errOutdated = errors.New("the source of environments was changed during the synchronization")

// apply makes the environments equal to those of a commit. The problems of definitions are the source's problem until there is
// another commit.
func (s *Service) apply(ctx context.Context, r *repository, src *store.EnvironmentSource, commit string) error {
	plan, err := s.planOf(ctx, r, commit, false)
	if final(err) {
		return s.conclude(ctx, r, src, commit, vcs.ReportFailed, err.Error())
	}
	if err != nil {
		return err
	}
	if plan.Failed() {
		// The status of a commit can be public, and an error can show a part of what the server has stored.
		if err := s.conclude(ctx, r, src, commit, vcs.ReportFailed, plan.Wrong()+": the definition cannot be applied; the server says why"); err != nil {
			return err
		}
		src.Problem = termtext.OneLine(plan.Summary(), maxProblem)
		return nil
	}
	p := r.principal(commit)
	ctx = audit.By(ctx, audit.WayForge, audit.Actor{Kind: audit.ActorForge, Name: p.Name() + " (" + r.integration.Name + ")"})
	came, err := s.origins(ctx, r.org.ID)
	if err != nil {
		return err
	}
	err = s.opts.Sources.Apply(ctx, p, r.org, plan, func(e store.Environment, step source.Step) error {
		o := store.EnvironmentOrigin{EnvironmentID: e.ID, Path: step.Path, CommitID: commit}
		if known := came[e.ID]; step.Action == source.Keep && known.Path == step.Path {
			return nil
		}
		return s.db.Write(ctx, scope.Organization(r.org.ID), func(tx *store.Tx) error {
			now, err := tx.EnvironmentSource(r.org.ID)
			if store.IgnoreMissing(err) != nil {
				return err
			}
			if !now.ModifiedAt.Equal(src.ModifiedAt) {
				return errOutdated
			}
			if _, err := tx.Environment(e.ID); err != nil {
				return store.IgnoreMissing(err)
			}
			return tx.SaveEnvironmentOrigin(o)
		})
	})
	if err != nil {
		return err
	}
	now, err := s.db.Now(ctx)
	if err != nil {
		return err
	}
	src.Applied, src.AppliedAt = commit, now
	s.log.WithFields(logrus.Fields{
		"organization": r.org.Name, "repository": r.repo.Name, "commit": commit,
		"created": plan.Count(source.Create), "changed": plan.Count(source.Change), "deleted": plan.Count(source.Delete),
	}).Info("environments were synchronized with a repository")
	return s.conclude(ctx, r, src, commit, vcs.ReportSucceeded, plan.Summary())
}

// final reports whether an error is about a commit, so that another attempt would fail too.
func final(err error) bool {
	switch fault.KindOf(err) {
	case fault.KindInvalid, fault.KindTooLarge:
		return true
	}
	return errors.Is(err, vcs.ErrNoFolder)
}

// conclude reports the outcome of a commit to the forge, and records that the commit was read.
func (s *Service) conclude(ctx context.Context, r *repository, src *store.EnvironmentSource, commit string, state vcs.ReportState, summary string) error {
	if _, err := s.report(ctx, r, vcs.Report{Commit: commit, State: state, Summary: summary}); err != nil {
		return err
	}
	src.Tried, src.Problem = commit, ""
	if state == vcs.ReportFailed {
		src.Problem = termtext.OneLine(summary, maxProblem)
	}
	return nil
}

// contextOf is the name of the report on a commit. Several organizations can use one repository.
func contextOf(org store.Organization) string { return org.Name + " environments" }

// report shows the outcome of a commit in the forge. A forge that refuses it permanently is no reason to try again.
func (s *Service) report(ctx context.Context, r *repository, report vcs.Report) (id string, err error) {
	reporter, ok := r.client.(vcs.Reporter)
	if !ok {
		return "", nil
	}
	report.Context, report.Summary, report.URL = contextOf(r.org), termtext.OneLine(report.Summary, maxProblem), string(s.opts.Console)
	id, err = reporter.Report(ctx, r.repo.RepoID, report)
	if errors.Is(err, vcs.ErrRefused) || errors.Is(err, vcs.ErrRejected) || errors.Is(err, vcs.ErrNotFound) {
		s.log.WithError(err).WithFields(logrus.Fields{"organization": r.org.Name, "repository": r.repo.Name, "commit": report.Commit}).Warn("the forge does not accept the status of a commit")
		return "", nil
	}
	return id, fault.While(err, "reporting on a commit")
}

// ensureHook registers the server's webhook, or repairs it after the integration changed. Polls replace one that cannot be
// registered.
func (s *Service) ensureHook(ctx context.Context, r *repository, src *store.EnvironmentSource) {
	i := r.integration
	set, err := integrations.SettingsOf(i)
	if err != nil || set.Events == integrations.EventsPoll || i.AppID != "" || !src.HookedAt.Before(i.ModifiedAt) {
		return
	}
	hooker, ok := r.client.(vcs.Hooker)
	if !ok {
		return
	}
	secrets, err := s.opts.Integrations.HookSecrets(ctx, i, i.ModifiedAt)
	if err != nil || len(secrets) == 0 {
		return
	}
	if err := hooker.EnsureHook(ctx, r.repo.RepoID, vcs.Hook{URL: s.opts.Integrations.HookURL(i), Secret: string(secrets[0])}); err != nil {
		s.log.WithError(err).WithFields(logrus.Fields{"integration_id": i.ID, "repository": r.repo.Name}).Warn("registering the webhook failed; the repository is polled")
	}
	src.HookedAt = i.ModifiedAt
}

// Heard makes the poll of a source due if an event is about its repository. It reports whether it is.
func (s *Service) Heard(tx *store.Tx, i store.VCSIntegration, e vcs.Event) (bool, error) {
	rows, err := tx.EnvironmentSources(i.ID)
	if err != nil {
		return false, err
	}
	for _, src := range rows {
		if !isAbout(i, src, e.Repo) || e.Kind == vcs.KindPush && e.Ref != vcs.BranchPrefix+src.Branch || e.Kind == vcs.KindTag {
			continue
		}
		tx.Notify(Topic, src.OrgID)
		return true, tx.HeardOfEnvironmentSource(src.OrgID, tx.Now())
	}
	return false, nil
}

// isAbout reports whether a delivery names the repository of a source. It can be wrong: the poll asks the forge.
func isAbout(i store.VCSIntegration, src store.EnvironmentSource, id vcs.RepoID) bool {
	if vcs.ForgeKey(i.Provider, i.Flavor) != vcs.FlavorGit {
		return src.RemoteID != "" && src.RemoteID == id.ID || integrations.NameKey(i.Provider, src.Repository) == integrations.NameKey(i.Provider, id.Name)
	}
	given, err := workflow.ParseRepository(id.ID)
	if err != nil {
		return false
	}
	address, err := integrations.CloneURL(i, src.Repository)
	if err != nil {
		return false
	}
	known, err := workflow.ParseRepository(address)
	return err == nil && known.Same(given)
}
