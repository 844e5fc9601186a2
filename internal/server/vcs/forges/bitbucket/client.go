package bitbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
	"workflowagent/internal/server/vcs/forges/site"
)

const (
	cloudURL = "https://bitbucket.org"
	cloudAPI = "https://api.bitbucket.org/2.0"
)

type client struct {
	*site.Site
	workspace string
}

var _ site.Complete = (*client)(nil)

// page is a part of a list.
type page[T any] struct {
	Values []T    `json:"values"`
	Next   string `json:"next"`
}

func (p page[T]) NextPage() string { return p.Next }

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	home := site.Address(c.BaseURL, cloudURL)
	if c.APIURL == "" && home != cloudURL {
		return nil, errors.New("only bitbucket.org is supported: connect Bitbucket Server as a plain git server")
	}
	out, err := site.Connect(c, home, site.Address(c.APIURL, cloudAPI), "x-token-auth")
	if err != nil {
		return nil, err
	}
	return &client{Site: out, workspace: c.Owner}, nil
}

func (c *client) in(repo vcs.RepoID) rest.Resource { return c.Repository("/repositories", repo.Name) }

// Find implements [vcs.Repository].
func (c *client) Find(ctx context.Context, name string) (vcs.Repo, error) {
	var r repository
	if err := c.in(vcs.RepoID{Name: name}).Get(ctx, &r); err != nil {
		return vcs.Repo{}, fmt.Errorf("finding the repository %s: %w", name, err)
	}
	return c.repo(&r), nil
}

func (c *client) repo(r *repository) vcs.Repo {
	out := vcs.Repo{RepoID: r.id(), CloneURL: c.CloneURL(r.FullName)}
	if r.MainBranch != nil {
		out.Branch = r.MainBranch.Name
	}
	return out
}

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, at string) (repos []vcs.Repo, next string, err error) {
	var list page[*repository]
	if _, err := c.Get(ctx, cmp.Or(at, "/repositories"+rest.Path(c.workspace)+"?pagelen=100"), &list); err != nil {
		return nil, "", fmt.Errorf("listing repositories: %w", err)
	}
	return site.Repos(list.Values, c.repo), list.Next, nil
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	return site.Changed(ctx, c.in(repo), change, pullFiles, pushFiles)
}

func pullFiles(ctx context.Context, repo rest.Resource, change vcs.Change) ([]string, bool, error) {
	return readFiles(ctx, repo.At("pullrequests", strconv.Itoa(change.Pull), "diffstat"))
}

func pushFiles(ctx context.Context, repo rest.Resource, change vcs.Change) ([]string, bool, error) {
	var base struct {
		Hash string `json:"hash"`
	}
	err := repo.At("merge-base", change.Before+".."+change.After).Get(ctx, &base)
	if err != nil || base.Hash != change.Before {
		return nil, false, err // no fast-forward
	}
	// The forge names the new commit first.
	return readFiles(ctx, repo.At("diffstat", change.After+".."+change.Before).Query("topic=false"))
}

func readFiles(ctx context.Context, list rest.Resource) (files []string, complete bool, err error) {
	type side struct {
		Path string `json:"path"`
	}
	type stat struct {
		Old *side `json:"old"`
		New *side `json:"new"`
	}
	err = rest.Each(ctx, list.Query("pagelen=100"), func(list page[stat]) (bool, error) {
		for _, s := range list.Values {
			for _, side := range []*side{s.Old, s.New} {
				if side != nil {
					files = rest.AddNames(files, side.Path)
				}
			}
		}
		return true, nil
	})
	return files, err == nil, err
}

// resolve returns the full id of a commit: the forge shortens those of pull requests.
func (c *client) resolve(ctx context.Context, short string, names ...string) (string, error) {
	var failure error
	for _, name := range names {
		var commit struct {
			Hash string `json:"hash"`
		}
		err := c.in(vcs.RepoID{Name: name}).At("commit", short).Get(ctx, &commit)
		if err == nil && strings.HasPrefix(commit.Hash, short) {
			return commit.Hash, nil
		}
		if err != nil && !errors.Is(err, vcs.ErrNotFound) {
			return "", err
		}
		failure = err
	}
	return "", failure
}
