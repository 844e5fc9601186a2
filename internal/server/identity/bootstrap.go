package identity

import (
	"context"
	"errors"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// AdminLogin is the login of the user that the server creates at its first start.
const AdminLogin = "admin"

// ErrNothingToDo reports that the installation already has an organization.
var ErrNothingToDo = errors.New("the installation is already set up")

// Bootstrap creates an organization, its administrator and an access token in an empty database, or
// returns [ErrNothingToDo]. deliver receives the token before the commit, so that the token cannot
// be lost. If deliver fails, nothing is created.
func (s *Service) Bootstrap(ctx context.Context, org string, deliver func(text string) error) error {
	if err := checkOrgName(org); err != nil {
		return err
	}
	orgs, err := s.Organizations(ctx)
	if err != nil {
		return err
	}
	if len(orgs) > 0 {
		return ErrNothingToDo
	}
	text, hash := NewToken()
	if err := deliver(text); err != nil {
		return err
	}
	now := time.Now().UTC()
	u := store.User{ID: NewID(), Login: AdminLogin, Name: "Administrator", Email: "admin@localhost", SiteAdmin: true, DefaultOrg: org, CreatedAt: now}
	err = s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		if orgs, err := tx.Organizations(); err != nil || len(orgs) > 0 {
			return errors.Join(err, ErrNothingToDo)
		}
		if err := tx.InsertUser(u); err != nil {
			return err
		}
		if _, err := insertOrganization(ctx, tx, NewID(), org, u); err != nil {
			return err
		}
		return tx.InsertToken(store.Token{
			ID: NewID(), Hash: hash, Kind: store.PersonalToken, Description: "created by the first start of the server",
			UserID: u.ID, CreatedBy: u.ID, CreatedAt: now,
		})
	})
	if errors.Is(err, ErrNothingToDo) {
		return ErrNothingToDo
	}
	return fault.While(err, "setting up the installation")
}

// UserByLogin returns the user with the given login.
func (s *Service) UserByLogin(ctx context.Context, login string) (store.User, error) {
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.User, error) { return tx.UserByLogin(login) })
	return u, store.IfMissing(err, noUser(login))
}
