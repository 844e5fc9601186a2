package identity

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// checkOrgName returns an error if an organization cannot have a name.
func checkOrgName(name string) error {
	if links.Reserved(name) {
		return fmt.Errorf("the organization name %q is reserved for the server's own pages: choose another name", name)
	}
	if !orgNamePattern.MatchString(name) {
		return fmt.Errorf("the organization name %q is not valid: use up to 40 letters, digits, '-' and '_', beginning with a letter or digit", name)
	}
	return nil
}

// insertOrganization adds an organization with its first administrator.
func insertOrganization(ctx context.Context, tx *store.Tx, id, name string, admin store.User) (store.Organization, error) {
	now := tx.Now()
	o := store.Organization{ID: id, Name: name, DisplayName: name, CreatedAt: now, StackPermission: store.WritePermission}
	if err := tx.InsertOrganization(o); err != nil {
		return o, err
	}
	if err := tx.InsertMember(store.Member{OrgID: o.ID, UserID: admin.ID, Role: RoleAdmin, CreatedAt: now}); err != nil {
		return o, err
	}
	return o, audit.Record(ctx, tx, audit.Entry{
		OrgID: o.ID, Action: audit.OrganizationCreated, Subject: audit.Subject{Kind: "organization", ID: o.ID, Name: o.Name},
		Detail: map[string]any{"admin": admin.Login},
	})
}

// CreateOrganization creates an organization whose first administrator is an existing user. Names
// that differ only in case are refused, because people cannot tell them apart.
func (s *Service) CreateOrganization(ctx context.Context, name, admin string) (o store.Organization, err error) {
	if err := checkOrgName(name); err != nil {
		return o, fault.Invalid("%v", err)
	}
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.User, error) { return tx.UserByLogin(admin) })
	if errors.Is(err, store.ErrNotFound) {
		return o, fault.NotFound("the user %q does not exist; the server's operator creates users with \"workflow-server user create\"", admin)
	}
	id := NewID()
	if err == nil {
		err = s.db.Write(ctx, scope.User(u.ID).And(scope.Organization(id)), func(tx *store.Tx) error {
			u, err := tx.User(u.ID)
			if err != nil {
				return err
			}
			o, err = insertOrganization(ctx, tx, id, name, u)
			if err == nil && u.DefaultOrg == "" {
				err = tx.SetDefaultOrg(u.ID, o.Name)
			}
			return err
		})
	}
	switch {
	case errors.Is(err, store.ErrConflict):
		return o, fault.Conflict("the organization %q already exists", name)
	case err != nil && fault.KindOf(err) == "":
		err = fmt.Errorf("creating an organization: %w", err)
	}
	return o, err
}

// Organizations returns all organizations, oldest first.
func (s *Service) Organizations(ctx context.Context) ([]store.Organization, error) {
	orgs, err := store.Read(ctx, s.db, (*store.Tx).Organizations)
	return orgs, fault.While(err, "listing organizations")
}
