package admin

import (
	"context"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// The operations on organizations.
var (
	ListOrganizations  = Operation[None, []Organization]{"organization-list", (*Service).listOrganizations}
	CreateOrganization = Operation[NewOrganization, Organization]{"organization-create", (*Service).createOrganization}
	RenameOrganization = Operation[NewName, Organization]{"organization-rename", (*Service).renameOrganization}
)

// Organization is an organization in a list.
type Organization struct {
	Name        string    `json:"name"`
	ID          string    `json:"id"`
	Members     int64     `json:"members"`
	Stacks      int64     `json:"stacks"`
	FormerNames []string  `json:"formerNames"`
	Created     time.Time `json:"created"`
}

// NewOrganization is an organization to create.
type NewOrganization struct {
	Name string `json:"name"`
	// Admin is the login of its first administrator.
	Admin string `json:"admin"`
}

// NewName is a change of a name.
type NewName struct {
	Name string `json:"name"`
	To   string `json:"to"`
}

func (s *Service) listOrganizations(ctx context.Context, _ None) ([]Organization, error) {
	summaries, err := s.Identity.OrganizationSummaries(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Organization, len(summaries))
	for i, o := range summaries {
		list[i] = Organization{Name: o.Name, ID: o.ID, Members: o.Members, Stacks: o.Stacks, FormerNames: append([]string{}, o.Former...), Created: o.CreatedAt}
	}
	return list, nil
}

func (s *Service) createOrganization(ctx context.Context, q NewOrganization) (Organization, error) {
	o, err := s.Identity.CreateOrganization(ctx, q.Name, q.Admin)
	return Organization{Name: o.Name, ID: o.ID, Members: 1, FormerNames: []string{}, Created: o.CreatedAt}, err
}

func (s *Service) renameOrganization(ctx context.Context, q NewName) (Organization, error) {
	o, err := s.Identity.RenameOrganization(ctx, q.Name, q.To)
	if err != nil {
		return Organization{}, err
	}
	list, err := s.listOrganizations(ctx, None{})
	for _, found := range list {
		if found.ID == o.ID {
			return found, nil
		}
	}
	return Organization{Name: o.Name, ID: o.ID}, err
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
