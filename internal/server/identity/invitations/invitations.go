// Package invitations lets administrators of an organization invite users with links. A link lets its holder join
// once, as the user who is signed in or as a new one, with the role for which it was made. The server sends no mail:
// the administrator who makes a link passes it on.
package invitations

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

const (
	// Lifetime is the time after which an invitation expires, unless its maker chooses another one.
	Lifetime = 7 * 24 * time.Hour
	// longest is the longest lifetime.
	longest = 30 * 24 * time.Hour
	// keep is the time for which lists show an invitation that has expired.
	keep = 30 * 24 * time.Hour
	// Most is the number of invitations that an organization can have at the same time.
	Most = 200

	maxInvitee = 200
)

// errLink is the error of every link that lets no visitor join. It does not reveal whether the link ever existed.
var errLink = fault.NotFound("The invitation is unknown, was used or revoked, or has expired. Ask for a new one.")

// Service manages invitations.
type Service struct {
	db  *store.DB
	log *logrus.Entry
}

// New returns a service that uses a database.
func New(db *store.DB, log *logrus.Entry) *Service { return &Service{db: db, log: log} }

// Spec describes an invitation to make.
type Spec struct {
	Role string
	// For says for whom the invitation is. It is only shown.
	For string
	// Lifetime is the time after which the invitation expires; zero means [Lifetime].
	Lifetime time.Duration
}

func (s *Spec) check() error {
	if !slices.Contains(identity.Roles(), s.Role) {
		return fault.Invalid("the role %q is unknown; use one of %s", s.Role, strings.Join(identity.Roles(), ", "))
	}
	s.Lifetime = cmp.Or(s.Lifetime, Lifetime)
	if s.Lifetime < 0 || s.Lifetime > longest {
		return fault.Invalid("an invitation must expire in the future, and within %s", words.Duration(longest))
	}
	s.For = termtext.OneLine(s.For, maxInvitee)
	return nil
}

// Make makes an invitation on behalf of an administrator of an organization. It returns the secret of its link, which is
// not stored.
func (s *Service) Make(ctx context.Context, p identity.Principal, org store.Organization, spec Spec) (secret string, i store.Invitation, err error) {
	if err := spec.check(); err != nil {
		return "", i, err
	}
	secret, hash := identity.NewToken()
	i = store.Invitation{ID: identity.NewID(), OrgID: org.ID, Organization: org.Name, Hash: hash, Role: spec.Role, Invitee: spec.For, CreatedBy: p.User.ID, Inviter: p.Name()}
	if p.Kind == identity.KindOrg {
		i.TokenID = p.TokenID
	}
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		i.CreatedAt = tx.Now()
		i.ExpiresAt = i.CreatedAt.Add(spec.Lifetime)
		if n, err := tx.CountInvitations(org.ID); err != nil || n >= Most {
			return cmp.Or(err, fault.Conflict("%s has %d invitations; revoke some first", org.Name, n))
		}
		if may, err := mayInvite(tx, i); err != nil || !may {
			return cmp.Or(err, fault.Forbidden("only administrators of %s invite users", org.Name))
		}
		if err := tx.InsertInvitation(i); err != nil {
			return err
		}
		return record(ctx, tx, audit.InvitationMade, i, map[string]any{"role": i.Role, "expires": i.ExpiresAt.UTC().Format(time.RFC3339)})
	})
	if err != nil {
		return "", i, fault.During(err, "making an invitation")
	}
	return secret, i, nil
}

// mayInvite reports whether the maker of an invitation still administers the organization. The operator always does.
func mayInvite(tx *store.Tx, i store.Invitation) (bool, error) {
	if i.CreatedBy == "" && i.TokenID == "" {
		return true, nil
	}
	return identity.MayAdminister(tx, i.CreatedBy, i.TokenID, i.OrgID)
}

func record(ctx context.Context, tx *store.Tx, action audit.Action, i store.Invitation, detail map[string]any) error {
	return audit.Record(ctx, tx, audit.Entry{OrgID: i.OrgID, Action: action, Subject: audit.Subject{Kind: "invitation", ID: i.ID, Name: i.Invitee}, Detail: detail})
}

// Listed is an invitation in a list.
type Listed struct {
	store.Invitation
	// Void reports that the link lets no user join, because the maker no longer administers the organization.
	Void bool
}

// List returns the invitations of an organization that were neither used nor revoked, newest first. It contains
// expired ones for 30 days.
func (s *Service) List(ctx context.Context, orgID string) ([]Listed, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Listed, error) {
		found, err := tx.Invitations(orgID, Most)
		list := make([]Listed, len(found))
		for n, i := range found {
			may, err := mayInvite(tx, i)
			if err != nil {
				return nil, err
			}
			list[n] = Listed{i, !may}
		}
		return list, err
	})
	return list, fault.While(err, "listing invitations")
}

// Expired reports whether the link of an invitation is too old.
func Expired(i store.Invitation, now time.Time) bool { return now.After(i.ExpiresAt) }

// Revoke makes the link of an invitation invalid.
func (s *Service) Revoke(ctx context.Context, org store.Organization, id string) error {
	missing := fault.NotFound("%s has no invitation %q", org.Name, termtext.OneLine(id, maxInvitee))
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		i, err := tx.Invitation(org.ID, id)
		if err == nil {
			err = tx.DeleteInvitation(i.ID)
		}
		if err != nil {
			return store.IfMissing(err, missing)
		}
		return record(ctx, tx, audit.InvitationRevoked, i, nil)
	})
	return fault.During(err, "revoking an invitation")
}

