package gitea

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/refs"
	"workflowagent/internal/server/vcs/forges/rest"
)

type client struct {
	api        rest.Client
	base       string
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
	api := strings.TrimRight(c.APIURL, "/")
	if api == "" {
		api = base + "/api/v1"
	}
	if c.Credential.Password == "" {
		return nil, errors.New("the integration has no access token")
	}
	peer, err := outbound.NewPeer(api, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	git := peer
	if c.APIURL != "" {
		if git, err = outbound.NewPeer(base, c.CACertificate, c.Reach); err != nil {
			return nil, err
		}
	}
	header := map[string]string{"Authorization": "token " + c.Credential.Password}
	credential := c.Credential
	if credential.UserName == "" {
		credential.UserName = "x-access-token"
	}
	return &client{
		api:        rest.Client{Peer: peer, Base: api, Header: func(context.Context) (map[string]string, error) { return header, nil }},
		base:       base,
		credential: credential,
		refs:       &refs.Client{Peer: git},
	}, nil
}

// path returns the path of a repository's resource. Elements are escaped.
func path(name string, elements ...string) (string, error) {
	if err := rest.CheckName(name); err != nil {
		return "", err
	}
	return "/repos" + rest.Path(append(strings.Split(name, "/"), elements...)...), nil
}

// get reads a resource of a repository.
func (c *client) get(ctx context.Context, repo vcs.RepoID, into any, elements ...string) error {
	at, err := path(repo.Name, elements...)
	if err != nil {
		return err
	}
	_, err = c.api.Get(ctx, at, into)
	return err
}

// Find implements [vcs.Repository]. The server redirects the old name of a renamed repository.
func (c *client) Find(ctx context.Context, name string) (vcs.Repo, error) {
	var r repository
	if err := c.get(ctx, vcs.RepoID{Name: name}, &r); err != nil {
		return vcs.Repo{}, fmt.Errorf("finding the repository %s: %w", name, err)
	}
	return c.repo(&r), nil
}

// repo describes a repository. Its clone URL is built from the configuration, because the server's
// own can be one that only users can reach.
func (c *client) repo(r *repository) vcs.Repo {
	return vcs.Repo{RepoID: r.id(), CloneURL: c.base + "/" + r.FullName + ".git", Branch: r.DefaultBranch}
}

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, page string) (repos []vcs.Repo, next string, err error) {
	if page == "" {
		page = "/user/repos?limit=50"
	}
	var list []*repository
	res, err := c.api.Get(ctx, page, &list)
	if err != nil {
		return nil, "", fmt.Errorf("listing repositories: %w", err)
	}
	for _, r := range list {
		if r != nil {
			repos = append(repos, c.repo(r))
		}
	}
	return repos, res.Next, nil
}

// Head implements [vcs.Repository].
func (c *client) Head(ctx context.Context, repo vcs.RepoID, ref string) (string, error) {
	return c.refs.Find(ctx, c.base+"/"+repo.Name+".git", c.credential, ref)
}

// Refs implements [vcs.Repository].
func (c *client) Refs(ctx context.Context, repo vcs.RepoID, prefixes []string) ([]vcs.Ref, error) {
	return c.refs.List(ctx, c.base+"/"+repo.Name+".git", c.credential, prefixes)
}

// CloneAuth implements [vcs.Repository]. The forge cannot narrow a token to one repository.
func (c *client) CloneAuth(context.Context, vcs.RepoID) (vcs.Credential, error) {
	return c.credential, nil
}

type changedFile struct {
	Name     string `json:"filename"`
	Previous string `json:"previous_filename"`
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	switch {
	case change.Pull > 0:
		files, complete, err = c.pullFiles(ctx, repo, change.Pull)
	case change.Before != "" && change.After != "":
		files, complete, err = c.pushFiles(ctx, repo, change)
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the changed files: %w", err)
	}
	return files, complete, nil
}

func (c *client) pullFiles(ctx context.Context, repo vcs.RepoID, number int) (files []string, complete bool, err error) {
	at, err := path(repo.Name, "pulls", strconv.Itoa(number), "files")
	if err != nil {
		return nil, false, err
	}
	err = rest.Pages(ctx, &c.api, at+"?limit=50", func(page []changedFile) (bool, error) {
		files = appendFiles(files, page)
		return true, nil
	})
	if errors.Is(err, rest.ErrManyPages) {
		return files, false, nil
	}
	return files, err == nil, err
}

// pushFiles returns the files of all commits of a push. The server compares with the merge base, so
// that commits that only the old head has reveal that the push was no fast-forward.
func (c *client) pushFiles(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	type comparison struct {
		Total   int `json:"total_commits"`
		Commits []struct {
			Files []changedFile `json:"files"`
		} `json:"commits"`
	}
	var removed, added comparison
	err = c.get(ctx, repo, &removed, "compare", change.After+"..."+change.Before)
	if err == nil && removed.Total == 0 {
		err = c.get(ctx, repo, &added, "compare", change.Before+"..."+change.After)
	}
	if errors.Is(err, vcs.ErrNotFound) || removed.Total > 0 {
		return nil, false, nil // commits that no ref contains can be missing
	}
	if err != nil {
		return nil, false, err
	}
	for _, commit := range added.Commits {
		files = appendFiles(files, commit.Files)
	}
	return files, added.Total == len(added.Commits), nil
}

// appendFiles appends both names of each file.
func appendFiles(files []string, more []changedFile) []string {
	for _, f := range more {
		files = rest.AddNames(files, f.Name, f.Previous)
	}
	return files
}
