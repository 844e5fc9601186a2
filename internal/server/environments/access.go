package environments

import (
	"context"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Access is who has which permission on an environment, besides administrators of the organization.
type Access struct {
	Default store.EnvironmentPermission // of members of the organization
	Teams   []store.EnvironmentTeam
}

// Access returns the permissions on an environment.
func (s *Service) Access(ctx context.Context, e store.Environment) (Access, error) {
	out := Access{Default: e.OrgPermission}
	teams, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EnvironmentTeam, error) { return tx.EnvironmentTeams(e.ID) })
	out.Teams = teams
	return out, fault.While(err, "reading the permissions on an environment")
}

// Projects returns the first projects of environments that the caller sees in an organization.
func (s *Service) Projects(ctx context.Context, p identity.Principal, orgID string, limit int) ([]string, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) {
		return tx.EnvironmentProjects(orgID, p.EnvironmentReach(orgID), limit)
	})
	return list, fault.While(err, "listing the projects of environments")
}

// Imports returns the environments that a revision names directly, by name.
func (s *Service) Imports(ctx context.Context, e store.Environment, number int64) ([]Reference, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EnvironmentImport, error) { return tx.EnvironmentImports(e.ID, number) })
	var out []Reference
	for _, i := range list {
		r := Reference{Project: i.Project, Name: i.Name, Version: i.Version}
		if r.Version == store.LatestVersion {
			r.Version = ""
		}
		out = append(out, r)
	}
	return out, fault.While(err, "reading the imports of an environment")
}

// PutVersionTag lets a name name a revision, whether or not the name exists. It returns the number of the revision that it named
// before, or 0.
func (s *Service) PutVersionTag(ctx context.Context, p identity.Principal, e store.Environment, name string, number int64) (before int64, err error) {
	t, err := s.VersionTag(ctx, e, name)
	if fault.KindOf(err) != fault.KindNotFound && err != nil {
		return 0, err
	}
	return t.Number, s.SetVersionTag(ctx, p, e, name, number, err != nil)
}
