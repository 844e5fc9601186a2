package github

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

const (
	cloudURL = "https://github.com"
	cloudAPI = "https://api.github.com"
)

// Limits of the forge's lists of files. A longer list is cut.
const (
	maxCompared  = 300
	maxPullFiles = 3000
)

type client struct {
	api   rest.Client
	app   *app // nil with an access token
	token string
	user  string
	base  string
	host  string // of GitHub Enterprise Server, or ""
	refs  *refs.Client
}

var _ interface {
	vcs.Repository
	vcs.Lister
	vcs.Pulls
	vcs.Reporter
	vcs.Commenter
	vcs.Hooker
	vcs.Redeliverer
} = (*client)(nil)

// baseOf returns the address of a connection's pages.
func baseOf(c vcs.Connection) string {
	if base := strings.TrimRight(c.BaseURL, "/"); base != "" {
		return base
	}
	return cloudURL
}

// apiOf returns a client of a connection's API without a credential.
func apiOf(c vcs.Connection) (*rest.Client, error) {
	base, address := baseOf(c), strings.TrimRight(c.APIURL, "/")
	switch {
	case address != "":
	case base == cloudURL:
		address = cloudAPI
	default:
		address = base + "/api/v3"
	}
	peer, err := outbound.NewPeer(address, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	return &rest.Client{Peer: peer, Base: address}, nil
}

// Connect implements [vcs.Forge].
func (f *Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	base := baseOf(c)
	api, err := apiOf(c)
	if err != nil {
		return nil, err
	}
	git, err := outbound.NewPeer(base, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	out := &client{
		api: *api, base: base, refs: &refs.Client{Peer: git},
		token: c.Credential.Password, user: "x-access-token",
	}
	if base != cloudURL {
		_, out.host, _ = strings.Cut(base, "://")
	}
	switch {
	case c.App != nil:
		if out.app, err = newApp(f, *c.App, api.Base, out.api); err != nil {
			return nil, err
		}
		out.api.Header = out.app.installationHeader
	case out.token != "":
		out.api.Header = func(context.Context) (map[string]string, error) { return bearer(out.token), nil }
	default:
		return nil, errors.New("the integration has neither a GitHub App nor an access token")
	}
	return out, nil
}

func path(name string, elements ...string) (string, error) {
	if err := rest.CheckName(name); err != nil {
		return "", err
	}
	return "/repos" + rest.Path(append(strings.Split(name, "/"), elements...)...), nil
}

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

func (c *client) repo(r *repository) vcs.Repo {
	return vcs.Repo{RepoID: r.id(), CloneURL: c.base + "/" + r.FullName + ".git", Branch: r.DefaultBranch}
}

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, page string) (repos []vcs.Repo, next string, err error) {
	var list []*repository
	var res rest.Response
	if c.app == nil {
		res, err = c.api.Get(ctx, orFirst(page, "/user/repos?per_page=100"), &list)
	} else {
		var answer struct {
			Repositories []*repository `json:"repositories"`
		}
		res, err = c.api.Get(ctx, orFirst(page, "/installation/repositories?per_page=100"), &answer)
		list = answer.Repositories
	}
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

func orFirst(page, first string) string {
	if page == "" {
		return first
	}
	return page
}

// Head implements [vcs.Repository].
func (c *client) Head(ctx context.Context, repo vcs.RepoID, ref string) (string, error) {
	credential, err := c.gitAuth(ctx)
	if err != nil {
		return "", err
	}
	return c.refs.Find(ctx, c.base+"/"+repo.Name+".git", credential, ref)
}

// Refs implements [vcs.Repository].
func (c *client) Refs(ctx context.Context, repo vcs.RepoID, prefixes []string) ([]vcs.Ref, error) {
	credential, err := c.gitAuth(ctx)
	if err != nil {
		return nil, err
	}
	return c.refs.List(ctx, c.base+"/"+repo.Name+".git", credential, prefixes)
}

// gitAuth returns the credential of the server's own requests.
func (c *client) gitAuth(ctx context.Context) (vcs.Credential, error) {
	if c.app == nil {
		return vcs.Credential{UserName: c.user, Password: c.token}, nil
	}
	header, err := c.app.installationHeader(ctx)
	if err != nil {
		return vcs.Credential{}, err
	}
	return vcs.Credential{UserName: c.user, Password: strings.TrimPrefix(header["Authorization"], "Bearer ")}, nil
}

// CloneAuth implements [vcs.Repository].
func (c *client) CloneAuth(ctx context.Context, repo vcs.RepoID) (vcs.Credential, error) {
	out := vcs.Credential{UserName: c.user, Password: c.token}
	if c.app != nil {
		t, err := c.app.narrow(ctx, repo)
		if err != nil {
			return vcs.Credential{}, err
		}
		out.Password, out.Expires = t.text, t.expires
	}
	out.Environment = map[string]string{"GITHUB_TOKEN": out.Password}
	if c.host != "" {
		out.Environment["GH_HOST"] = c.host
		out.Environment["GH_ENTERPRISE_TOKEN"] = out.Password
		out.Environment["GITHUB_ENTERPRISE_TOKEN"] = out.Password
	}
	return out, nil
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
		var answer struct {
			Status string        `json:"status"`
			Files  []changedFile `json:"files"`
		}
		err = c.get(ctx, repo, &answer, "compare", change.Before+"..."+change.After)
		// The forge compares with the merge base, which is the old head only if the new one is ahead.
		complete = err == nil && answer.Status == "ahead" && len(answer.Files) < maxCompared
		files = appendFiles(nil, answer.Files)
		if errors.Is(err, vcs.ErrNotFound) {
			return nil, false, nil // commits that no ref contains can be missing
		}
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
	count := 0
	err = rest.Pages(ctx, &c.api, at+"?per_page=100", func(page []changedFile) (bool, error) {
		files, count = appendFiles(files, page), count+len(page)
		return true, nil
	})
	if errors.Is(err, rest.ErrManyPages) {
		return files, false, nil
	}
	return files, err == nil && count < maxPullFiles, err
}

// appendFiles appends both names of each file.
func appendFiles(files []string, more []changedFile) []string {
	for _, f := range more {
		files = rest.AddNames(files, f.Name, f.Previous)
	}
	return files
}
