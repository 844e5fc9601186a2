package bitbucket

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
	cloudURL = "https://bitbucket.org"
	cloudAPI = "https://api.bitbucket.org/2.0"
)

type client struct {
	api        rest.Client
	base       string
	workspace  string
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

// page is a part of a list.
type page[T any] struct {
	Values []T    `json:"values"`
	Next   string `json:"next"`
}

func (p page[T]) NextPage() string { return p.Next }

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	base, address := strings.TrimRight(c.BaseURL, "/"), strings.TrimRight(c.APIURL, "/")
	if base == "" {
		base = cloudURL
	}
	switch {
	case c.Credential.Password == "":
		return nil, errors.New("the integration has no access token")
	case address == "" && base != cloudURL:
		return nil, errors.New("only bitbucket.org is supported: connect Bitbucket Server as a plain git server")
	case address == "":
		address = cloudAPI
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
		credential.UserName = "x-token-auth"
	}
	return &client{
		api:  rest.Client{Peer: peer, Base: address, Header: func(context.Context) (map[string]string, error) { return header, nil }},
		base: base, workspace: c.Owner, credential: credential, refs: &refs.Client{Peer: git},
	}, nil
}

func path(name string, elements ...string) (string, error) {
	if err := rest.CheckName(name); err != nil {
		return "", err
	}
	return "/repositories" + rest.Path(append(strings.Split(name, "/"), elements...)...), nil
}

func (c *client) get(ctx context.Context, name string, into any, elements ...string) error {
	at, err := path(name, elements...)
	if err != nil {
		return err
	}
	_, err = c.api.Get(ctx, at, into)
	return err
}

func (c *client) send(ctx context.Context, method, name string, body, into any, elements ...string) error {
	at, err := path(name, elements...)
	if err != nil {
		return err
	}
	_, err = c.api.Send(ctx, method, at, body, into)
	return err
}

// Find implements [vcs.Repository].
func (c *client) Find(ctx context.Context, name string) (vcs.Repo, error) {
	var r repository
	if err := c.get(ctx, name, &r); err != nil {
		return vcs.Repo{}, fmt.Errorf("finding the repository %s: %w", name, err)
	}
	return c.repo(&r), nil
}

func (c *client) repo(r *repository) vcs.Repo {
	out := vcs.Repo{RepoID: r.id(), CloneURL: c.address(r.FullName)}
	if r.MainBranch != nil {
		out.Branch = r.MainBranch.Name
	}
	return out
}

func (c *client) address(name string) string { return c.base + "/" + name + ".git" }

// Repos implements [vcs.Lister].
func (c *client) Repos(ctx context.Context, at string) (repos []vcs.Repo, next string, err error) {
	if at == "" {
		at = "/repositories" + rest.Path(c.workspace) + "?pagelen=100"
	}
	var list page[*repository]
	if _, err := c.api.Get(ctx, at, &list); err != nil {
		return nil, "", fmt.Errorf("listing repositories: %w", err)
	}
	for _, r := range list.Values {
		if r != nil {
			repos = append(repos, c.repo(r))
		}
	}
	return repos, list.Next, nil
}

// Head implements [vcs.Repository].
func (c *client) Head(ctx context.Context, repo vcs.RepoID, ref string) (string, error) {
	return c.refs.Find(ctx, c.address(repo.Name), c.credential, ref)
}

// Refs implements [vcs.Repository].
func (c *client) Refs(ctx context.Context, repo vcs.RepoID, prefixes []string) ([]vcs.Ref, error) {
	return c.refs.List(ctx, c.address(repo.Name), c.credential, prefixes)
}

// CloneAuth implements [vcs.Repository]. The forge cannot narrow a token to one repository.
func (c *client) CloneAuth(context.Context, vcs.RepoID) (vcs.Credential, error) {
	return c.credential, nil
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	switch {
	case change.Pull > 0:
		files, complete, err = c.files(ctx, repo, "", "pullrequests", strconv.Itoa(change.Pull), "diffstat")
	case change.Before != "" && change.After != "":
		var base struct {
			Hash string `json:"hash"`
		}
		err = c.get(ctx, repo.Name, &base, "merge-base", change.Before+".."+change.After)
		switch {
		case errors.Is(err, vcs.ErrNotFound), err == nil && base.Hash != change.Before:
			return nil, false, nil // no fast-forward, or a commit that no ref contains
		case err == nil:
			// The forge names the new commit first.
			files, complete, err = c.files(ctx, repo, "&topic=false", "diffstat", change.After+".."+change.Before)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the changed files: %w", err)
	}
	return files, complete, nil
}

func (c *client) files(ctx context.Context, repo vcs.RepoID, query string, elements ...string) (files []string, complete bool, err error) {
	at, err := path(repo.Name, elements...)
	if err != nil {
		return nil, false, err
	}
	type side struct {
		Path string `json:"path"`
	}
	type stat struct {
		Old *side `json:"old"`
		New *side `json:"new"`
	}
	err = rest.Pages(ctx, &c.api, at+"?pagelen=100"+query, func(list page[stat]) (bool, error) {
		for _, s := range list.Values {
			for _, side := range []*side{s.Old, s.New} {
				if side != nil {
					files = rest.AddNames(files, side.Path)
				}
			}
		}
		return true, nil
	})
	if errors.Is(err, rest.ErrManyPages) {
		return files, false, nil
	}
	return files, err == nil, err
}

// resolve returns the full id of a commit: the forge shortens those of pull requests.
func (c *client) resolve(ctx context.Context, short string, names ...string) (string, error) {
	var failure error
	for _, name := range names {
		var commit struct {
			Hash string `json:"hash"`
		}
		err := c.get(ctx, name, &commit, "commit", short)
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
