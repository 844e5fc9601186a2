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
	"workflowagent/internal/workflow"
)

// checkOrgName returns an error if an organization cannot have a name.
func checkOrgName(name string) error {
	if links.Reserved(name) {
		return fmt.Errorf("the organization name %q is reserved for the server's own pages: choose another name", name)
	}
	if !workflow.MadeOf(name, 40, "", "_-") {
		return fmt.Errorf("the organization name %q is not valid: use up to 40 letters, digits, '-' and '_', beginning with a letter or digit", name)
	}
	return nil
}

// insertOrganization adds an organization with its first administrator.
func insertOrganization(ctx context.Context, tx *store.Tx, id, name string, admin store.User) (store.Organization, error) {
	now := tx.Now()
	o := store.Organization{ID: id, Name: name, DisplayName: name, CreatedAt: now, StackPermission: store.WritePermission, ProjectReads: true, EnvironmentPermission: store.OpenEnvironment}
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
// that differ only in case are refused, because people cannot tell them apart, and names of deleted organizations, because
// cloud providers can still trust them.
func (s *Service) CreateOrganization(ctx context.Context, name, admin string) (store.Organization, error) {
	return s.createOrganization(ctx, name, admin, false)
}

// CreateWithRetiredName is [Service.CreateOrganization] for a name that a deleted organization can have had.
func (s *Service) CreateWithRetiredName(ctx context.Context, name, admin string) (store.Organization, error) {
	return s.createOrganization(ctx, name, admin, true)
}

func (s *Service) createOrganization(ctx context.Context, name, admin string, retired bool) (o store.Organization, err error) {
	if err := checkOrgName(name); err != nil {
		return o, fault.Invalid("%v", err)
	}
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.User, error) { return tx.UserByLogin(admin) })
	if errors.Is(err, store.ErrNotFound) {
		return o, fault.NotFound("the user %q does not exist; the server's operator creates users with \"workflow-server user create\"", admin)
	}
	id := NewID()
	owners := scope.User(u.ID).And(scope.Organization(id))
	if retired {
		owners = owners.And(scope.Server())
	}
	if err == nil {
		err = s.db.Write(ctx, owners, func(tx *store.Tx) error {
			u, err := tx.User(u.ID)
			if err != nil {
				return err
			}
			if retired {
				if _, err := tx.FreeName(name); err != nil {
					return err
				}
			} else if err := checkRetired(tx, name); err != nil {
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
		return o, taken(name)
	case err != nil && fault.KindOf(err) == "":
		err = fmt.Errorf("creating an organization: %w", err)
	}
	return o, err
}

// checkRetired returns an error if a deleted organization had a name.
func checkRetired(tx *store.Tx, name string) error {
	had, err := tx.HadName(name)
	if err == nil && had {
		err = fault.Conflict("a deleted organization had the name %q, and cloud providers can still trust identity tokens with it; choose another name, or let the server's operator create it: workflow-server org create --reuse-name", name)
	}
	return err
}

// Organizations returns all organizations, oldest first.
func (s *Service) Organizations(ctx context.Context) ([]store.Organization, error) {
	orgs, err := store.Read(ctx, s.db, (*store.Tx).Organizations)
	return orgs, fault.While(err, "listing organizations")
}

// taken is the error of a name that another organization has or has had.
func taken(name string) error {
	return fault.Conflict("the organization %q already exists, or another organization had this name before", name)
}

// mostFormerNames bounds the names that an organization's administrators can keep from others.
const mostFormerNames = 20

// RenameOrganization changes the name of an organization on behalf of one of its administrators or the server's. Its
// former name still finds it: the secrets in stored states, programs, and running clients name it. The subjects of
// identity tokens contain the new name at once.
func (s *Service) RenameOrganization(ctx context.Context, p Principal, id, to string) (o store.Organization, err error) {
	if err := checkOrgName(to); err != nil {
		return o, fault.Invalid("%v", err)
	}
	err = s.db.Write(ctx, scope.Server().And(scope.Organization(id)), func(tx *store.Tx) error {
		before, err := tx.Organization(id)
		if err != nil {
			return store.IfMissing(err, fault.NotFound("the organization does not exist any more"))
		}
		if before.Name == to {
			return fault.Invalid("the organization already has the name %q", to)
		}
		former, err := tx.CountFormerNames(id)
		if err != nil {
			return err
		}
		if former >= mostFormerNames && !p.operator {
			return fault.Conflict("the organization %q has %d former names, which nothing else can have; only the server's operator can rename it again: workflow-server org rename", before.Name, former)
		}
		if err := checkRetired(tx, to); err != nil {
			return err
		}
		if err := tx.RenameOrganization(before, to, tx.Now()); err != nil {
			return store.IfConflict(err, taken(to))
		}
		if o, err = tx.Organization(before.ID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: o.ID, Action: audit.OrganizationRenamed, Subject: audit.Subject{Kind: "organization", ID: o.ID, Name: o.Name},
			Detail: map[string]any{"from": before.Name},
		})
	})
	return o, fault.During(err, "renaming an organization")
}

func noOrganization(name string) error {
	return fault.NotFound("the organization %q does not exist", name)
}
