// Package recovery keeps a restored installation paused until an administrator releases it: its backup is older than the
// infrastructure, so nothing may be deployed, sent or reported by itself before a person has looked.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Deployments are what the recovery does with deployments.
type Deployments interface {
	// PauseOrgIn pauses or resumes all queues of an organization, in a transaction that holds it.
	PauseOrgIn(ctx context.Context, tx *store.Tx, p identity.Principal, orgID string, paused bool) error
	// Cancel cancels a deployment. by says who or what does.
	Cancel(ctx context.Context, st store.Stack, deploymentID, by string, force bool) error
	// AssumeStarted treats a claimed deployment as started, and adds a note to it or to a running one.
	AssumeStarted(ctx context.Context, job store.Unfinished, note string) error
}

// Service holds and releases a restored installation.
type Service struct {
	db          *store.DB
	deployments Deployments
	log         *logrus.Entry
}

// New returns a service.
func New(db *store.DB, deployments Deployments, log *logrus.Entry) *Service {
	return &Service{db, deployments, log}
}

// By is the name that pauses and cancels.
const By = "the restore of a backup"

// Begin prepares a restored installation before the server serves it: it ends all sessions, sign-in links and invitations, and
// pauses the deployments of all organizations. It cancels those that were queued, because they can have run after the
// backup. Those that an agent had claimed can run now, so it waits for their results.
func (s *Service) Begin(ctx context.Context) error {
	r, err := s.Read(ctx)
	if err != nil || r == nil {
		return err
	}
	if !r.Prepared {
		if r, err = s.prepare(ctx); err != nil {
			return fmt.Errorf("preparing the restored installation: %w", err)
		}
	}
	if r.Paused() {
		s.log.WithFields(logrus.Fields{"backup": r.Backup.Format(time.RFC3339), "organizations": strings.Join(names(r.Waiting()), ", ")}).
			Warn("the installation was restored from a backup and is paused: it starts no deployments and schedules, and sends nothing; to see what to check, run: workflow-server restore status; then let it work again: workflow-server restore release --all")
	}
	return nil
}

func (s *Service) prepare(ctx context.Context) (*Restored, error) {
	r, err := s.change(ctx, list)
	if err != nil {
		return nil, err
	}
	if err := s.endSessions(ctx); err != nil {
		return nil, err
	}
	for _, o := range r.Organizations {
		err := s.db.Write(ctx, scope.Organization(o.ID), func(tx *store.Tx) error {
			return s.deployments.PauseOrgIn(ctx, tx, operator(), o.ID, true)
		})
		if err != nil {
			return nil, err
		}
	}
	if err := s.endUnfinished(ctx, *r); err != nil {
		return nil, err
	}
	return s.change(ctx, func(tx *store.Tx, r *Restored) error {
		r.Prepared = true
		return r.save(tx)
	})
}

func operator() identity.Principal {
	p := identity.Operator()
	p.User.Login = By
	return p
}

// list records the organizations, which of them are paused already, and the deployments that have not ended. It does
// nothing if an earlier start, or another server, has done so.
func list(tx *store.Tx, r *Restored) error {
	if len(r.Organizations) > 0 {
		return nil
	}
	orgs, err := tx.Organizations()
	if err != nil {
		return err
	}
	for _, o := range orgs {
		queue, err := tx.OrgQueue(o.ID)
		if err != nil {
			return err
		}
		// An earlier restore can have paused what was backed up.
		r.Organizations = append(r.Organizations, Organization{ID: o.ID, Name: o.Name, WasPaused: queue.Paused && queue.PausedBy != By})
	}
	if err := listUnfinished(tx); err != nil {
		return err
	}
	// The clock can have been ahead when tokens were created, and must not make them look newer than the backup.
	if err := tx.LimitTokenAges(r.Backup); err != nil {
		return err
	}
	return r.save(tx)
}

// piece is the number of rows that one transaction reads or changes.
const piece = 200

// endSessions removes all sessions, sign-in links and invitations. A link that works once can have been used, or revoked,
// after the backup.
func (s *Service) endSessions(ctx context.Context) error {
	never := time.Now().AddDate(100, 0, 0)
	return s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		if err := tx.DeleteOldSignInLinks(never); err != nil {
			return 0, err
		}
		invitations, err := tx.DeleteOldInvitations(never, limit)
		if err != nil {
			return 0, err
		}
		sessions, err := tx.DeleteOldSessions(never, never, limit)
		return max(invitations, sessions), err
	})
}

