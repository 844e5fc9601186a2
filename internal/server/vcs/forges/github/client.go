package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/rest"
	"workflowagent/internal/server/vcs/forges/site"
)

const (
	cloudURL = "https://github.com"
	cloudAPI = "https://api.github.com"
	user     = "x-access-token" // of git
)

// Limits of the forge's lists of files. A longer list is cut.
const (
	maxCompared  = 300
	maxPullFiles = 3000
)

type client struct {
	githublike.Site
	app  *app   // nil with an access token
	host string // of GitHub Enterprise Server, or ""
}

var _ interface {
	site.Complete
	vcs.Redeliverer
} = (*client)(nil)

// addresses returns the address of a connection's pages, and that of its API.
func addresses(c vcs.Connection) (home, api string) {
	home = site.Address(c.BaseURL, cloudURL)
	if home == cloudURL {
		return home, site.Address(c.APIURL, cloudAPI)
	}
	return home, site.Address(c.APIURL, home+"/api/v3")
}

// apiOf returns a client of a connection's API without a credential.
func apiOf(c vcs.Connection) (*rest.Client, error) {
	_, address := addresses(c)
	peer, err := outbound.NewPeer(address, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	return &rest.Client{Peer: peer, Base: address}, nil
}

// Connect implements [vcs.Forge].
func (f *Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	if c.App == nil && c.Credential.Password == "" {
		return nil, errors.New("the integration has neither a GitHub App nor an access token")
	}
	home, api := addresses(c)
	c.Credential.UserName = user
	connected, err := site.Connect(c, home, api, user)
	if err != nil {
		return nil, err
	}
	out := &client{Site: githublike.Site{Site: connected}}
	if home != cloudURL {
		_, out.host, _ = strings.Cut(home, "://")
	}
	if c.App == nil {
		out.Header = func(context.Context) (map[string]string, error) { return bearer(c.Credential.Password), nil }
		return out, nil
	}
	if out.app, err = newApp(f, *c.App, api, out.Client); err != nil {
		return nil, err
	}
	out.Header = out.app.installationHeader
	out.Credential = out.app.credential
	return out, nil
}

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, page string) (repos []vcs.Repo, next string, err error) {
	var list []*githublike.Repository
	var res rest.Response
	if c.app == nil {
		res, err = c.Get(ctx, cmp.Or(page, "/user/repos?per_page=100"), &list)
	} else {
		var answer struct {
			Repositories []*githublike.Repository `json:"repositories"`
		}
		res, err = c.Get(ctx, cmp.Or(page, "/installation/repositories?per_page=100"), &answer)
		list = answer.Repositories
	}
	if err != nil {
		return nil, "", fmt.Errorf("listing repositories: %w", err)
	}
	return site.Repos(list, c.Repo), res.Next, nil
}

// CloneAuth implements [vcs.Repository].
func (c *client) CloneAuth(ctx context.Context, repo vcs.RepoID) (vcs.Credential, error) {
	git := c.Credential
	if c.app != nil {
		git = func(ctx context.Context) (vcs.Credential, error) { return c.app.narrow(ctx, repo) }
	}
	out, err := git(ctx)
	if err != nil {
		return vcs.Credential{}, err
	}
	out.Environment = map[string]string{"GITHUB_TOKEN": out.Password}
	if c.host != "" {
		out.Environment["GH_HOST"] = c.host
		out.Environment["GH_ENTERPRISE_TOKEN"] = out.Password
		out.Environment["GITHUB_ENTERPRISE_TOKEN"] = out.Password
	}
	return out, nil
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	return site.Changed(ctx, c.In(repo), change, pullFiles, pushFiles)
}

// pushFiles compares with the merge base, which is the old head only if the new one is ahead.
func pushFiles(ctx context.Context, repo rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	var answer struct {
		Status string                   `json:"status"`
		Files  []githublike.ChangedFile `json:"files"`
	}
	err = repo.At("compare", change.Before+"..."+change.After).Get(ctx, &answer)
	return githublike.AddFiles(nil, answer.Files), answer.Status == "ahead" && len(answer.Files) < maxCompared, err
}

func pullFiles(ctx context.Context, repo rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	count := 0
	at := repo.At("pulls", strconv.Itoa(change.Pull), "files").Query("per_page=100")
	err = rest.Each(ctx, at, func(page []githublike.ChangedFile) (bool, error) {
		files, count = githublike.AddFiles(files, page), count+len(page)
		return true, nil
	})
	return files, count < maxPullFiles, err
}
