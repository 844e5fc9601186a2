package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/refs"
	"workflowagent/internal/server/vcs/forges/rest"
)

const cloudURL = "https://gitlab.com"

// maxCompared is the smallest limit of files in a comparison that a server can have.
const maxCompared = 1000

type client struct {
	api        rest.Client
	base       string
	group      string
	credential vcs.Credential
	refs       *refs.Client
}

var _ interface {
	vcs.Repository
	vcs.Lister
	vcs.Pulls
	vcs.Reporter
	vcs.Commenter
	vcs.Hooker
} = (*client)(nil)

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	base := strings.TrimRight(c.BaseURL, "/")
	if base == "" {
		base = cloudURL
	}
	if c.Credential.Password == "" {
		return nil, errors.New("the integration has no access token")
	}
	address := strings.TrimRight(c.APIURL, "/")
	if address == "" {
		address = base + "/api/v4"
	}
	peer, err := outbound.NewPeer(address, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	git, err := outbound.NewPeer(base, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	header := map[string]string{"Authorization": "Bearer " + c.Credential.Password}
	credential := c.Credential
	if credential.UserName == "" {
		credential.UserName = "oauth2"
	}
	return &client{
		api:  rest.Client{Peer: peer, Base: address, Header: func(context.Context) (map[string]string, error) { return header, nil }},
		base: base, group: c.Owner, credential: credential, refs: &refs.Client{Peer: git},
	}, nil
}

// path returns the path of a project's resource. Its id is valid in spite of renames.
func path(repo vcs.RepoID, elements ...string) string {
	return "/projects" + rest.Path(append([]string{repo.ID}, elements...)...)
}

// Find implements [vcs.Repository]. The server redirects the old name of a renamed project.
func (c *client) Find(ctx context.Context, name string) (vcs.Repo, error) {
	if err := rest.CheckName(name); err != nil {
		return vcs.Repo{}, err
	}
	var p project
	if _, err := c.api.Get(ctx, "/projects"+rest.Path(name), &p); err != nil {
		return vcs.Repo{}, fmt.Errorf("finding the project %s: %w", name, err)
	}
	return c.repo(&p), nil
}

func (c *client) repo(p *project) vcs.Repo {
	return vcs.Repo{RepoID: p.id(), CloneURL: c.address(p.Path), Branch: p.DefaultBranch}
}

func (c *client) address(name string) string { return c.base + "/" + name + ".git" }

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, page string) (repos []vcs.Repo, next string, err error) {
	if page == "" {
		page = "/projects?membership=true&simple=true&per_page=100"
		if c.group != "" {
			page = "/groups" + rest.Path(c.group) + "/projects?include_subgroups=true&simple=true&per_page=100"
		}
	}
	var list []*project
	res, err := c.api.Get(ctx, page, &list)
	if err != nil {
		return nil, "", fmt.Errorf("listing projects: %w", err)
	}
	for _, p := range list {
		if p != nil {
			repos = append(repos, c.repo(p))
		}
	}
	return repos, res.Next, nil
}

// Head implements [vcs.Repository].
func (c *client) Head(ctx context.Context, repo vcs.RepoID, ref string) (string, error) {
	return c.refs.Find(ctx, c.address(repo.Name), c.credential, ref)
}

// Refs implements [vcs.Repository].
func (c *client) Refs(ctx context.Context, repo vcs.RepoID, prefixes []string) ([]vcs.Ref, error) {
	return c.refs.List(ctx, c.address(repo.Name), c.credential, prefixes)
}

// CloneAuth implements [vcs.Repository]. The forge cannot narrow a token to one project.
func (c *client) CloneAuth(context.Context, vcs.RepoID) (vcs.Credential, error) {
	return c.credential, nil
}

type changedFile struct {
	Old string `json:"old_path"`
	New string `json:"new_path"`
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	switch {
	case change.Pull > 0:
		files, complete, err = c.mergeFiles(ctx, repo, strconv.Itoa(change.Pull))
	case change.Before != "" && change.After != "":
		files, complete, err = c.pushFiles(ctx, repo, change)
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the changed files: %w", err)
	}
	return files, complete, nil
}

func (c *client) pushFiles(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	var base struct {
		ID string `json:"id"`
	}
	query := url.Values{"refs[]": {change.Before, change.After}}
	_, err = c.api.Get(ctx, path(repo, "repository", "merge_base")+"?"+query.Encode(), &base)
	if errors.Is(err, vcs.ErrNotFound) || rest.IsStatus(err, 400) || err == nil && base.ID != change.Before {
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
	if _, err := c.api.Get(ctx, path(repo, "repository", "compare")+"?"+query.Encode(), &answer); err != nil {
		return nil, false, err
	}
	for _, f := range answer.Diffs {
		files = rest.AddNames(files, f.Old, f.New)
	}
	return files, !answer.Timeout && len(answer.Diffs) < maxCompared, nil
}

func (c *client) mergeFiles(ctx context.Context, repo vcs.RepoID, number string) (files []string, complete bool, err error) {
	var m merge
	if _, err := c.api.Get(ctx, path(repo, "merge_requests", number), &m); err != nil {
		return nil, false, err
	}
	err = rest.Pages(ctx, &c.api, path(repo, "merge_requests", number, "diffs")+"?per_page=100", func(page []changedFile) (bool, error) {
		for _, f := range page {
			files = rest.AddNames(files, f.Old, f.New)
		}
		return true, nil
	})
	if errors.Is(err, rest.ErrManyPages) {
		return files, false, nil
	}
	// The number of changes of a large merge request is one such as 1000+.
	return files, err == nil && !strings.HasSuffix(m.Changes, "+"), err
}
