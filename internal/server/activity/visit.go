package activity

import (
	"context"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// A visit ends when the page was not opened for this time. Pages that are opened before belong to the same visit.
const visitEnd = 10 * time.Minute

// notEvery bounds how often a visit is written.
const notEvery = time.Minute

// Since returns the time of a user's visit before the current one; zero without one. The caller must be a user.
func (s *Service) Since(ctx context.Context, p identity.Principal, orgID string) (time.Time, error) {
	v, err := s.visit(ctx, p, orgID)
	return v.BeforeAt, err
}

func (s *Service) visit(ctx context.Context, p identity.Principal, orgID string) (store.ActivityVisit, error) {
	v, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.ActivityVisit, error) { return tx.ActivityVisit(p.User.ID, orgID) })
	return v, fault.While(store.IgnoreMissing(err), "reading the last visit of a user")
}

// Open records that a user opens the list of everything, and returns the time of the visit before this one; zero without
// one. The time stays the same while the user opens the list again and again: it moves only once the visit has ended. A
// visit that cannot be recorded, because the database accepts no writes, is logged: the list can still be read.
func (s *Service) Open(ctx context.Context, p identity.Principal, orgID string) (time.Time, error) {
	v, err := s.visit(ctx, p, orgID)
	if err != nil || p.User.ID == "" || time.Since(v.OpenedAt) < notEvery {
		return v.BeforeAt, err
	}
	since := v.BeforeAt
	err = s.db.Write(ctx, scope.User(p.User.ID), func(tx *store.Tx) error {
		v, err := tx.ActivityVisit(p.User.ID, orgID)
		if store.IgnoreMissing(err) != nil {
			return err
		}
		now := tx.Now()
		if now.Sub(v.OpenedAt) >= visitEnd {
			v.BeforeAt = v.OpenedAt
		}
		v.UserID, v.OrgID, v.OpenedAt = p.User.ID, orgID, now
		since = v.BeforeAt
		return tx.SaveActivityVisit(v)
	})
	if err != nil && ctx.Err() == nil {
		s.log.WithError(err).Warn("recording a visit of the activity")
	}
	return since, nil
}
