package plain

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/refs"
	"workflowagent/internal/workflow"
)

type client struct {
	base       string // of addresses, with its final slash or colon
	credential vcs.Credential
	refs       *refs.Client
}

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	base := strings.TrimRight(c.BaseURL, "/")
	if !strings.HasSuffix(base, ":") {
		base += "/"
	}
	repo, err := workflow.ParseRepository(base + "name")
	if err != nil {
		return nil, fmt.Errorf("the address is not the beginning of a repository's address: %w", err)
	}
	if repo.Password != "" || repo.Scheme != "ssh" && repo.User != "" {
		return nil, errors.New("the base URL must not contain credentials")
	}
	lister := &refs.Client{HostKeys: c.HostKeys, Reach: c.Reach}
	if repo.Scheme == "ssh" {
		err = errors.Join(c.Reach.CheckHost(&url.URL{Scheme: repo.Scheme, Host: repo.Host}), refs.CheckKey(c.Credential), refs.CheckHostKeys(c.HostKeys))
	} else {
		lister.Peer, err = outbound.NewPeer(repo.Origin(), c.CACertificate, c.Reach)
	}
	if err != nil {
		return nil, err
	}
	return &client{base: base, credential: c.Credential, refs: lister}, nil
}

// address returns the address of a repository, which is always below the integration's base.
func (c *client) address(name string) (string, error) {
	name = strings.Trim(name, "/")
	path := name
	if strings.Contains(c.base, "://") {
		path = (&url.URL{Path: "/" + name}).EscapedPath()[1:]
	}
	repo, err := workflow.ParseRepository(c.base + path)
	if err != nil || name == "" {
		return "", fmt.Errorf("%.200q is not the name of a repository: %w", name, vcs.ErrForeign)
	}
	return repo.String(), nil
}

// Find implements [vcs.Repository]. It accepts a name with and without the suffix .git, whichever the
// server needs.
func (c *client) Find(ctx context.Context, name string) (vcs.Repo, error) {
	short, suffixed := strings.CutSuffix(strings.TrimSuffix(name, "/"), ".git")
	other := short
	if !suffixed {
		other += ".git"
	}
	for _, candidate := range []string{name, other} {
		address, err := c.address(candidate)
		if err != nil {
			return vcs.Repo{}, err
		}
		_, err = c.refs.List(ctx, address, c.credential, []string{"HEAD"})
		if err == nil {
			id, err := Identify(address)
			id.Name = strings.Trim(candidate, "/")
			return vcs.Repo{RepoID: id, CloneURL: address}, err
		}
		if !errors.Is(err, vcs.ErrNotFound) {
			return vcs.Repo{}, err
		}
	}
	return vcs.Repo{}, fmt.Errorf("finding the repository %s: %w", name, vcs.ErrNotFound)
}

// Head implements [vcs.Repository].
func (c *client) Head(ctx context.Context, repo vcs.RepoID, ref string) (string, error) {
	address, err := c.address(repo.Name)
	if err != nil {
		return "", err
	}
	return c.refs.Find(ctx, address, c.credential, ref)
}

// Refs implements [vcs.Repository].
func (c *client) Refs(ctx context.Context, repo vcs.RepoID, prefixes []string) ([]vcs.Ref, error) {
	address, err := c.address(repo.Name)
	if err != nil {
		return nil, err
	}
	return c.refs.List(ctx, address, c.credential, prefixes)
}

// ReadFiles implements [vcs.Reader].
func (c *client) ReadFiles(ctx context.Context, repo vcs.RepoID, commit, folder string, wanted func(path string) bool) ([]vcs.File, error) {
	address, err := c.address(repo.Name)
	if err != nil {
		return nil, err
	}
	return c.refs.Files(ctx, address, c.credential, commit, folder, wanted)
}

// Changed implements [vcs.Repository]. The git protocol has no such request, so the files are
// unknown unless the sender of a delivery lists them.
func (*client) Changed(context.Context, vcs.RepoID, vcs.Change) (files []string, complete bool, err error) {
	return nil, false, nil
}

// CloneAuth implements [vcs.Repository].
func (c *client) CloneAuth(context.Context, vcs.RepoID) (vcs.Credential, error) {
	return c.credential, nil
}