// endUnfinished cancels queued deployments, and treats claimed ones as started.
func (s *Service) endUnfinished(ctx context.Context, r Restored) error {
	at := r.Backup.Format(time.RFC3339)
	cancelled, mayRun := 0, 0
	for after := ""; ; {
		found, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Unfinished, error) { return tx.Unfinished(after, piece) })
		if err != nil {
			return err
		}
		for _, u := range found {
			after = u.JobID
			if u.Status != workflow.StatusNotStarted {
				mayRun++
				note := fmt.Sprintf("The server was restored from the backup of %s, when this deployment was %s. It can run or have ended: its agent reports that, or the server marks it as lost.", at, u.Status)
				if err := s.deployments.AssumeStarted(ctx, u, note); err != nil {
					return err
				}
				continue
			}
			st, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(u.StackID) })
			if errors.Is(err, store.ErrNotFound) {
				continue // the queue ends it
			}
			if err == nil {
				err = s.deployments.Cancel(ctx, st, u.DeploymentID, fmt.Sprintf("%s of %s: it may have run since", By, at), false)
			}
			if err != nil && fault.KindOf(err) != fault.KindConflict && fault.KindOf(err) != fault.KindNotFound { // another server has ended it, or its organization is deleted
				return err
			}
			cancelled++
		}
		if len(found) < piece {
			break
		}
	}
	if cancelled+mayRun > 0 {
		s.log.WithFields(logrus.Fields{"cancelled": cancelled, "claimed_or_running": mayRun}).
			Warn("some deployments had not ended at the time of the backup, and may have run since: the queued ones are cancelled; workflow-server restore status lists them")
	}
	return nil
}

// checkEvery is the interval at which waiting work asks whether the installation was released.
const checkEvery = 5 * time.Second

// Hold returns work that waits until a restored installation was released, and then runs.
func (s *Service) Hold(run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for {
			r, err := s.Read(ctx)
			if err != nil {
				return err
			}
			if r == nil || !r.Paused() {
				return run(ctx)
			}
			if err := retry.Sleep(ctx, retry.Spread(checkEvery)); err != nil {
				return err
			}
		}
	}
}

// Release releases an organization by its name, or all if it is "". It returns the organizations that it has released,
// and those that remain. What schedules and forges start, and what is sent, waits for the last organization.
func (s *Service) Release(ctx context.Context, name string) (released, remaining []string, err error) {
	r, err := s.Read(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case r == nil || !r.Paused():
		return nil, nil, fault.Conflict("nothing is to be released: the installation was not restored, or was released already")
	case !r.Prepared:
		return nil, nil, fault.Conflict("nothing is to be released yet: the restored server has not started")
	}
	waiting := r.Waiting()
	if name != "" {
		waiting = slices.DeleteFunc(waiting, func(o Organization) bool { return o.Name != name })
		if len(waiting) == 0 {
			return nil, nil, fault.NotFound("the organization %q is not paused by a restore; those that are: %s", name, strings.Join(names(r.Waiting()), ", "))
		}
	}
	for _, o := range waiting {
		now, err := s.release(ctx, o)
		if err != nil {
			return released, names(r.Waiting()), fmt.Errorf("releasing %s: %w", o.Name, err)
		}
		r, released = now, append(released, o.Name)
	}
	if !r.Paused() {
		s.log.Info("the restored installation was released")
	}
	return released, names(r.Waiting()), nil
}

// release releases an organization that waits.
func (s *Service) release(ctx context.Context, o Organization) (*Restored, error) {
	return s.change(ctx, func(tx *store.Tx, r *Restored) error {
		now := r.organization(o.ID)
		if now == nil || !now.Released.IsZero() {
			return nil // deleted, or released, meanwhile
		}
		now.Released = tx.Now()
		if err := r.save(tx); err != nil {
			return err
		}
		if !o.WasPaused {
			if err := s.deployments.PauseOrgIn(ctx, tx, operator(), o.ID, false); err != nil {
				return err
			}
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: o.ID, Action: audit.OrganizationReleased, Subject: audit.Subject{Kind: "organization", ID: o.ID, Name: o.Name},
			Detail: map[string]any{"backup": r.Backup.Format(time.RFC3339)},
		})
	})
}
