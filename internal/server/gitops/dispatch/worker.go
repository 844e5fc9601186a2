package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/guard"
	"workflowagent/internal/retry"
	"workflowagent/internal/server/due"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/termtext"
)

const (
	// maxWorkers is the number of repositories whose events are processed at the same time, and perOrg
	// of those of one organization, whose forge can be slow.
	maxWorkers, perOrg = 16, 8
	// interval is the time between checks for due events. New events are notified.
	interval = 5 * time.Second
	// maxDue is the number of due events that are read at once.
	maxDue = 500
	// maxTime bounds the processing of an event, which can make several requests.
	maxTime = 2 * time.Minute
	// maxMissing is the number of attempts to process an event about something that the forge does not
	// have, or about which it rejects the server's request. They take about an hour, because some forges show new objects late. If the forge shows it
	// even later, a poll finds it.
	maxMissing = 11
	// maxPanics is the number of attempts to process an event that fails for an internal reason.
	maxPanics = 5
	// keep is the time for which processed events are shown.
	keep = 30 * 24 * time.Hour
	// keepHints is the number of events of an integration about pull requests, and about repositories
	// that no stack watches, that are shown. Others than those who may push can cause them.
	keepHints = 10_000
	// maxRef bounds the names of refs. Longer ones are ignored.
	maxRef = 1000
	// maxDetail bounds the detail of events and decisions.
	maxDetail = 500
)

// pauses is the policy of attempts while a forge cannot be reached.
var pauses = retry.Policy{First: 5 * time.Second, Max: time.Hour}

// errChanged means that the database changed while the forge was asked.
var errChanged = errors.New("the event's data changed")

// Run processes events until ctx is canceled. It must run on only one of the servers that share a
// database; if it runs on two for a moment, their transactions exclude each other.
func (s *Service) Run(ctx context.Context) error {
	return (&due.Loop{
		Log: s.log, Name: "events of forges", KeyName: "repository", Notices: s.db, Topic: Topic, Every: interval,
		Most: maxWorkers, PerOwner: []int{perOrg}, Check: s.due,
	}).Run(ctx)
}

// due returns the due events, those of a repository one after the other.
func (s *Service) due(ctx context.Context, _ []string) (work []due.Work, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		ids, err := tx.DueVCSEvents(tx.Now(), maxDue)
		for _, id := range ids {
			e, err := tx.VCSEvent(id)
			if err != nil {
				return err
			}
			work = append(work, due.Work{
				Key: e.IntegrationID + "/" + e.RepoID, Owners: []string{e.OrgID}, Do: func(ctx context.Context) error { return s.process(ctx, id) },
			})
		}
		return err
	})
	return work, err
}

// process processes an event. It returns [due.ErrSkip] unless the next event of the repository may follow at
// once.
func (s *Service) process(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	var err error
	for range 3 {
		if err = guard.Run(func() error { return s.step(ctx, id) }); !errors.Is(err, errChanged) {
			break
		}
	}
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return due.ErrSkip // the server stops, and the event stays due
	}
	if postponed := s.postpone(context.WithoutCancel(ctx), id, err); postponed != nil {
		return fmt.Errorf("postponing the event %s of a forge: %w", id, postponed)
	}
	return due.ErrSkip
}

// unanswered is an error of a forge. The event waits if another attempt can succeed.
type unanswered struct{ err error }

func (e unanswered) Error() string { return e.err.Error() }
func (e unanswered) Unwrap() error { return e.err }

// document is the content of [store.VCSEvent.Document] until the event is done.
type document struct {
	vcs.Event
	Failed failures `json:",omitzero"`
}

// failures counts the failed attempts to process an event by their cause. Each cause has its own limit,
// so that an event that waited long for its forge does not end with the first failure of another kind.
type failures struct{ Missing, Doubts, Internal int }

