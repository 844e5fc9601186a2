package stacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
)

// KeepsDeleted returns the time for which deleted stacks can be restored; 0 means not at all.
func (s *Service) KeepsDeleted() time.Duration { return s.keepDeleted }

// errResourcesLeft has a text that clients compare. It must not change.
var errResourcesLeft = fault.Invalid("Stack still contains resources.")

// Delete deletes a stack. It deletes a stack with resources only if force is set, and never deletes a stack that an
// update holds. Running previews are cancelled. The stack can be restored until it is purged, which is at once if the
// server keeps no deleted stacks.
func (s *Service) Delete(ctx context.Context, p identity.Principal, st store.Stack, force bool) error {
	owners, err := s.ownersOf(ctx, st)
	if err != nil {
		return err
	}
	err = s.db.Write(ctx, owners, func(tx *store.Tx) error {
		cur, err := tx.Stack(st.ID)
		if err != nil {
			return err
		}
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		if err := s.mayWrite(tx, p.DeploymentID); err != nil {
			return err
		}
		if err := s.free(tx, &cur, now); err != nil {
			return err
		}
		if cur.ResourceCount > 0 && !force {
			return errResourcesLeft
		}
		if err := tx.UpdateStack(cur); err != nil { // the update that held it can have ended
			return err
		}
		return s.deleteIn(ctx, tx, p, cur, now)
	})
	if err != nil || s.keepDeleted > 0 {
		return err
	}
	if err := s.purge(ctx, store.DeletedStack{StackID: st.ID, OrgID: st.OrgID}, atOnce, nil); err != nil {
		s.log.WithError(err).WithField("stack", st.Ref()).Warn("removing a deleted stack's data failed; the server will remove it later")
	}
	return nil
}

// ownersOf returns the owners of what the deletion of a stack changes: a stack is the review stack of a pull request of a
// repository when it is created, or never.
func (s *Service) ownersOf(ctx context.Context, st store.Stack) (scope.Set, error) {
	r, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.ReviewStack, error) { return tx.ReviewStackOf(st.ID) })
	if errors.Is(err, store.ErrNotFound) {
		return st.Scope(), nil
	}
	return st.Scope().And(scope.Repository(r.OrgID, r.RepoID)), fault.While(err, "reading the review stack")
}

// deleteIn deletes a stack that no update holds.
func (s *Service) deleteIn(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, now time.Time) error {
	previews, err := tx.RunningPreviews(st.ID)
	if err != nil {
		return err
	}
	for _, u := range previews {
		if err := s.finish(tx, u, Cancelled, "the stack was deleted", now); err != nil {
			return err
		}
	}
	if s.hooks.StackDeleted != nil {
		if err := s.hooks.StackDeleted(tx, st); err != nil {
			return err
		}
	}
	if err := record(tx, p, st, webhooks.StackDeleted, "deleted"); err != nil {
		return err
	}
	detail := map[string]any{"resources": st.ResourceCount}
	if err := audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.StackDeleted, Subject: audit.Stack(st), Detail: detail}); err != nil {
		return err
	}
	changed(tx, st)
	return tx.DeleteStack(st.ID, p.Name())
}

const (
	// listedDeleted is the maximum number of deleted stacks in a list.
	listedDeleted = 1000
	// deletedPage is the number of deleted stacks that are purged before the next ones are read.
	deletedPage = 200
)

// Deleted is a deleted stack, with the time after which it is purged.
type Deleted struct {
	store.DeletedStack
	PurgedAfter time.Time
}

// ListDeleted returns the deleted stacks of an organization that a caller may restore, the newest first, up to 1000.
func (s *Service) ListDeleted(ctx context.Context, p identity.Principal, orgID string) ([]Deleted, error) {
	found, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) ([]store.DeletedStack, error) {
		return tx.DeletedStacks(p.ReachOfDeleted(orgID), listedDeleted)
	})
	var list []Deleted
	for _, d := range found {
		list = append(list, Deleted{d, d.DeletedAt.Add(s.keepDeleted)})
	}
	return list, fault.While(err, "listing deleted stacks")
}

