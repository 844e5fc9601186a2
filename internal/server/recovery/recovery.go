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
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Deployments are what the recovery does with deployments.
type Deployments interface {
	// PauseOrg pauses or resumes all queues of an organization.
	PauseOrg(ctx context.Context, p identity.Principal, orgID string, paused bool) error
	// Cancel cancels a deployment. by says who or what does.
	Cancel(ctx context.Context, st store.Stack, deploymentID, by string, force bool) error
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

// by is the name that pauses and cancels.
const by = "the restore of a backup"

// Begin prepares a restored installation before the server serves it: it ends all sessions, pauses the deployments of all
// organizations, and cancels those that have not started, because they can have run after the backup.
func (s *Service) Begin(ctx context.Context) error {
	r, err := s.Read(ctx)
	if err != nil || r == nil {
		return err
	}
	if !r.Prepared {
		if err := s.prepare(ctx, r); err != nil {
			return fmt.Errorf("preparing the restored installation: %w", err)
		}
	}
	s.log.WithFields(logrus.Fields{"backup": r.Backup.Format(time.RFC3339), "organizations": strings.Join(r.names(), ", ")}).
		Warn("the installation was restored from a backup and is paused: it starts no deployments and schedules, and sends nothing; when you have looked, run: workflow-server restore release --all")
	return nil
}

func (s *Service) prepare(ctx context.Context, r *Restored) error {
	if r.Organizations == nil { // otherwise, an earlier start was interrupted
		if err := s.list(ctx, r); err != nil {
			return err
		}
	}
	if err := s.endSessions(ctx); err != nil {
		return err
	}
	for _, o := range r.Organizations {
		if err := s.deployments.PauseOrg(ctx, operator(), o.ID, true); err != nil {
			return err
		}
	}
	if err := s.cancelUnstarted(ctx, *r); err != nil {
		return err
	}
	r.Prepared = true
	return s.save(ctx, r)
}

func operator() identity.Principal {
	p := identity.Operator()
	p.User.Login = by
	return p
}

// list records the organizations, and which are paused already.
func (s *Service) list(ctx context.Context, r *Restored) error {
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		orgs, err := tx.Organizations()
		if err != nil {
			return err
		}
		r.Organizations = []Organization{}
		for _, o := range orgs {
			queue, err := tx.OrgQueue(o.ID)
			if err != nil {
				return err
			}
			r.Organizations = append(r.Organizations, Organization{ID: o.ID, Name: o.Name, WasPaused: queue.Paused})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.save(ctx, r)
}

// piece is the number of rows that one transaction reads or changes.
const piece = 200

func (s *Service) endSessions(ctx context.Context) error {
	never := time.Now().AddDate(100, 0, 0)
	for n := int64(piece); n >= piece; {
		err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) (err error) {
			n, err = tx.DeleteOldSessions(never, never, piece)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) cancelUnstarted(ctx context.Context, r Restored) error {
	text := fmt.Sprintf("%s of %s: it may have run since", by, r.Backup.Format(time.RFC3339))
	cancelled := 0
	for after := ""; ; {
		found, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Unstarted, error) { return tx.Unstarted(after, piece) })
		if err != nil {
			return err
		}
		for _, u := range found {
			after = u.JobID
			st, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(u.StackID) })
			if errors.Is(err, store.ErrNotFound) {
				continue // the queue ends it
			}
			if err == nil {
				err = s.deployments.Cancel(ctx, st, u.DeploymentID, text, false)
			}
			if err != nil && fault.KindOf(err) != fault.KindConflict { // another server has ended it
				return err
			}
			cancelled++
		}
		if len(found) < piece {
			break
		}
	}
	if cancelled > 0 {
		s.log.WithField("deployments", cancelled).Warn("cancelled the deployments that had not started at the time of the backup: they may have run since; look at each, and start it again if it has not")
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
			if r == nil {
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
	case r == nil || !r.Prepared:
		return nil, nil, fault.Conflict("nothing is to be released: the installation was not restored, or was released already, or its server has not started since")
	case name != "" && !slices.Contains(r.names(), name):
		return nil, nil, fault.NotFound("the organization %q is not paused by a restore; those that are: %s", name, strings.Join(r.names(), ", "))
	}
	for _, o := range slices.Clone(r.Organizations) {
		if name != "" && o.Name != name {
			continue
		}
		if !o.WasPaused {
			if err := s.deployments.PauseOrg(ctx, operator(), o.ID, false); err != nil {
				return released, r.names(), err
			}
		}
		if err := s.remove(ctx, r, o.ID); err != nil {
			return released, r.names(), err
		}
		released = append(released, o.Name)
	}
	if len(r.Organizations) == 0 {
		s.log.Info("the restored installation was released")
	}
	return released, r.names(), nil
}