// postpone sets the time of the next attempt to process an event.
func (s *Service) postpone(ctx context.Context, id string, cause error) error {
	waiting, forge := errors.AsType[unanswered](cause)
	return s.change(ctx, id, func(tx *store.Tx, e store.VCSEvent) error {
		log := s.log.WithError(cause).WithFields(logrus.Fields{"event_id": id, "integration_id": e.IntegrationID})
		e.TryAt = tx.Now().Add(pauses.Pause(int(min(e.Tries, 30)), nil))
		e.Tries++
		e.Reason, e.Detail = string(vcs.ReasonFailed), ""
		var doc document
		unreadable := json.Unmarshal([]byte(e.Document), &doc) != nil
		if forge {
			reason, final := vcs.ReasonOf(cause)
			if errors.Is(cause, errUnconfirmed) {
				reason = vcs.ReasonUnconfirmed
			}
			e.Reason, e.Detail = string(reason), termtext.OneLine(waiting.Error(), maxDetail)
			if limited, ok := errors.AsType[*vcs.RateLimited](cause); ok && limited.Until.After(e.TryAt) {
				e.TryAt = limited.Until
			}
			if err := s.opts.Integrations.Note(tx, e.IntegrationID, cause); err != nil {
				return err
			}
			if _, ok := errors.AsType[doubted](cause); ok {
				doc.Failed.Doubts++
			}
			if reason == vcs.ReasonMissing || reason == vcs.ReasonRejected {
				doc.Failed.Missing++
			}
			e.Done = final || doc.Failed.Missing >= maxMissing
			log.WithField("reason", e.Reason).Warn("asking a forge about an event failed")
		} else {
			doc.Failed.Internal++
			e.Done = unreadable || doc.Failed.Internal >= maxPanics
			log.Error("processing an event of a forge failed; it is tried again")
		}
		if e.Done {
			e.DoneAt, e.Document = tx.Now(), "{}"
		} else {
			text, err := json.Marshal(doc)
			if err != nil {
				return fmt.Errorf("encoding an event: %w", err)
			}
			e.Document = string(text)
		}
		tx.Notify(Processed, e.IntegrationID)
		return tx.SaveVCSEvent(e)
	})
}

// loadedEvent is what the database knows about an event.
type loadedEvent struct {
	row         store.VCSEvent
	event       vcs.Event
	failed      failures
	integration store.VCSIntegration
	settings    integrations.Settings
	repo        store.VCSRepo
	watches     []vcs.Watch
	client      vcs.Repository
}

func (s *Service) read(ctx context.Context, id string) (*loadedEvent, error) {
	v := &loadedEvent{}
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if v.row, err = tx.VCSEvent(id); err != nil || v.row.Done {
			return err
		}
		if v.integration, err = tx.Integration(v.row.IntegrationID); err != nil || v.row.RepoID == "" {
			return err
		}
		if v.repo, err = tx.Repo(v.row.RepoID); err != nil {
			return err
		}
		v.watches, err = watches(tx, v.repo)
		return err
	})
	if err != nil || v.row.Done {
		return v, err
	}
	var doc document
	if err := json.Unmarshal([]byte(v.row.Document), &doc); err != nil {
		return v, fmt.Errorf("parsing an event: %w", err)
	}
	v.event, v.failed = doc.Event, doc.Failed
	if v.settings, err = integrations.SettingsOf(v.integration); err != nil {
		return v, err
	}
	v.client, err = s.opts.Integrations.Client(ctx, v.integration)
	return v, err
}

func watches(tx *store.Tx, r store.VCSRepo) ([]vcs.Watch, error) {
	rows, err := tx.WatchesOfRepo(r.ID)
	var out []vcs.Watch
	for _, w := range rows {
		out = append(out, watchOf(w, r))
	}
	return out, err
}

// step makes one attempt to process an event.
func (s *Service) step(ctx context.Context, id string) error {
	v, err := s.read(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return s.finish(ctx, id, vcs.ReasonUnwatched, "") // of the repository, which no stack watches any more
	}
	if err != nil || v.row.Done {
		return err
	}
	if err := s.follow(ctx, v); err != nil {
		return err
	}
	switch v.event.Kind {
	case vcs.KindPush, vcs.KindTag:
		return s.processRef(ctx, v)
	case vcs.KindPull, vcs.KindRerun:
		return s.processPull(ctx, v)
	case vcs.KindMergeGroup:
		return s.concludeMergeGroup(ctx, v)
	case vcs.KindAccess:
		return s.checkAccess(ctx, v)
	}
	return s.finish(ctx, id, vcs.ReasonUnsupported, string(v.event.Kind))
}