// Find returns the invitation of a link that still lets its holder join. For another link, it returns a
// [fault.KindNotFound] error, or a [fault.KindForbidden] error if the maker no longer administers the organization.
func (s *Service) Find(ctx context.Context, secret string) (store.Invitation, error) {
	i, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Invitation, error) { return find(tx, secret) })
	return i, fault.During(err, "looking up an invitation")
}

func find(tx *store.Tx, secret string) (store.Invitation, error) {
	i, err := tx.InvitationByHash(identity.HashToken(secret))
	if errors.Is(err, store.ErrNotFound) || err == nil && Expired(i, tx.Now()) {
		return store.Invitation{}, errLink
	}
	if err != nil {
		return i, err
	}
	may, err := mayInvite(tx, i)
	if err == nil && !may {
		err = fault.Forbidden("%s, who made the invitation, no longer administers %s. Ask another administrator for a new one.", i.Inviter, i.Organization)
	}
	return i, err
}

// Accept lets a user join the organization of an invitation, and uses the invitation up.
func (s *Service) Accept(ctx context.Context, u store.User, secret string) (store.Invitation, error) {
	return s.use(ctx, secret, scope.User(u.ID), func(tx *store.Tx, i store.Invitation) error {
		now, err := tx.User(u.ID)
		if err != nil {
			return err
		}
		return join(audit.As(ctx, actor(now)), tx, i, now)
	})
}

// Newcomer describes the user whom an invitation creates.
type Newcomer struct{ Login, Name string }

// SignUp creates a user who joins the organization of an invitation, and uses the invitation up.
func (s *Service) SignUp(ctx context.Context, n Newcomer, secret string) (u store.User, err error) {
	if err := identity.CheckLogin(n.Login); err != nil {
		return u, err
	}
	u = store.User{ID: identity.NewID(), Login: n.Login, Name: cmp.Or(termtext.OneLine(n.Name, maxInvitee), n.Login)}
	_, err = s.use(ctx, secret, scope.User(u.ID), func(tx *store.Tx, i store.Invitation) error {
		taken, err := tx.LoginTaken(u.Login)
		if err != nil || taken {
			return cmp.Or(err, errTaken(u.Login))
		}
		u.CreatedAt, u.DefaultOrg = tx.Now(), i.Organization
		if err := tx.InsertUser(u); err != nil {
			return store.IfConflict(err, errTaken(u.Login))
		}
		ctx := audit.As(ctx, actor(u))
		entry := audit.Entry{Action: audit.UserCreated, Subject: audit.Subject{Kind: "user", ID: u.ID, Name: u.Login}, Detail: map[string]any{"invitation": i.ID}}
		if err := audit.Record(ctx, tx, entry); err != nil {
			return err
		}
		return join(ctx, tx, i, u)
	})
	return u, err
}

func errTaken(login string) error {
	return fault.Conflict("the login %q is taken; choose another one", login)
}

func actor(u store.User) audit.Actor {
	return audit.Actor{Kind: string(identity.KindUser), ID: u.ID, Name: u.Login}
}

// use calls join with the invitation of a link, and removes the invitation, in one transaction: of several visitors
// with the same link, one joins.
func (s *Service) use(ctx context.Context, secret string, user scope.Set, join func(*store.Tx, store.Invitation) error) (store.Invitation, error) {
	i, err := s.Find(ctx, secret)
	if err != nil {
		return i, err
	}
	err = s.db.Write(ctx, user.And(scope.Organization(i.OrgID)), func(tx *store.Tx) (err error) {
		if i, err = find(tx, secret); err != nil {
			return err
		}
		if err := tx.DeleteInvitation(i.ID); err != nil {
			return store.IfMissing(err, errLink)
		}
		return join(tx, i)
	})
	return i, fault.During(err, "using an invitation")
}

// join adds a user to the organization of an invitation.
func join(ctx context.Context, tx *store.Tx, i store.Invitation, u store.User) error {
	if u.Disabled() {
		return fault.Forbidden("%s is disabled", u.Login)
	}
	err := tx.InsertMember(store.Member{OrgID: i.OrgID, UserID: u.ID, Role: i.Role, CreatedAt: tx.Now()})
	if err != nil {
		return store.IfConflict(err, fault.Conflict("%s is already a member of %s", u.Login, i.Organization))
	}
	if u.DefaultOrg == "" {
		if err := tx.SetDefaultOrg(u.ID, i.Organization); err != nil {
			return err
		}
	}
	return audit.Record(ctx, tx, audit.Entry{
		OrgID: i.OrgID, Action: audit.MemberAdded, Subject: audit.Subject{Kind: "user", ID: u.ID, Name: u.Login},
		Detail: map[string]any{"role": i.Role, "invitation": i.ID, "invitedBy": i.Inviter},
	})
}

// Sweep removes invitations that expired more than 30 days ago.
func (s *Service) Sweep(ctx context.Context) error {
	return s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteOldInvitations(tx.Now().Add(-keep), limit)
	})
}
