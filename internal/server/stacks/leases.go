package stacks

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// expired reports whether a running update's lease has expired at now, a time from
// [store.Tx.LeaseTime]. LeaseTime has already extended leases by the servers' downtime.
func expired(u store.Update, now time.Time) bool { return now.After(u.LeaseExpiresAt) }

func held(u store.Update, now time.Time) error {
	switch Status(u.Status) {
	case NotStarted:
		return fault.Conflict("The Update has not started")
	case Cancelled:
		return fault.Conflict("The Update has been cancelled")
	case Running:
		if expired(u, now) {
			return errLeaseLost
		}
		return nil
	default:
		if u.Reason == reasonExpired {
			return errLeaseLost
		}
		return fault.Conflict("The Update has already completed")
	}
}

var errLeaseLost = fault.Forbidden("the lease of this update has expired, its token is no longer valid")

// readUpdate returns an update and a time with which its lease can be compared.
func readUpdate(tx *store.Tx, id string) (u store.Update, now time.Time, err error) {
	if now, err = tx.LeaseTime(); err == nil {
		u, err = tx.Update(id)
	}
	return u, now, err
}

// Renew extends the lease of a running update by d; 0 means [MaxLease].
func (s *Service) Renew(ctx context.Context, u store.Update, d time.Duration) (time.Time, error) {
	if d < 0 || d > MaxLease {
		return time.Time{}, fault.Invalid("Renewal duration must be between 0 and %d seconds", int(MaxLease.Seconds()))
	}
	d = cmp.Or(d, MaxLease)
	var expires time.Time
	err := s.db.Write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) error {
		cur, now, err := readUpdate(tx, u.ID)
		if err != nil {
			return err
		}
		if Status(cur.Status) == Cancelled {
			// Clients stop an update only on this error.
			return fault.Forbidden("the update was cancelled, its token is no longer valid")
		}
		if err := held(cur, now); err != nil {
			return err
		}
		expires = now.Add(min(d, s.lease))
		if expires.Before(cur.LeaseExpiresAt) {
			expires = cur.LeaseExpiresAt
			return nil
		}
		return tx.RenewUpdate(cur.ID, expires)
	})
	return expires, err
}

// ExpireLeases finishes the running updates whose leases have expired, and returns their number.
func (s *Service) ExpireLeases(ctx context.Context) (int, error) {
	candidates, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Update, error) {
		return tx.ExpiredUpdates(tx.Now())
	})
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, c := range candidates {
		err := s.end(ctx, c, func(_ *store.Tx, cur store.Update, now time.Time) (Status, string, error) {
			if Status(cur.Status) != Running || !expired(cur, now) {
				return "", "", nil
			}
			n++
			return Failed, reasonExpired, nil
		})
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// FinishOrphanedUpdate finishes the running update of a deployment whose process no longer exists, and
// releases its stack, which the transaction must hold.
func (s *Service) FinishOrphanedUpdate(tx *store.Tx, deploymentID, reason string, now time.Time) error {
	updates, err := tx.RunningUpdatesOfDeployment(deploymentID)
	for _, u := range updates {
		err = errors.Join(err, s.finish(tx, u, Failed, reason, now))
	}
	return err
}

// holdsToken reports, in constant time, whether token is the lease token of an update.
func holdsToken(u store.Update, token string) bool {
	return len(u.LeaseHash) > 0 && subtle.ConstantTimeCompare(u.LeaseHash, identity.HashToken(token)) == 1
}

// runsAsDeployment reports whether an update has the rights of a deployment, which do not depend on
// its requester's, once it runs. An update that a client with another user's token linked to the
// deployment has that user's rights.
func runsAsDeployment(tx *store.Tx, u store.Update) (bool, error) {
	if u.DeploymentID == "" {
		return false, nil
	}
	d, err := tx.Deployment(u.DeploymentID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return d.RequestedBy == u.RequestedBy, err
}

// mayRun reports whether the user, the organization token or the team token that created an update
// may still run it.
func mayRun(tx *store.Tx, u store.Update) (bool, error) {
	if u.TokenID != "" {
		return identity.TokenMay(tx, u.TokenID, u.StackID, toRun(u))
	}
	if ofDeployment, err := runsAsDeployment(tx, u); err != nil || ofDeployment || u.RequestedBy == "" {
		return true, err
	}
	return identity.MayRun(tx, u.RequestedBy, u.StackID, toRun(u))
}

// UpdateOfToken returns the update to which a lease token belongs, if the update runs on the named
// stack.
func (s *Service) UpdateOfToken(ctx context.Context, token, id, org, project, name string) (store.Update, error) {
	var u store.Update
	permitted := true
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if u, err = tx.UpdateOnStack(id, org, project, name); err != nil {
			return err
		}
		permitted, err = mayRun(tx, u)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.Update{}, fault.NotFound("stack '%s/%s/%s' has no update %q", org, project, name, id)
	}
	if err != nil {
		return store.Update{}, fmt.Errorf("looking up an update: %w", err)
	}
	if Status(u.Status) == Running && len(u.LeaseHash) == 0 { // its user was disabled meanwhile
		return store.Update{}, errLeaseLost
	}
	if !holdsToken(u, token) {
		return store.Update{}, fault.Forbidden("the token is for another update")
	}
	if !permitted {
		return store.Update{}, fault.Forbidden("the user or the access token that started this update may no longer do so: the user was disabled or removed, or lost the permission, or the token was revoked. The update ends here; to release the stack, another user can run \"pulumi cancel\"")
	}
	return u, nil
}