// follow gives a repository the name in an event about it, if the forge says that the repository has
// this name now. The event can be late or forged, and the stacks are deployed from the repository with
// the name.
func (s *Service) follow(ctx context.Context, v *loadedEvent) error {
	name := v.event.Repo.Name
	key := func(name string) string { return integrations.NameKey(v.integration.Provider, name) }
	if v.repo.ID == "" || name == "" || key(name) == key(v.repo.Name) || vcs.ForgeKey(v.integration.Provider, v.integration.Flavor) == vcs.FlavorGit {
		return nil
	}
	now, err := v.client.Find(ctx, name)
	if reason, _ := vcs.ReasonOf(err); err == nil && now.ID != v.repo.RemoteID || err != nil && reason != vcs.ReasonWaiting && reason != vcs.ReasonLimited {
		return nil // the id counts more than the name, which can come from an address
	}
	if err != nil {
		return unanswered{fmt.Errorf("finding the repository %s: %w", name, err)}
	}
	return s.db.Write(ctx, ownerOf(v.row), func(tx *store.Tx) error {
		if v.repo, err = tx.Repo(v.repo.ID); err != nil {
			return err
		}
		if v.repo, err = integrations.Rename(tx, v.integration, v.repo, now); err != nil {
			return err
		}
		v.watches, err = watches(tx, v.repo)
		return err
	})
}

// finish ends an event without decisions.
func (s *Service) finish(ctx context.Context, id string, reason vcs.Reason, detail string) error {
	return s.change(ctx, id, func(tx *store.Tx, e store.VCSEvent) error { return finishEvent(tx, e, reason, detail) })
}

// change changes an event that is not done, if it still exists.
func (s *Service) change(ctx context.Context, id string, change func(*store.Tx, store.VCSEvent) error) error {
	row, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.VCSEvent, error) { return tx.VCSEvent(id) })
	if err != nil {
		return store.IgnoreMissing(err)
	}
	return s.db.Write(ctx, ownerOf(row), func(tx *store.Tx) error {
		e, err := tx.VCSEvent(id)
		if err != nil || e.Done {
			return store.IgnoreMissing(err)
		}
		return change(tx, e)
	})
}

// ownerOf returns the owner of an event: its repository, or the organization if no stack watches the
// repository.
func ownerOf(e store.VCSEvent) scope.Set {
	if e.RepoID == "" {
		return scope.Organization(e.OrgID)
	}
	return scope.Repository(e.OrgID, e.RepoID)
}

// held returns the owners of an event and of the stacks that watch its repository.
func (v *loadedEvent) held() scope.Set {
	owners := ownerOf(v.row)
	for _, w := range v.watches {
		owners = owners.And(scope.Stack(w.OrgID, w.StackID))
	}
	return owners
}

// watchesHeld returns the watches of the event's repository in a transaction that holds v.held, or
// [errChanged] if there are others now.
func (v *loadedEvent) watchesHeld(tx *store.Tx) ([]vcs.Watch, error) {
	all, err := watches(tx, v.repo)
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		if !slices.ContainsFunc(v.watches, func(known vcs.Watch) bool { return known.StackID == w.StackID }) {
			return nil, errChanged
		}
	}
	return all, nil
}

// finishEvent ends an event. reason is "" if it has decisions.
func finishEvent(tx *store.Tx, e store.VCSEvent, reason vcs.Reason, detail string) error {
	e.Done, e.DoneAt, e.Reason, e.Detail = true, tx.Now(), string(reason), termtext.OneLine(detail, maxDetail)
	e.Document = "{}" // it can be long, and nothing reads it any more
	tx.Notify(Processed, e.IntegrationID)
	return tx.SaveVCSEvent(e)
}

// pending returns the row of an event in the transaction that ends it, or [errChanged] if another
// worker ended it.
func pending(tx *store.Tx, id string) (store.VCSEvent, error) {
	e, err := tx.VCSEvent(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && e.Done {
		err = errChanged
	}
	return e, err
}

// Sweep removes old events, and repositories that no stack watches.
func (s *Service) Sweep(ctx context.Context) error {
	now, err := s.db.Now(ctx)
	if err != nil {
		return err
	}
	before := now.Add(-keep)
	err = s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) { return tx.DeleteOldVCSEvents(before, limit) })
	if err != nil {
		return fmt.Errorf("removing old events of forges: %w", err)
	}
	err = s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) { return tx.DeleteExcessVCSEvents(keepHints, limit) })
	if err != nil {
		return fmt.Errorf("removing events of forges that exceed the limit: %w", err)
	}
	for n := maxDue; n == maxDue; {
		unused, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.VCSRepo, error) { return tx.UnusedRepos(before, maxDue) })
		n = len(unused)
		for _, r := range unused {
			if err == nil {
				err = s.db.Write(ctx, scope.Repository(r.OrgID, r.ID), func(tx *store.Tx) error { return tx.DeleteUnusedRepo(r.ID, before) })
			}
		}
		if err != nil {
			return fmt.Errorf("removing repositories that no stack watches: %w", err)
		}
	}
	return nil
}
