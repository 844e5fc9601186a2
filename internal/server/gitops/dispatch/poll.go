package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/due"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/termtext"
)

const (
	// maxPolls is the number of repositories that are polled at the same time, pollsPerOrg the number
	// of those of one organization, and perForge of one integration.
	maxPolls, pollsPerOrg, perForge = 16, 12, 4
	// safety is the interval of the polls of repositories whose deliveries arrive.
	safety = 15 * time.Minute
	// trusted is the time after a delivery for which deliveries are expected to arrive.
	trusted = 24 * time.Hour
	// never is the interval of the polls of repositories that cannot be polled.
	never = 24 * time.Hour
	// pollTime bounds a poll.
	pollTime = time.Minute
)

// pollPauses are the pauses after failed polls.
var pollPauses = retry.Policy{First: time.Minute, Max: 15 * time.Minute}

// Poll finds the repositories of new watches and polls repositories until ctx is canceled. It must
// run on only one of the servers that share a database.
func (s *Service) Poll(ctx context.Context) error {
	// Deliveries can have been lost while no server ran.
	err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.PollReposNow("", tx.Now()) })
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("making the polls of all repositories due: %w", err)
	}
	return s.polling().Run(ctx)
}

func (s *Service) polling() *due.Loop {
	p := &polls{s: s, apps: map[string]time.Time{}}
	return &due.Loop{
		Log: s.log, Name: "polls of forges", KeyName: "polled", Notices: s.db, Topic: integrations.Topic,
		Every: min(interval, s.opts.Interval), Most: maxPolls, PerOwner: []int{pollsPerOrg, perForge}, Check: p.due,
	}
}

// polls finds due polls.
type polls struct {
	s *Service

	mu   sync.Mutex
	apps map[string]time.Time // when the apps of integrations are due

	// Only due uses these.
	appsAt time.Time // when the next page of integrations with apps is read
	after  string    // the last integration of the previous page; "" after the last page
}

func (p *polls) due(ctx context.Context, _ []string) (work []due.Work, err error) {
	var repos []store.VCSRepo
	var find []store.VCSWatch
	var apps []store.VCSIntegration
	now := time.Now()
	readApps := !now.Before(p.appsAt)
	err = p.s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if repos, err = tx.ReposToPoll(tx.Now(), maxDue); err != nil {
			return err
		}
		if find, err = tx.WatchesToFind(tx.Now(), maxDue); err != nil {
			return err
		}
		if readApps {
			apps, err = tx.AppIntegrations(p.after, maxDue)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if readApps {
		p.after, p.appsAt = "", now.Add(min(interval, p.s.opts.Interval))
		if len(apps) == maxDue {
			p.after, p.appsAt = apps[len(apps)-1].ID, now
		}
		work = p.dueApps(apps, now)
	}
	for _, w := range find {
		work = append(work, poll(w.OrgID, w.IntegrationID, w.StackID, func(ctx context.Context) error { return p.s.find(ctx, w) }))
	}
	for _, r := range repos {
		work = append(work, poll(r.OrgID, r.IntegrationID, r.ID, func(ctx context.Context) error { return p.s.poll(ctx, r) }))
	}
	return work, nil
}

// poll is work about something of an integration.
func poll(orgID, integrationID, id string, do func(ctx context.Context) error) due.Work {
	return due.Work{Key: id, Owners: []string{orgID, integrationID}, Do: func(ctx context.Context) error {
		return fault.While(do(ctx), "recording a poll of the integration %s", integrationID)
	}}
}

// find finds the repository of a watch, if that is still due; see [Service.poll].
func (s *Service) find(ctx context.Context, w store.VCSWatch) error {
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	var i store.VCSIntegration
	due := false
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if w, err = tx.Watch(w.StackID); err != nil {
			return err
		}
		if due = w.RepoID == "" && !w.FindAt.After(tx.Now()); !due {
			return nil
		}
		i, err = tx.Integration(w.IntegrationID)
		return err
	})
	if err != nil || !due {
		return store.IgnoreMissing(err)
	}
	var found vcs.Repo
	client, err := s.opts.Integrations.Client(ctx, i)
	if err == nil {
		found, err = client.Find(ctx, integrations.NameKey(i.Provider, w.Name))
	}
	owner := scope.Organization(w.OrgID) // other stacks can find the same repository
	if err != nil {
		owner = scope.Stack(w.OrgID, w.StackID)
	}
	return s.db.Write(context.WithoutCancel(ctx), owner, func(tx *store.Tx) error {
		if noted := s.opts.Integrations.Note(tx, i.ID, err); noted != nil {
			return store.IgnoreMissing(noted)
		}
		cur, readErr := tx.Watch(w.StackID)
		if readErr != nil || cur.RepoID != "" || cur.IntegrationID != w.IntegrationID || cur.Name != w.Name {
			return store.IgnoreMissing(readErr)
		}
		if err != nil {
			cur.FindAt, cur.Problem = tx.Now().Add(pauseAfter(tx, cur.Failures, err)), termtext.OneLine(err.Error(), maxDetail)
			cur.Failures++
			return tx.SaveWatch(cur)
		}
		r, err := integrations.Repo(tx, i, found)
		if err != nil {
			return err
		}
		cur.RepoID, cur.Failures, cur.Problem = r.ID, 0, ""
		return errors.Join(tx.SchedulePoll(r, tx.Now()), tx.SaveWatch(cur))
	})
}

