// Package sources keeps the environments of organizations equal to the definitions in a repository: it synchronizes them when
// its branch changes, and checks the definitions of pull requests.
//
// It compares states, not events: a delivery of a forge only makes the next poll due. So a lost, late or repeated delivery
// changes nothing.
package sources

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Topic is the notification channel for sources that must be polled. The payload is the organization's id.
const Topic = "environment-source"

// Options are the options of [New].
type Options struct {
	Log          *logrus.Entry
	Integrations *integrations.Service
	Sources      *source.Service
	Memory       *budget.Budget // nil means no limit
	// Console is the console's address for browsers, or "".
	Console links.Console
	// Interval is the time between polls of a repository whose forge sends no deliveries; zero means a minute.
	Interval time.Duration
}

// Service manages and synchronizes sources. Its methods may be called concurrently.
type Service struct {
	db   *store.DB
	opts Options
	log  *logrus.Entry
}

// New returns a service on a database. The caller must start [Service.Run] on only one of the servers that share it.
func New(db *store.DB, o Options) *Service {
	if o.Interval <= 0 {
		o.Interval = time.Minute
	}
	return &Service{db: db, opts: o, log: o.Log}
}

// Settings say where an organization's environments come from.
type Settings struct {
	IntegrationID string
	Repository    string
	Branch        string
	Folder        string // "" is the root
	// Deletes deletes environments that came from the repository and that it no longer contains, and Checks checks pull
	// requests.
	Deletes, Checks bool
}

// SettingsOf returns the settings of a source.
func SettingsOf(src store.EnvironmentSource) Settings {
	return Settings{IntegrationID: src.IntegrationID, Repository: src.Repository, Branch: src.Branch, Folder: src.Folder, Deletes: src.Deletes, Checks: src.Checks}
}

var errNone = fault.NotFound("the environments of this organization come from no repository")

// Get returns the source of an organization.
func (s *Service) Get(ctx context.Context, org store.Organization) (store.EnvironmentSource, error) {
	src, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.EnvironmentSource, error) { return tx.EnvironmentSource(org.ID) })
	return src, fault.While(store.IfMissing(err, errNone), "reading the source of environments")
}

// Set sets the source of an organization. The next poll, at once, synchronizes its environments.
func (s *Service) Set(ctx context.Context, p identity.Principal, org store.Organization, set Settings) (store.EnvironmentSource, error) {
	set, err := checked(set)
	if err != nil {
		return store.EnvironmentSource{}, err
	}
	var out store.EnvironmentSource
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		before, err := tx.EnvironmentSource(org.ID)
		if store.IgnoreMissing(err) != nil {
			return err
		}
		if out, err = rowOf(tx, p, org, set, before); err != nil {
			return err
		}
		if out.IntegrationID != before.IntegrationID || out.Repository != before.Repository {
			// What came from another repository is not deleted because this one lacks it.
			if err := errors.Join(tx.DeleteEnvironmentOrigins(org.ID), tx.DeleteEnvironmentChecks(org.ID, 0)); err != nil {
				return err
			}
		}
		if out.Folder != before.Folder || out.Branch != before.Branch { // the same commits can have another result
			if err := tx.DeleteEnvironmentChecks(org.ID, 0); err != nil {
				return err
			}
		}
		if err := tx.SaveEnvironmentSource(out); err != nil {
			return err
		}
		tx.Notify(Topic, org.ID)
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: org.ID, Action: audit.EnvironmentSourceSet, Subject: subject(out),
			Detail: map[string]any{"branch": out.Branch, "folder": out.Folder, "deletes": out.Deletes, "checks": out.Checks},
		})
	})
	return out, fault.During(err, "setting the source of environments")
}

func subject(src store.EnvironmentSource) audit.Subject {
	return audit.Subject{Kind: "environment-source", ID: src.OrgID, Name: src.Repository}
}

