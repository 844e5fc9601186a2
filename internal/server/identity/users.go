package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// checkEnabled returns an error if a user is disabled or does not exist.
func checkEnabled(tx *store.Tx, userID string) error {
	u, err := tx.User(userID)
	if err != nil {
		return store.IfMissing(err, fault.NotFound("the user does not exist"))
	}
	if u.Disabled() {
		return fault.Conflict("%s is disabled; to let %s sign in again, use \"workflow-server user enable %s\"", u.Login, u.Login, u.Login)
	}
	return nil
}

// UserSummary is a user with the user's roles by the name of the organization.
type UserSummary struct {
	store.User
	Roles map[string]string
	// LastSeen is the last use of a session or of a personal token; zero without one.
	LastSeen time.Time
}

// Users returns up to limit users, ordered by login, and whether more follow. The list begins behind the login
// after. If words is not "", the login, name or email address contains it.
func (s *Service) Users(ctx context.Context, words, after string, limit int) (list []UserSummary, more bool, err error) {
	list, err = store.Read(ctx, s.db, func(tx *store.Tx) ([]UserSummary, error) {
		found, err := tx.Users(words, after, limit+1)
		if err != nil {
			return nil, err
		}
		return summarizeUsers(tx, found)
	})
	if err != nil {
		return nil, false, fmt.Errorf("listing users: %w", err)
	}
	return list[:min(limit, len(list))], len(list) > limit, nil
}

// UserSummary returns the user with a login.
func (s *Service) UserSummary(ctx context.Context, login string) (UserSummary, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]UserSummary, error) {
		u, err := tx.UserByLogin(login)
		if err != nil {
			return nil, store.IfMissing(err, noUser(login))
		}
		return summarizeUsers(tx, []store.User{u})
	})
	if err != nil {
		return UserSummary{}, fault.During(err, "looking up a user")
	}
	return list[0], nil
}

func summarizeUsers(tx *store.Tx, found []store.User) ([]UserSummary, error) {
	ids := make([]string, len(found))
	for i, u := range found {
		ids[i] = u.ID
	}
	memberships, err := tx.Memberships(ids)
	if err != nil {
		return nil, err
	}
	seen, err := tx.LastSeen(ids)
	if err != nil {
		return nil, err
	}
	roles := map[string]map[string]string{}
	for _, m := range memberships {
		if roles[m.UserID] == nil {
			roles[m.UserID] = map[string]string{}
		}
		roles[m.UserID][m.Organization] = m.Role
	}
	list := make([]UserSummary, len(found))
	for i, u := range found {
		list[i] = UserSummary{User: u, Roles: roles[u.ID], LastSeen: seen[u.ID]}
	}
	return list, nil
}

// Ended is the access that a user has lost.
type Ended struct {
	Sessions, Tokens int64
	// Paused is the number of the user's schedules that were paused.
	Paused int64
	// Owned is the number of what the user still owns; see [Service.Holdings].
	Owned int64
	// Login is the login by which histories name the user.
	Login string
}

// DisableUser ends all access of a user: sessions with their open pages, sign-in links and personal tokens. The
// user cannot sign in until [Service.EnableUser], and jobs have no rights of the user. Memberships and permissions
// remain. If to is the login of another user, that user takes over what the user owns; see [Service.HandOver].
// Otherwise it remains, and the user's schedules are paused. DisableUser refuses to disable the last administrator
// of the server, and without to, that of an organization.
func (s *Service) DisableUser(ctx context.Context, p Principal, login, to string) (ended Ended, err error) {
	err = s.changeUser(ctx, login, func(tx *store.Tx, u store.User) error {
		if u.Disabled() {
			return fault.Conflict("%s is disabled already", login)
		}
		if err := checkSuccession(ctx, tx, p, u, to); err != nil {
			return err
		}
		if err := tx.SetDisabled(u.ID, tx.Now()); err != nil {
			return err
		}
		if ended, err = endAccess(tx, u); err != nil {
			return err
		}
		if ended.Paused, err = pauseSchedules(ctx, tx, u); err != nil {
			return err
		}
		counts, err := tx.CountHoldings(holder(u.ID))
		if err != nil {
			return err
		}
		ended.Owned = Holdings{Counts: counts}.Total()
		return recordMember(ctx, tx, audit.UserDisabled, "", u.ID, u.Login, map[string]any{"sessions": ended.Sessions, "tokens": ended.Tokens})
	})
	return ended, fault.During(err, "disabling a user")
}

// checkSuccession hands over what a user owns if to is not "". It returns an error if the server, or an organization,
// would have no administrator without the user.
func checkSuccession(ctx context.Context, tx *store.Tx, p Principal, u store.User, to string) error {
	if err := checkNotLast(tx, u); err != nil {
		return err
	}
	if to != "" {
		_, err := handOver(ctx, tx, p, u, to)
		return err
	}
	last, err := lastAdministratorOf(tx, u)
	if err == nil && len(last) > 0 {
		err = fault.Conflict("%s is the last administrator of %s; make another member an administrator first, or name the user who takes over",
			u.Login, english.WordSeries(last, "and"))
	}
	return err
}