func pauseAfter(tx *store.Tx, failures int64, err error) time.Duration {
	pause := pollPauses.Pause(int(min(failures, 30)), nil)
	if limited, ok := errors.AsType[*vcs.RateLimited](err); ok {
		pause = max(pause, limited.Until.Sub(tx.Now()))
	}
	return pause
}

// poll polls a repository, if its poll is still due: another one can have ended since it was read.
func (s *Service) poll(running context.Context, r store.VCSRepo) error {
	ctx, cancel := context.WithTimeout(running, pollTime)
	defer cancel()
	var i store.VCSIntegration
	var all []vcs.Watch
	var before []store.VCSRef
	due := false
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if r, err = tx.Repo(r.ID); err != nil {
			return err
		}
		if due = !r.PollAt.After(tx.Now()); !due {
			return nil
		}
		if i, err = tx.Integration(r.IntegrationID); err != nil {
			return err
		}
		if before, err = tx.Refs(r.ID); err != nil {
			return err
		}
		all, err = watches(tx, r)
		return err
	})
	if err != nil || !due {
		return store.IgnoreMissing(err)
	}
	set, err := integrations.SettingsOf(i)
	if err != nil {
		return err
	}
	var f found
	ask := integrations.CanAsk(i)
	if ask {
		f, err = s.ask(ctx, i, r, all, before)
	}
	hooked := err == nil && s.ensureHook(ctx, i, r, set)
	var p plan
	if ask && err == nil {
		// The time for the forge's answer does not bound this: the next poll would not end sooner.
		var recordErr error
		if p, recordErr = s.record(running, i, r, f, before); recordErr != nil {
			return store.IgnoreMissing(recordErr)
		}
	}
	return s.db.Write(context.WithoutCancel(ctx), scope.Repository(r.OrgID, r.ID), func(tx *store.Tx) error {
		cur, readErr := tx.Repo(r.ID)
		if readErr != nil {
			return store.IgnoreMissing(readErr)
		}
		if !ask {
			return tx.SchedulePoll(r, tx.Now().Add(never))
		}
		if noted := s.opts.Integrations.Note(tx, i.ID, err); noted != nil {
			return store.IgnoreMissing(noted)
		}
		if err != nil {
			at := tx.Now().Add(pauseAfter(tx, cur.Failures, err))
			cur.Problem = termtext.OneLine(err.Error(), maxDetail)
			cur.Failures++
			return errors.Join(tx.SchedulePoll(r, at), tx.SaveRepo(cur))
		}
		if f.repo.Name != "" && f.repo.Name != cur.Name {
			if cur, err = integrations.Rename(tx, i, cur, f.repo); err != nil {
				return err
			}
		}
		if err := s.compare(tx, i, &cur, f, p); err != nil {
			return err
		}
		if hooked {
			cur.HookedAt = i.ModifiedAt
		}
		cur.PolledAt, cur.Failures, cur.Problem = tx.Now(), 0, ""
		return errors.Join(tx.SchedulePoll(r, tx.Now().Add(retry.Spread(s.pollInterval(cur, set, tx.Now())))), tx.SaveRepo(cur))
	})
}

// ensureHook registers the server's webhook, or repairs it after the integration changed. It returns
// whether it tried to. Polls replace a webhook that cannot be registered, for example because the
// integration's token lacks the right.
func (s *Service) ensureHook(ctx context.Context, i store.VCSIntegration, r store.VCSRepo, set integrations.Settings) bool {
	if set.Events == integrations.EventsPoll || i.AppID != "" || !r.HookedAt.Before(i.ModifiedAt) {
		return false
	}
	client, err := s.opts.Integrations.Client(ctx, i)
	hooker, ok := client.(vcs.Hooker)
	if err != nil || !ok {
		return false
	}
	secrets, err := s.opts.Integrations.HookSecrets(ctx, i, i.ModifiedAt)
	if err != nil || len(secrets) == 0 {
		return false
	}
	err = hooker.EnsureHook(ctx, repoID(r), vcs.Hook{URL: s.opts.Integrations.HookURL(i), Secret: string(secrets[0])})
	if err != nil {
		s.log.WithError(err).WithFields(logrus.Fields{"integration_id": i.ID, "repository": r.Name}).Warn("registering the webhook failed; the repository is polled")
	}
	return true
}

func (s *Service) pollInterval(r store.VCSRepo, set integrations.Settings, now time.Time) time.Duration {
	switch {
	case set.Events == integrations.EventsWebhook, set.Events != integrations.EventsPoll && now.Sub(r.HookAt) < trusted:
		return max(safety, s.opts.Interval)
	default:
		return s.opts.Interval
	}
}
