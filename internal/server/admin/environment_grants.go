package admin

import (
	"context"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/store"
)

// The operations on grants, which let jobs of stacks open an environment.
var (
	ListEnvironmentGrants  = Operation[EnvironmentNamed, EnvironmentGrants]{"environment-grant-list", (*Service).listEnvironmentGrants}
	AddEnvironmentGrant    = Operation[NewEnvironmentGrant, AddedEnvironmentGrant]{"environment-grant-add", (*Service).addEnvironmentGrant}
	RemoveEnvironmentGrant = Operation[EnvironmentGrantOf, None]{"environment-grant-remove", (*Service).removeEnvironmentGrant}
)

// EnvironmentNamed is an environment, as organization/project/environment.
type EnvironmentNamed struct {
	Environment string `json:"environment"`
}

// EnvironmentGrants are the grants of an environment, and the packs of policy groups whose evaluations open it.
type EnvironmentGrants struct {
	OpenedBy    []Grant          `json:"openedBy"`
	PolicyPacks []store.PackName `json:"policyPacks"`
}

// NewEnvironmentGrant is a grant of an environment; see [NewGrant].
type NewEnvironmentGrant struct {
	Environment string `json:"environment"`
	ToStack     string `json:"toStack,omitempty"`
	ToProject   string `json:"toProject,omitempty"`
	ToTag       string `json:"toTag,omitempty"`
	Previews    bool   `json:"previews,omitempty"`
}

// AddedEnvironmentGrant is a grant with the stacks that it covers now, at most 100.
type AddedEnvironmentGrant struct {
	AddedGrant
	// Ungranted are what the environment imports, and of which no grant has the same target.
	Ungranted []string `json:"ungranted"`
}

// EnvironmentGrantOf is a grant of an environment.
type EnvironmentGrantOf struct {
	Environment string `json:"environment"`
	ID          string `json:"id"`
}

func (s *Service) environment(ctx context.Context, name string) (store.Environment, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return store.Environment{}, fault.Invalid("%q is not the name of an environment: write it as ORGANIZATION/PROJECT/ENVIRONMENT", name)
	}
	return s.Environments.Find(ctx, operator, store.AdminEnvironment, parts[0], parts[1], parts[2])
}

func (s *Service) listEnvironmentGrants(ctx context.Context, q EnvironmentNamed) (EnvironmentGrants, error) {
	out := EnvironmentGrants{OpenedBy: []Grant{}}
	e, err := s.environment(ctx, q.Environment)
	if err != nil {
		return out, err
	}
	list, err := s.Grants.Given(ctx, grants.OfEnvironment(e))
	if err != nil {
		return out, err
	}
	for _, g := range list {
		out.OpenedBy = append(out.OpenedBy, grantOf(g))
	}
	out.PolicyPacks, err = s.Grants.Packs(ctx, e)
	return out, err
}

func (s *Service) addEnvironmentGrant(ctx context.Context, q NewEnvironmentGrant) (AddedEnvironmentGrant, error) {
	e, err := s.environment(ctx, q.Environment)
	if err != nil {
		return AddedEnvironmentGrant{}, err
	}
	made, added, err := s.give(ctx, operator, grants.OfEnvironment(e), NewGrant{ToStack: q.ToStack, ToProject: q.ToProject, ToTag: q.ToTag, Previews: q.Previews})
	if err != nil {
		return AddedEnvironmentGrant{}, err
	}
	ungranted, err := s.Grants.Ungranted(ctx, operator, e, made)
	return AddedEnvironmentGrant{added, append([]string{}, ungranted...)}, err
}

func (s *Service) removeEnvironmentGrant(ctx context.Context, q EnvironmentGrantOf) (None, error) {
	e, err := s.environment(ctx, q.Environment)
	if err != nil {
		return None{}, err
	}
	return None{}, s.Grants.Remove(ctx, grants.OfEnvironment(e), q.ID)
}
