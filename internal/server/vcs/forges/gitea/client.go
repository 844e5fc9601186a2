package gitea

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/rest"
	"workflowagent/internal/server/vcs/forges/site"
)

type client struct{ githublike.Site }

var _ site.Complete = (*client)(nil)

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	home := site.Address(c.BaseURL, "")
	out, err := site.Connect(c, home, site.Address(c.APIURL, home+"/api/v1"), "x-access-token")
	if err != nil {
		return nil, err
	}
	out.Header = site.Authorization("token " + c.Credential.Password)
	return &client{githublike.Site{Site: out}}, nil
}

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, page string) (repos []vcs.Repo, next string, err error) {
	var list []*githublike.Repository
	res, err := c.Get(ctx, cmp.Or(page, "/user/repos?limit=50"), &list)
	if err != nil {
		return nil, "", fmt.Errorf("listing repositories: %w", err)
	}
	return site.Repos(list, c.Repo), res.Next, nil
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	return site.Changed(ctx, c.In(repo), change, pullFiles, pushFiles)
}

func pullFiles(ctx context.Context, repo rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	at := repo.At("pulls", strconv.Itoa(change.Pull), "files").Query("limit=50")
	err = rest.Each(ctx, at, func(page []githublike.ChangedFile) (bool, error) {
		files = githublike.AddFiles(files, page)
		return true, nil
	})
	return files, err == nil, err
}

// pushFiles returns the files of all commits of a push. The server compares with the merge base, so
// that commits that only the old head has reveal that the push was no fast-forward.
func pushFiles(ctx context.Context, repo rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	type comparison struct {
		Total   int `json:"total_commits"`
		Commits []struct {
			Files []githublike.ChangedFile `json:"files"`
		} `json:"commits"`
	}
	var removed, added comparison
	if err := repo.At("compare", change.After+"..."+change.Before).Get(ctx, &removed); err != nil || removed.Total > 0 {
		return nil, false, err
	}
	err = repo.At("compare", change.Before+"..."+change.After).Get(ctx, &added)
	for _, commit := range added.Commits {
		files = githublike.AddFiles(files, commit.Files)
	}
	return files, added.Total == len(added.Commits), err
}
