package grants

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// unopened begins the message to the job of a deployment that may not open an environment. Packages joblog and cause find it
// in the job's log.
const unopened = "this deployment may not open environment "

// EnvironmentRefusal returns the error for a job that may not open an environment of its organization: which grant is missing,
// and who can give it. It does not reveal whether the environment exists, unless a grant of it covers updates of the job's
// stack. The error is [fault.KindForbidden] for the reason of [Refusal].
func EnvironmentRefusal(tx *store.Tx, p identity.Principal, project, name string) error {
	target := p.Org.Name + "/" + project + "/" + name
	if p.DeploymentID == "" {
		return fault.Forbidden("this policy evaluation may not open environment %s: it does not exist, or no policy pack of the evaluated policy group names it. "+
			"An administrator of %s can add it to the environments of the pack; what an environment imports must be named, too", target, p.Org.Name)
	}
	reader, err := tx.Stack(p.StackID)
	var d store.Deployment
	if err == nil {
		d, err = tx.Deployment(p.DeploymentID)
	}
	if err != nil {
		return store.IfMissing(err, p.NoEnvironment(p.Org.Name, project, name)) // the job's stack was deleted
	}
	var list []store.Grant
	switch e, err := tx.EnvironmentFor(p.Org.Name, project, name, "", ""); {
	case err == nil && e.OrgID == p.Org.ID:
		if list, err = tx.GrantsBetween(store.EnvironmentGrants, e.ID, reader.ID); err != nil {
			return err
		}
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	}
	who := "it does not exist, or "
	if p.Scope[identity.Environments] != 0 && p.User.Login != "" {
		who = fmt.Sprintf("it does not exist, or %s, who requested the deployment, may not open it, and ", p.User.Login)
	}
	way := "An administrator of the environment can grant it with: workflow-server environment grant add " + target
	narrow := slices.ContainsFunc(list, func(g store.Grant) bool { return !g.Excluded })
	switch {
	case d.Trust == store.TrustNone:
		return fault.Forbidden("%s%s: no grant can cover it, because the deployment runs neither what the settings of %s name nor a branch of their repository, or comes from a fork. "+
			"Deploy what the settings name, or let a user who may open the environment request the deployment", unopened, target, reader.Ref())
	case narrow:
		return fault.Forbidden("%s%s: the grant to %s covers only updates that run what the settings of the stack name, and this is a preview or another branch. %s --previews --to-stack %s",
			unopened, target, reader.Ref(), way, reader.Ref())
	case d.Operation == workflow.OperationPreview || d.Trust != store.TrustOwn:
		return fault.Forbidden("%s%s: %sno grant lets previews and branches of %s open it. %s --previews --to-stack %s", unopened, target, who, reader.Ref(), way, reader.Ref())
	default:
		return fault.Forbidden("%s%s: %sno grant lets jobs of %s open it. %s --to-stack %s", unopened, target, who, reader.Ref(), way, reader.Ref())
	}
}

// Packs returns the packs of policy groups for which evaluations open an environment.
func (s *Service) Packs(ctx context.Context, e store.Environment) ([]store.PackName, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.PackName, error) {
		list, err := tx.PacksWithEnvironment(e.ID)
		return append([]store.PackName{}, list...), err
	})
	return out, fault.While(err, "reading the policy packs that use an environment")
}

// maxImports bounds the imports of an environment that [Service.Ungranted] examines, as evaluations do.
const maxImports = 100

// Ungranted returns the environments that the newest revision of an environment imports, also through others, and of which no
// grant has the target of the given one: a grant of an environment covers none of its imports. It names only environments that
// the caller may see, and all of those whose grants the caller may not read.
func (s *Service) Ungranted(ctx context.Context, p identity.Principal, e store.Environment, given store.Grant) ([]string, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return ungranted(tx, p, e, given) })
	return out, fault.While(err, "searching the grants of what an environment imports")
}

func ungranted(tx *store.Tx, p identity.Principal, e store.Environment, given store.Grant) ([]string, error) {
	var missing []string
	seen := map[string]bool{e.ID: true}
	for next := []store.Environment{e}; len(next) > 0 && len(seen) <= maxImports; next = next[1:] {
		imports, err := tx.EnvironmentImports(next[0].ID, next[0].LastNumber)
		if err != nil {
			return nil, err
		}
		for _, i := range imports {
			other, err := tx.EnvironmentFor(e.OrgName, i.Project, i.Name, p.User.ID, p.TeamID)
			if errors.Is(err, store.ErrNotFound) || err == nil && (seen[other.ID] || other.OrgID != e.OrgID || !p.SeesEnvironment(other)) {
				continue
			}
			if err != nil {
				return nil, err
			}
			seen[other.ID] = true
			if p.OnEnvironment(other) < store.ReadEnvironment { // neither its imports nor its grants are shown
				missing = append(missing, other.Ref())
				continue
			}
			next = append(next, other.Environment)
			has, err := tx.Grants(store.EnvironmentGrants, other.ID)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(has, func(g store.Grant) bool { return TargetOf(g) == TargetOf(given) && (g.Previews || !given.Previews) }) {
				missing = append(missing, other.Ref())
			}
		}
	}
	slices.Sort(missing)
	return missing, nil
}
