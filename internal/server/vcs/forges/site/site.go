// Package site contains what the clients of all forges with an API have in common.
package site

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/refs"
	"workflowagent/internal/server/vcs/forges/rest"
)

// Site is what the clients of all forges with an API have in common: the API itself, and repositories that
// git reads with a credential of the integration. It implements most of [vcs.Repository].
type Site struct {
	rest.Client
	// Home is the address that precedes the names of repositories.
	Home string
	// Address returns the address of a repository, if it is not [Site.CloneURL].
	Address func(name string) (string, error)
	// Credential returns the credential of git.
	Credential func(ctx context.Context) (vcs.Credential, error)
	git        refs.Client
}

// Complete is a client with all abilities, which some forges exceed.
type Complete interface {
	vcs.Repository
	vcs.Lister
	vcs.Pulls
	vcs.Reporter
	vcs.Commenter
	vcs.Hooker
	vcs.Reader
}

// Address returns the address that an integration has set, without its final slash, or another.
func Address(set, other string) string {
	if set = strings.TrimRight(set, "/"); set != "" {
		return set
	}
	return other
}

// Connect returns the site with the addresses of repositories and of the API. It sends the connection's
// access token, to git servers with the name of a user unless the connection has one.
func Connect(c vcs.Connection, home, api, user string) (*Site, error) {
	if c.Credential.Password == "" && c.App == nil {
		return nil, errors.New("the integration has no access token")
	}
	peer, err := outbound.NewPeer(api, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	git := peer
	if !strings.HasPrefix(api+"/", home+"/") {
		if git, err = outbound.NewPeer(home, c.CACertificate, c.Reach); err != nil {
			return nil, err
		}
	}
	credential := c.Credential
	credential.UserName = cmp.Or(credential.UserName, user)
	return &Site{
		Client: rest.Client{Peer: peer, Base: api, Header: Authorization("Bearer " + credential.Password)}, Home: home,
		Credential: func(context.Context) (vcs.Credential, error) { return credential, nil },
		git:        refs.Client{Peer: git},
	}, nil
}

// Authorization returns a [Client.Header] with the value of the header Authorization.
func Authorization(value string) func(context.Context) (map[string]string, error) {
	return func(context.Context) (map[string]string, error) {
		return map[string]string{"Authorization": value}, nil
	}
}

// Head implements [vcs.Repository].
func (s *Site) Head(ctx context.Context, repo vcs.RepoID, ref string) (string, error) {
	address, credential, err := s.clone(ctx, repo)
	if err != nil {
		return "", err
	}
	return s.git.Find(ctx, address, credential, ref)
}

// Refs implements [vcs.Repository].
func (s *Site) Refs(ctx context.Context, repo vcs.RepoID, prefixes []string) ([]vcs.Ref, error) {
	address, credential, err := s.clone(ctx, repo)
	if err != nil {
		return nil, err
	}
	return s.git.List(ctx, address, credential, prefixes)
}

// ReadFiles implements [vcs.Reader].
func (s *Site) ReadFiles(ctx context.Context, repo vcs.RepoID, commit, folder string, wanted func(path string) bool) ([]vcs.File, error) {
	address, credential, err := s.clone(ctx, repo)
	if err != nil {
		return nil, err
	}
	return s.git.Files(ctx, address, credential, commit, folder, wanted)
}

func (s *Site) clone(ctx context.Context, repo vcs.RepoID) (string, vcs.Credential, error) {
	address := s.CloneURL(repo.Name)
	if s.Address != nil {
		var err error
		if address, err = s.Address(repo.Name); err != nil {
			return "", vcs.Credential{}, err
		}
	}
	credential, err := s.Credential(ctx)
	return address, credential, err
}

// CloneURL returns the address of a repository with a name.
func (s *Site) CloneURL(name string) string { return s.Home + "/" + name + ".git" }

// CloneAuth implements [vcs.Repository] for forges that cannot narrow a token to one repository.
func (s *Site) CloneAuth(ctx context.Context, _ vcs.RepoID) (vcs.Credential, error) {
	return s.Credential(ctx)
}

// Repos returns the repositories in a page, in the form of a forge, without null elements.
func Repos[T any](page []*T, normal func(*T) vcs.Repo) []vcs.Repo {
	var repos []vcs.Repo
	for _, r := range page {
		if r != nil {
			repos = append(repos, normal(r))
		}
	}
	return repos
}

// changedFiles reads the files of a change; see [vcs.Repository].
type changedFiles func(ctx context.Context, repo rest.Resource, change vcs.Change) (files []string, complete bool, err error)

// Changed implements [vcs.Repository] with the requests for the files of a pull request and of a push.
// Commits of a push that no ref contains can be missing, and a list that is too long is cut.
func Changed(ctx context.Context, repo rest.Resource, change vcs.Change, pull, push changedFiles) (files []string, complete bool, err error) {
	switch {
	case change.Pull > 0:
		files, complete, err = pull(ctx, repo, change)
	case change.Before != "" && change.After != "":
		files, complete, err = push(ctx, repo, change)
		if errors.Is(err, vcs.ErrNotFound) {
			return nil, false, nil
		}
	}
	if errors.Is(err, rest.ErrManyPages) {
		return files, false, nil
	}
	return files, complete, fault.While(err, "reading the changed files")
}