// mayRestore reports whether a caller may restore a deleted stack: callers who administered it still may. Lists decide the
// same with [identity.Principal.ReachOfDeleted].
func mayRestore(tx *store.Tx, p identity.Principal, d store.DeletedStack) (bool, error) {
	if p.Kind == identity.KindJob {
		return false, nil
	}
	on, err := p.On(tx, d.Stack())
	return err == nil && on.Can(d.Stack(), identity.Manage), err
}

// restorable returns a deleted stack of an organization that a caller may restore.
func restorable(tx *store.Tx, p identity.Principal, orgID, id string) (store.DeletedStack, error) {
	missing := fault.NotFound("the organization has no deleted stack with the id %q: it has been restored or purged, or you may not restore it", id)
	d, err := tx.DeletedStack(id)
	if err != nil {
		return d, store.IfMissing(err, missing)
	}
	if d.OrgID != orgID || d.Purged {
		return d, missing
	}
	may, err := mayRestore(tx, p, d)
	if err == nil && !may {
		err = missing
	}
	return d, err
}

// Restore makes a deleted stack of an organization exist again, with a name, or with its last one if name is "". A new
// name is also written to the stack's state, as [Service.Rename] does. It returns a conflict if the name is taken.
func (s *Service) Restore(ctx context.Context, p identity.Principal, orgID, id, name string) (store.Stack, error) {
	d, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.DeletedStack, error) { return restorable(tx, p, orgID, id) })
	if err != nil {
		return store.Stack{}, err
	}
	st := d.Stack()
	st.Name = cmp.Or(name, d.Name)
	if err := checkName("stack", st.Name); err != nil {
		return st, err
	}
	var rename *replacement
	if st.Name != d.Name {
		if rename, err = s.prepareRestoreAs(ctx, p, d, st.Name); err != nil {
			// The stack can have been restored or purged at the same time.
			_, gone := store.Read(ctx, s.db, func(tx *store.Tx) (store.DeletedStack, error) { return restorable(tx, p, orgID, id) })
			return st, cmp.Or(gone, err)
		}
	}
	err = s.db.Write(ctx, scope.Organization(d.OrgID).Shared().And(scope.Stack(d.OrgID, d.StackID)), func(tx *store.Tx) error {
		d, err := restorable(tx, p, orgID, id)
		if err != nil {
			return err
		}
		if err := tx.RestoreStack(d, st.Name); err != nil {
			return err
		}
		if err := grants.AdmitRestored(tx, p, d); err != nil {
			return err
		}
		if err := record(tx, p, st, webhooks.StackCreated, "restored"); err != nil {
			return err
		}
		detail := map[string]any{"name": d.Name, "deleted": d.DeletedAt}
		if err := audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.StackRestored, Subject: audit.Stack(st), Detail: detail}); err != nil {
			return err
		}
		changed(tx, st)
		if rename != nil {
			return rename.in(tx)
		}
		return nil
	})
	if rename != nil {
		rename.finish(ctx, err)
	}
	if errors.Is(err, store.ErrConflict) {
		return st, fault.Conflict("stack '%s' already exists: restore the deleted stack with another name", st.Ref())
	}
	return st, err
}

// prepareRestoreAs stores the state of a deleted stack with another name of the stack.
func (s *Service) prepareRestoreAs(ctx context.Context, p identity.Principal, d store.DeletedStack, name string) (*replacement, error) {
	stored, st, err := s.open(ctx, func(tx *store.Tx) (store.Stack, error) {
		d, err := tx.DeletedStack(d.StackID)
		return d.Stack(), err
	})
	if err != nil {
		return nil, err
	}
	old, err := stored.State(ctx)
	if err != nil {
		return nil, err
	}
	var state *states.State
	if !old.Empty() {
		if err := budget.Of(ctx).Take(ctx, renameMemory(old)); err != nil {
			return nil, err
		}
		r := renamer{oldStack: st.Name, oldProject: st.Project, newStack: name, newProject: st.Project, org: st.OrgName}
		if state, err = r.state(old); err != nil {
			return nil, malformed(st, err)
		}
	}
	return s.prepare(ctx, p, st.ID, scope.Stack(st.OrgID, st.ID), KindRename, state, nil)
}

