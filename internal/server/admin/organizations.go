package admin

import (
	"context"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/store"
)

// The operations on organizations.
var (
	ListOrganizations    = Operation[None, []Organization]{"organization-list", (*Service).listOrganizations}
	ShowOrganization     = Operation[OrganizationName, Organization]{"organization-show", (*Service).showOrganization}
	CreateOrganization   = Operation[NewOrganization, Organization]{"organization-create", (*Service).createOrganization}
	RenameOrganization   = Operation[NewName, Organization]{"organization-rename", (*Service).renameOrganization}
	DeleteOrganization   = Operation[OldOrganization, Organization]{"organization-delete", (*Service).deleteOrganization}
	SetQuotas            = Operation[Quotas, Organization]{"organization-quota", (*Service).setQuotas}
	AppointAdministrator = Operation[Appointment, None]{"organization-appoint", (*Service).appoint}
)

// Organization is an organization with the numbers of what belongs to it.
type Organization = organizations.Description

// NewOrganization is an organization to create.
type NewOrganization struct {
	Name string `json:"name"`
	// Admin is the login of its first administrator.
	Admin string `json:"admin"`
	// ReuseName permits the name of a deleted organization.
	ReuseName bool `json:"reuseName,omitempty"`
}

// OrganizationName names an organization, or is a former name.
type OrganizationName struct {
	Name string `json:"name"`
}

// NewName is a change of a name.
type NewName struct {
	Name string `json:"name"`
	To   string `json:"to"`
}

// OldOrganization is an organization to delete. Typed repeats its name.
type OldOrganization struct {
	Name  string `json:"name"`
	Typed string `json:"typed"`
}

// Quotas are limits of an organization; see [organizations.Quotas].
type Quotas struct {
	Name        string `json:"name"`
	Storage     *int64 `json:"storage,omitempty"`
	Deployments *int64 `json:"deployments,omitempty"`
}

// Appointment makes a user an administrator of an organization.
type Appointment struct {
	Name  string `json:"name"`
	Login string `json:"login"`
}

func (s *Service) listOrganizations(ctx context.Context, _ None) ([]Organization, error) {
	summaries, err := s.Organizations.List(ctx)
	list := make([]Organization, len(summaries))
	for i, o := range summaries {
		list[i] = o.Describe()
	}
	return list, err
}

func (s *Service) showOrganization(ctx context.Context, q OrganizationName) (Organization, error) {
	o, err := s.Organizations.Get(ctx, q.Name)
	return o.Describe(), err
}

func (s *Service) createOrganization(ctx context.Context, q NewOrganization) (Organization, error) {
	create := s.Identity.CreateOrganization
	if q.ReuseName {
		create = s.Identity.CreateWithRetiredName
	}
	o, err := create(ctx, q.Name, q.Admin)
	if err != nil {
		return Organization{}, err
	}
	return s.showOrganization(ctx, OrganizationName{o.Name})
}

func (s *Service) renameOrganization(ctx context.Context, q NewName) (Organization, error) {
	o, err := s.Identity.Named(ctx, q.Name)
	if err == nil {
		o, err = s.Identity.RenameOrganization(ctx, operator, o.ID, q.To)
	}
	if err != nil {
		return Organization{}, err
	}
	return s.showOrganization(ctx, OrganizationName{o.Name})
}

func (s *Service) deleteOrganization(ctx context.Context, q OldOrganization) (Organization, error) {
	o, err := s.Organizations.Get(ctx, q.Name)
	if err != nil {
		return Organization{}, err
	}
	deleted, lost, err := s.Organizations.Delete(ctx, o.ID, q.Typed)
	return organizations.Summary{Organization: deleted, Former: o.Former, Content: lost}.Describe(), err
}

func (s *Service) setQuotas(ctx context.Context, q Quotas) (Organization, error) {
	o, err := s.Organizations.SetQuotas(ctx, q.Name, organizations.Quotas{Storage: q.Storage, Deployments: q.Deployments})
	return o.Describe(), err
}

func (s *Service) appoint(ctx context.Context, q Appointment) (None, error) {
	o, err := s.organization(ctx, q.Name)
	if err == nil {
		err = s.Identity.Appoint(ctx, o, q.Login)
	}
	return None{}, err
}

// organization returns the organization with a name, or the only one if the name is "".
func (s *Service) organization(ctx context.Context, name string) (store.Organization, error) {
	found, err := s.organizations(ctx, name)
	if err != nil {
		return store.Organization{}, err
	}
	if len(found) == 1 {
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, o := range found {
		names[i] = o.Name
	}
	return store.Organization{}, fault.Invalid("the server has several organizations; choose one with --org: %s", strings.Join(names, ", "))
}

// organizations returns the organization with a name, or all organizations if the name is "".
func (s *Service) organizations(ctx context.Context, name string) ([]store.Organization, error) {
	if name == "" {
		return s.Identity.Organizations(ctx)
	}
	o, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName(name) })
	if err != nil {
		return nil, store.IfMissing(err, fault.NotFound("the organization %q does not exist", name))
	}
	return []store.Organization{o}, nil
}
