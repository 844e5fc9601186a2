package gitlab

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
	"workflowagent/internal/server/vcs/forges/site"
)

const cloudURL = "https://gitlab.com"

// maxCompared is the smallest limit of files in a comparison that a server can have.
const maxCompared = 1000

type client struct {
	*site.Site
	group string
}

var _ site.Complete = (*client)(nil)

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	home := site.Address(c.BaseURL, cloudURL)
	out, err := site.Connect(c, home, site.Address(c.APIURL, home+"/api/v4"), "oauth2")
	if err != nil {
		return nil, err
	}
	return &client{Site: out, group: c.Owner}, nil
}

// in returns the resource of a project. Its id is valid in spite of renames.
func (c *client) in(repo vcs.RepoID) rest.Resource { return c.At("projects", repo.ID) }

// Find implements [vcs.Repository]. The server redirects the old name of a renamed project.
func (c *client) Find(ctx context.Context, name string) (vcs.Repo, error) {
	if err := rest.CheckName(name); err != nil {
		return vcs.Repo{}, err
	}
	var p project
	if _, err := c.Get(ctx, "/projects"+rest.Path(name), &p); err != nil {
		return vcs.Repo{}, fmt.Errorf("finding the project %s: %w", name, err)
	}
	return c.repo(&p), nil
}

func (c *client) repo(p *project) vcs.Repo {
	return vcs.Repo{RepoID: p.id(), CloneURL: c.CloneURL(p.Path), Branch: p.DefaultBranch}
}

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, page string) (repos []vcs.Repo, next string, err error) {
	if page == "" {
		page = "/projects?membership=true&simple=true&per_page=100"
		if c.group != "" {
			page = "/groups" + rest.Path(c.group) + "/projects?include_subgroups=true&simple=true&per_page=100"
		}
	}
	var list []*project
	res, err := c.Get(ctx, page, &list)
	if err != nil {
		return nil, "", fmt.Errorf("listing projects: %w", err)
	}
	return site.Repos(list, c.repo), res.Next, nil
}

type changedFile struct {
	Old string `json:"old_path"`
	New string `json:"new_path"`
}

func addFiles(files []string, more []changedFile) []string {
	for _, f := range more {
		files = rest.AddNames(files, f.Old, f.New)
	}
	return files
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	return site.Changed(ctx, c.in(repo), change, mergeFiles, pushFiles)
}

func pushFiles(ctx context.Context, project rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	var base struct {
		ID string `json:"id"`
	}
	query := url.Values{"refs[]": {change.Before, change.After}}
	err = project.At("repository", "merge_base").Query(query.Encode()).Get(ctx, &base)
	if rest.IsStatus(err, 400) || err == nil && base.ID != change.Before {
		return nil, false, nil // no fast-forward, or a commit that no ref contains
	}
	if err != nil {
		return nil, false, err
	}
	var answer struct {
		Diffs   []changedFile `json:"diffs"`
		Timeout bool          `json:"compare_timeout"`
	}
	query = url.Values{"from": {change.Before}, "to": {change.After}, "straight": {"true"}}
	err = project.At("repository", "compare").Query(query.Encode()).Get(ctx, &answer)
	return addFiles(nil, answer.Diffs), !answer.Timeout && len(answer.Diffs) < maxCompared, err
}

func mergeFiles(ctx context.Context, project rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	request := project.At("merge_requests", strconv.Itoa(change.Pull))
	var m merge
	if err := request.Get(ctx, &m); err != nil {
		return nil, false, err
	}
	err = rest.Each(ctx, request.At("diffs").Query("per_page=100"), func(page []changedFile) (bool, error) {
		files = addFiles(files, page)
		return true, nil
	})
	// The number of changes of a large merge request is one such as 1000+.
	return files, !strings.HasSuffix(m.Changes, "+"), err
}
