package integrations

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// Bound is the repository of an integration that a stack watches.
type Bound struct {
	Watch    store.VCSWatch
	Provider string
	CloneURL string
	// NamedURL is the address that follows from the name in the settings. It differs from CloneURL if
	// the repository was renamed.
	NamedURL string
}

// From reports whether settings take the program from the bound repository.
func (b Bound) From(set *workflow.Settings) bool {
	return set.FromRepository(b.CloneURL) || b.NamedURL != "" && set.FromRepository(b.NamedURL)
}

// Same reports whether triggers mean the bound repository.
func (b Bound) Same(t workflow.Triggers) bool {
	return t.Provider == b.Provider && NameKey(t.Provider, t.Repository) == NameKey(b.Provider, b.Watch.Name)
}

// Bound returns the repository that a stack watches. ok is not set if it watches none.
func (s *Service) Bound(tx *store.Tx, stackID string) (b Bound, ok bool, err error) {
	if b.Watch, err = tx.Watch(stackID); errors.Is(err, store.ErrNotFound) {
		return b, false, nil
	} else if err != nil {
		return b, false, err
	}
	i, err := tx.Integration(b.Watch.IntegrationID)
	if err != nil {
		return b, false, err
	}
	b.Provider = i.Provider
	if b.NamedURL, err = CloneURL(i, b.Watch.Name); err != nil || b.Watch.RepoID == "" {
		b.CloneURL = b.NamedURL
		return b, err == nil, err
	}
	r, err := tx.Repo(b.Watch.RepoID)
	b.CloneURL = r.CloneURL
	return b, err == nil, err
}

// CloneURL returns the address of a repository of an integration, which forges derive from its name.
func CloneURL(i store.VCSIntegration, name string) (string, error) {
	base, path := strings.TrimRight(i.BaseURL, "/"), strings.Trim(name, "/")
	if clean, err := workflow.RepositoryName(i.Provider, path); err == nil && i.Provider == vcs.ProviderAzure {
		path = clean
	}
	switch i.Provider {
	case vcs.ProviderAzure:
		parts := strings.Split(path, "/")
		if len(parts) != 3 {
			return "", fault.Invalid("vcs.repository must have the form organization/project/repository for azure_devops")
		}
		path = parts[0] + "/" + parts[1] + "/_git/" + parts[2]
	case vcs.ProviderCustom:
		if !strings.Contains(base, "://") { // user@host:path
			return base + "/" + path, nil
		}
	default:
		path = strings.TrimSuffix(path, ".git") + ".git"
	}
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("parsing the address of integration %s: %w", i.ID, err)
	}
	return u.JoinPath(strings.Split(path, "/")...).String(), nil
}

// CloneAuth returns a credential for a repository of an integration. repoID is the id of its row, or
// "" if only the name is known.
func (s *Service) CloneAuth(ctx context.Context, integrationID, repoID, name string) (vcs.Credential, error) {
	var i store.VCSIntegration
	repo := vcs.RepoID{Name: name}
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if i, err = tx.Integration(integrationID); err != nil {
			return err
		}
		if repoID != "" {
			r, err := tx.Repo(repoID)
			if err != nil {
				return err
			}
			repo = vcs.RepoID{ID: r.RemoteID, Name: r.Name}
		}
		return mayClone(tx, i, repoID, repo.Name)
	})
	if err != nil {
		return vcs.Credential{}, store.IfMissing(err, fault.NotFound("the integration with the stack's repository no longer exists"))
	}
	c, err := s.Client(ctx, i)
	if err != nil {
		return vcs.Credential{}, err
	}
	// The job clones by name. Anyone who may create repositories can take the name of one that was renamed.
	if vcs.ForgeKey(i.Provider, i.Flavor) != vcs.FlavorGit || repo.ID == "" {
		found, err := c.Find(ctx, repo.Name)
		if err != nil {
			return vcs.Credential{}, fmt.Errorf("finding the repository %s: %w", repo.Name, err)
		}
		if repo.ID != "" && found.ID != repo.ID {
			return vcs.Credential{}, fault.Forbidden("the forge now has another repository with the name %s, which is not deployed: write the new name of the former one into the settings of the stack", repo.Name)
		}
		repo = found.RepoID
	}
	cred, err := c.CloneAuth(ctx, repo)
	return cred, fault.While(err, "requesting a credential for the repository %s", repo.Name)
}

// mayClone returns an error unless the list of repositories of an integration still contains a
// repository, by its own name or by that in the settings of a stack, because a renamed repository keeps
// its stacks. The list can have changed since the deployment was queued.
func mayClone(tx *store.Tx, i store.VCSIntegration, repoID, name string) error {
	names := []string{name}
	watches, err := tx.WatchesOfRepo(repoID)
	if err != nil {
		return err
	}
	for _, w := range watches {
		names = append(names, w.Name)
	}
	for _, n := range names {
		if _, ok, err := covers(i, n); err != nil || ok {
			return err
		}
	}
	return fault.Forbidden("the integration %s does not contain the repository %s any more, or its list of repositories does not allow it", i.Name, name)
}