// Purge removes a deleted stack of an organization for good.
func (s *Service) Purge(ctx context.Context, p identity.Principal, orgID, id string) error {
	if !p.CanAdminOrg(orgID) {
		return fault.Forbidden("only an administrator of the organization may purge deleted stacks")
	}
	d, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.DeletedStack, error) { return restorable(tx, p, orgID, id) })
	if err != nil {
		return err
	}
	return s.purge(ctx, d, atOnce, func(tx *store.Tx) error {
		d, err := restorable(tx, p, orgID, id)
		if err != nil {
			return err
		}
		detail := map[string]any{"resources": d.ResourceCount, "deleted": d.DeletedAt}
		return audit.Record(ctx, tx, audit.Entry{OrgID: d.OrgID, Action: audit.StackPurged, Subject: audit.Stack(d.Stack()), Detail: detail})
	})
}

// PurgeDeleted purges the stacks that were deleted before a time, and finishes purges that were interrupted. It returns
// their number. A stack that cannot be purged does not keep the others.
func (s *Service) PurgeDeleted(ctx context.Context, before time.Time) (int, error) {
	purged, after := 0, store.DeletedStack{}
	var errs []error
	for {
		due, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.DeletedStack, error) {
			return tx.PurgeableStacks(before, after, deletedPage)
		})
		if err != nil || len(due) == 0 {
			return purged, errors.Join(append(errs, fault.While(err, "searching for deleted stacks to purge"))...)
		}
		for _, d := range due {
			err := s.purge(ctx, d, retry.Paced, func(tx *store.Tx) error {
				cur, err := tx.DeletedStack(d.StackID)
				if err == nil && !cur.Purged && !cur.DeletedAt.Before(before) {
					err = store.ErrNotFound // it was restored, and deleted again
				}
				return err
			})
			if ctx.Err() != nil {
				return purged, ctx.Err()
			}
			if err == nil {
				purged++
			} else if !errors.Is(err, store.ErrNotFound) && len(errs) < mostProblems {
				errs = append(errs, fmt.Errorf("purging the deleted stack %s: %w", d.Stack().Ref(), err))
			}
		}
		after = due[len(due)-1]
	}
}

// mostProblems is the maximum number of stacks that the error of a sweep names.
const mostProblems = 10

// purgedPerWrite is the maximum number of rows removed in one transaction, which blocks other writers.
const purgedPerWrite = 500

// atOnce does a piece of work that a caller waits for. [retry.Paced] is its counterpart in the background.
func atOnce(_ context.Context, work func() error) error { return work() }

// purge removes a deleted stack and its data in several pieces, which do calls. begin, unless it is nil, is called in the
// first one, after which the stack can no longer be restored.
func (s *Service) purge(ctx context.Context, d store.DeletedStack, do func(context.Context, func() error) error, begin func(tx *store.Tx) error) error {
	write := func(change func(*store.Tx) error) error {
		return do(ctx, func() error { return s.db.Write(ctx, scope.Stack(d.OrgID, d.StackID), change) })
	}
	err := write(func(tx *store.Tx) error {
		if begin != nil {
			if err := begin(tx); err != nil {
				return err
			}
		}
		return tx.MarkPurged(d.StackID)
	})
	for done := false; err == nil && !done; {
		err = write(func(tx *store.Tx) (err error) {
			if done, err = tx.DeleteUpdates(d.StackID, purgedPerWrite); err == nil && done {
				err = tx.PurgeStack(d.StackID)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	if err := do(ctx, func() error { return s.db.Blobs().Delete(ctx, states.StackBlobs(d.StackID)) }); err != nil {
		s.log.WithError(err).WithField("stack", d.StackID).Warn("removing a purged stack's states failed; the server will remove them later")
	}
	return nil
}