// rowOf returns the row for settings.
func rowOf(tx *store.Tx, p identity.Principal, org store.Organization, set Settings, before store.EnvironmentSource) (store.EnvironmentSource, error) {
	i, err := integrations.Find(tx, org, set.IntegrationID)
	if err != nil {
		return store.EnvironmentSource{}, err
	}
	name, ok, err := integrations.Covers(i, set.Repository)
	if err == nil && !ok {
		err = fault.Invalid("the integration %s does not contain the repository %q, or its list of repositories does not allow it", i.Name, set.Repository)
	}
	if err == nil && !integrations.CanAsk(i) {
		err = fault.Invalid("the integration %s has no credential with which this server could read the repository; add one, or set its events to \"poll\"", i.Name)
	}
	if err != nil {
		return store.EnvironmentSource{}, err
	}
	out := before
	if before.IntegrationID != i.ID || before.Repository != name {
		out = store.EnvironmentSource{OrgID: org.ID, IntegrationID: i.ID, Repository: name}
	}
	if before.OrgID == "" {
		out.CreatedAt = tx.Now()
	} else {
		out.CreatedAt = before.CreatedAt
	}
	out.Branch, out.Folder, out.Deletes, out.Checks, out.CreatedBy = set.Branch, set.Folder, set.Deletes, set.Checks, p.Name()
	out.RemoteID, out.Tried, out.PullCursor, out.Problem, out.Failures = "", "", "", "", 0 // everything is read again
	out.ModifiedAt, out.DueAt = tx.Now(), tx.Now()
	return out, nil
}

// maxFolder bounds the path of a folder in bytes.
const maxFolder = 500

// checked returns settings in their normal form.
func checked(set Settings) (Settings, error) {
	if err := workflow.CheckBranch(set.Branch); err != nil {
		return set, fault.Invalid("branch: %s", err)
	}
	folder := strings.Trim(set.Folder, "/")
	if clean := path.Clean("/" + folder)[1:]; folder != "." && clean != folder || len(folder) > maxFolder || strings.ContainsAny(folder, "\\\x00\n") {
		return set, fault.Invalid("folder: %q is not the path of a folder in a repository, such as environments", termtext.OneLine(set.Folder, maxFolder))
	}
	if set.Folder = folder; folder == "." {
		set.Folder = ""
	}
	return set, nil
}

// Remove ends the synchronization. The environments remain.
func (s *Service) Remove(ctx context.Context, org store.Organization) error {
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		src, err := tx.EnvironmentSource(org.ID)
		if err != nil {
			return store.IfMissing(err, errNone)
		}
		if err := errors.Join(tx.DeleteEnvironmentSource(org.ID), tx.DeleteEnvironmentOrigins(org.ID)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: org.ID, Action: audit.EnvironmentSourceEnded, Subject: subject(src)})
	})
	return fault.During(err, "removing the source of environments")
}

// SyncNow makes the next poll due, which applies the newest commit again.
func (s *Service) SyncNow(ctx context.Context, org store.Organization) error {
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		src, err := tx.EnvironmentSource(org.ID)
		if err != nil {
			return store.IfMissing(err, errNone)
		}
		src.Tried, src.DueAt = "", tx.Now()
		tx.Notify(Topic, org.ID)
		if err := tx.SaveEnvironmentSource(src); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: org.ID, Action: audit.EnvironmentSourceAsked, Subject: subject(src)})
	})
	return fault.During(err, "requesting a synchronization of environments")
}

// Preview returns what settings would change now, and the commit that they name.
func (s *Service) Preview(ctx context.Context, org store.Organization, set Settings) (source.Plan, string, error) {
	set, err := checked(set)
	if err != nil {
		return source.Plan{}, "", err
	}
	src, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.EnvironmentSource, error) {
		before, err := tx.EnvironmentSource(org.ID)
		if store.IgnoreMissing(err) != nil {
			return before, err
		}
		return rowOf(tx, identity.Principal{}, org, set, before)
	})
	if err != nil {
		return source.Plan{}, "", fault.During(err, "previewing a source of environments")
	}
	r, err := s.open(ctx, src)
	if err != nil {
		return source.Plan{}, "", unreadable(err)
	}
	head, err := r.head(ctx)
	if err != nil {
		return source.Plan{}, "", unreadable(err)
	}
	plan, err := s.planOf(ctx, r, head, false)
	return plan, head, unreadable(err)
}

// unreadable returns the error of a forge in the form for clients.
func unreadable(err error) error {
	switch {
	case err == nil || fault.KindOf(err) != "":
		return err
	case errors.Is(err, vcs.ErrNotFound), errors.Is(err, vcs.ErrForeign), errors.Is(err, vcs.ErrNoFolder):
		return fault.Wrap(fault.KindNotFound, err, "%s", err)
	default:
		return fault.Wrap(fault.KindUnavailable, err, "the repository could not be read: %s", err)
	}
}
