package sources

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// repository is the repository of a source.
type repository struct {
	src         store.EnvironmentSource
	integration store.VCSIntegration
	org         store.Organization
	client      vcs.Repository
	repo        vcs.Repo
}

// open returns the repository of a source. Its id counts: who may create repositories can take the name of one that was
// renamed or deleted.
func (s *Service) open(ctx context.Context, src store.EnvironmentSource) (*repository, error) {
	r := &repository{src: src}
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if r.integration, err = tx.Integration(src.IntegrationID); err != nil {
			return err
		}
		r.org, err = tx.Organization(src.OrgID)
		return err
	})
	if err != nil {
		return nil, err
	}
	// The integration's list can have changed since the source was set.
	if _, ok, err := integrations.Covers(r.integration, src.Repository); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("the integration %s no longer allows the repository %s: %w", r.integration.Name, src.Repository, vcs.ErrForeign))
	}
	if r.client, err = s.opts.Integrations.Client(ctx, r.integration); err != nil {
		return nil, err
	}
	if r.repo, err = r.client.Find(ctx, integrations.NameKey(r.integration.Provider, src.Repository)); err != nil {
		return nil, fmt.Errorf("finding the repository %s: %w", src.Repository, err)
	}
	if src.RemoteID != "" && r.repo.ID != src.RemoteID {
		return nil, fmt.Errorf("the forge now has another repository with the name %s, from which no environment is taken: set the source again", src.Repository)
	}
	return r, nil
}

// head returns the newest commit of the branch.
func (r *repository) head(ctx context.Context) (string, error) {
	ref := vcs.BranchPrefix + r.src.Branch
	refs, err := r.client.Refs(ctx, r.repo.RepoID, []string{ref})
	if err != nil {
		return "", fmt.Errorf("reading the branch %s: %w", r.src.Branch, err)
	}
	for _, known := range refs {
		if known.Name == ref {
			return vcs.Commit(known.Commit), nil
		}
	}
	return "", fmt.Errorf("the repository %s has no branch %s: %w", r.repo.Name, r.src.Branch, vcs.ErrNotFound)
}

// files returns the definitions of a commit.
func (r *repository) files(ctx context.Context, commit string) ([]source.File, error) {
	reader, ok := r.client.(vcs.Reader)
	if !ok {
		return nil, errors.New("this kind of forge cannot be read")
	}
	found, err := reader.ReadFiles(ctx, r.repo.RepoID, commit, r.src.Folder, source.Wanted)
	list := make([]source.File, 0, len(found))
	for _, f := range found {
		list = append(list, source.File{Path: f.Path, Definition: f.Content})
	}
	return list, err
}

// shortened is the length of the part of a commit's id that names it for users.
const shortened = 12

// principal returns who changes environments because of a commit.
func (r *repository) principal(commit string) identity.Principal {
	return identity.ForRepository(r.org.ID, "git "+r.src.Repository+"@"+commit[:min(len(commit), shortened)])
}

// maxChecks bounds the definitions of a pull request that are evaluated.
const maxChecks = 100

// planOf returns what a commit changes. That of a pull request is closed: it shows nothing of the server's definitions.
func (s *Service) planOf(ctx context.Context, r *repository, commit string, pull bool) (source.Plan, error) {
	share := budget.Of(ctx)
	held := share.Held()
	defer func() { share.Give(share.Held() - held) }() // what was read
	files, err := r.files(ctx, commit)
	if err != nil {
		return source.Plan{}, err
	}
	o := source.Options{Closed: pull, Differences: !pull}
	if pull {
		o.MaxChecks = maxChecks
	}
	if r.src.Deletes && !pull {
		came, err := s.origins(ctx, r.org.ID)
		if err != nil {
			return source.Plan{}, err
		}
		o.Deletes = func(e store.Environment) bool { return came[e.ID].EnvironmentID != "" }
	}
	return s.opts.Sources.Plan(ctx, r.principal(commit), r.org, files, o)
}

// origins returns the environments that came from the repository, by their ids.
func (s *Service) origins(ctx context.Context, orgID string) (map[string]store.EnvironmentOrigin, error) {
	rows, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EnvironmentOrigin, error) { return tx.EnvironmentOrigins(orgID) })
	came := map[string]store.EnvironmentOrigin{}
	for _, o := range rows {
		came[o.EnvironmentID] = o
	}
	return came, err
}