// pauseSchedules pauses the schedules of a user, who can no longer run what they do.
func pauseSchedules(ctx context.Context, tx *store.Tx, u store.User) (n int64, err error) {
	paused, err := tx.PauseSchedulesOf(holder(u.ID), tx.Now())
	if err != nil {
		return 0, err
	}
	for orgID, count := range paused {
		n += count
		if err := recordMember(ctx, tx, audit.SchedulePaused, orgID, u.ID, u.Login, map[string]any{"because": "the user was disabled", "schedules": count}); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// EnableUser lets a disabled user sign in again. Earlier sessions and tokens stay invalid, also the update tokens of
// updates whose clients have not noticed yet that the user was disabled.
func (s *Service) EnableUser(ctx context.Context, login string) error {
	err := s.changeUser(ctx, login, func(tx *store.Tx, u store.User) error {
		if !u.Disabled() {
			return fault.Conflict("%s is not disabled", login)
		}
		if err := errors.Join(tx.SetDisabled(u.ID, time.Time{}), tx.EndLeases(u.ID)); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.UserEnabled, "", u.ID, u.Login, nil)
	})
	return fault.During(err, "enabling a user")
}

// DeleteUser removes a user, with the user's memberships, permissions, accounts at identity providers, passkeys and
// access. If to is the login of another user, that user takes over what the user owns; see [Service.HandOver].
// DeleteUser refuses to delete the last administrator of the server, and without to, a user who owns something or is
// the last administrator of an organization. Histories name the user by a changed login, so that another user can
// have the former one.
func (s *Service) DeleteUser(ctx context.Context, p Principal, login, to string) (ended Ended, err error) {
	err = s.changeUser(ctx, login, func(tx *store.Tx, u store.User) error {
		if err := checkSuccession(ctx, tx, p, u, to); err != nil {
			return err
		}
		counts, err := tx.CountHoldings(holder(u.ID))
		if err != nil {
			return err
		}
		if owned := (Holdings{Counts: counts}); owned.Total() > 0 {
			return fault.Conflict("%s owns %s; name the user who takes over", login, owned)
		}
		roles, err := tx.RolesOf(u.ID)
		if err != nil {
			return err
		}
		for orgID, role := range roles {
			if err := tx.DeleteMember(orgID, u.ID); err != nil {
				return err
			}
			if err := recordMember(ctx, tx, audit.MemberRemoved, orgID, u.ID, u.Login, map[string]any{"role": role}); err != nil {
				return err
			}
		}
		if ended, err = endAccess(tx, u); err != nil {
			return err
		}
		ended.Login = u.Login + "-deleted-" + u.ID[:min(8, len(u.ID))]
		if err := tx.DeleteUser(u.ID, ended.Login, tx.Now()); err != nil {
			return store.IfConflict(err, fault.Conflict("a user with the login %q exists; delete that user first", ended.Login))
		}
		return recordMember(ctx, tx, audit.UserDeleted, "", u.ID, u.Login, map[string]any{"remains": ended.Login, "sessions": ended.Sessions, "tokens": ended.Tokens})
	})
	return ended, fault.During(err, "deleting a user")
}

// changeUser calls change with a user. Nothing else changes meanwhile: whether an administrator is the last one
// depends on other users and organizations.
func (s *Service) changeUser(ctx context.Context, login string, change func(*store.Tx, store.User) error) error {
	return s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		u, err := tx.UserByLogin(login)
		if err != nil {
			return store.IfMissing(err, noUser(login))
		}
		return change(tx, u)
	})
}

func noUser(login string) error { return fault.NotFound("the user %q does not exist", login) }

// checkNotLast returns an error if the server would have no administrator without a user.
func checkNotLast(tx *store.Tx, u store.User) error {
	if u.Disabled() || !u.SiteAdmin {
		return nil
	}
	n, err := tx.CountSiteAdmins()
	if err == nil && n <= 1 {
		err = fault.Conflict("%s is the last administrator of the server; create another one first: workflow-server user create LOGIN --site-admin", u.Login)
	}
	return err
}

// lastAdministratorOf returns the organizations that would have no administrator without a user.
func lastAdministratorOf(tx *store.Tx, u store.User) ([]string, error) {
	if u.Disabled() {
		return nil, nil
	}
	return tx.OnlyAdminOf(u.ID, RoleAdmin)
}

func endAccess(tx *store.Tx, u store.User) (ended Ended, err error) {
	ended.Login = u.Login
	if ended.Sessions, ended.Tokens, err = tx.EndAccess(u.ID); err != nil {
		return ended, err
	}
	tx.Notify(SessionTopic, u.ID)
	return ended, nil
}
