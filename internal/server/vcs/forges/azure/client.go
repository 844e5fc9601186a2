package azure

import (
	"context"
	"encoding/base64"
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

const (
	cloudURL = "https://dev.azure.com"
	version  = "api-version=7.1"
)

// pageSize is the number of elements that a request asks for.
const pageSize = 100

type client struct {
	api          rest.Client
	base         string // of the organization
	organization string
	project      string // "" for all projects
	credential   vcs.Credential
	refs         *refs.Client
}

var _ interface {
	vcs.Repository
	vcs.Lister
	vcs.Pulls
	vcs.Reporter
	vcs.Commenter
	vcs.Hooker
} = (*client)(nil)

// list is the form of lists.
type list[T any] struct {
	Value []T `json:"value"`
}

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	base := strings.TrimRight(c.BaseURL, "/")
	if base == "" {
		base = cloudURL
	}
	switch {
	case c.Credential.Password == "":
		return nil, errors.New("the integration has no access token")
	case c.Owner == "" || strings.Contains(c.Owner, "/"):
		return nil, errors.New("the integration has no organization")
	}
	peer, err := outbound.NewPeer(base, c.CACertificate, c.Reach)
	if err != nil {
		return nil, err
	}
	base += rest.Path(c.Owner)
	header := map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(":"+c.Credential.Password))}
	credential := c.Credential
	if credential.UserName == "" {
		credential.UserName = "pat"
	}
	return &client{
		api:  rest.Client{Peer: peer, Base: base, Header: func(context.Context) (map[string]string, error) { return header, nil }},
		base: base, organization: c.Owner, project: c.Project, credential: credential, refs: &refs.Client{Peer: peer},
	}, nil
}

// split returns the project and the repository in a name of the form organization/project/repository.
func (c *client) split(name string) (project, repository string, err error) {
	parts := strings.Split(name, "/")
	if err := rest.CheckName(name); err != nil || len(parts) != 3 {
		return "", "", fmt.Errorf("%.200q is not the name of a repository, such as organization/project/repository: %w", name, vcs.ErrForeign)
	}
	if !strings.EqualFold(parts[0], c.organization) || c.project != "" && !vcs.IsAzureID(c.project) && !strings.EqualFold(parts[1], c.project) {
		return "", "", fmt.Errorf("%.200q does not belong to the integration's organization and project: %w", name, vcs.ErrForeign)
	}
	return parts[1], parts[2], nil
}

// path returns the path of a repository's resource. The repository's id is valid in spite of renames.
func (c *client) path(repo vcs.RepoID, elements ...string) (string, error) {
	project, _, err := c.split(repo.Name)
	if err != nil {
		return "", err
	}
	return rest.Path(append([]string{project, "_apis", "git", "repositories", repo.ID}, elements...)...) + "?" + version, nil
}

func (c *client) get(ctx context.Context, repo vcs.RepoID, into any, query url.Values, elements ...string) error {
	at, err := c.path(repo, elements...)
	if err != nil {
		return err
	}
	if query != nil {
		at += "&" + query.Encode()
	}
	_, err = c.api.Get(ctx, at, into)
	return err
}

func (c *client) send(ctx context.Context, method string, repo vcs.RepoID, body, into any, elements ...string) error {
	at, err := c.path(repo, elements...)
	if err != nil {
		return err
	}
	_, err = c.api.Send(ctx, method, at, body, into)
	return err
}

// Find implements [vcs.Repository].
func (c *client) Find(ctx context.Context, name string) (vcs.Repo, error) {
	project, repository, err := c.split(name)
	if err != nil {
		return vcs.Repo{}, err
	}
	r, err := c.read(ctx, project, repository)
	if err != nil {
		return vcs.Repo{}, fmt.Errorf("finding the repository %s: %w", name, err)
	}
	return c.repo(r), nil
}

func (c *client) read(ctx context.Context, project, nameOrID string) (*repository, error) {
	r := new(repository)
	_, err := c.api.Get(ctx, rest.Path(project, "_apis", "git", "repositories", nameOrID)+"?"+version, r)
	if err == nil && (r.ID == "" || r.Project == nil) {
		err = errors.New("the forge's response names no project")
	}
	if err == nil && vcs.IsAzureID(c.project) && !strings.EqualFold(r.Project.ID, c.project) {
		err = fmt.Errorf("%.200q is not in the integration's project: %w", nameOrID, vcs.ErrForeign)
	}
	return r, err
}

func (c *client) repo(r *repository) vcs.Repo {
	name := c.organization + "/" + r.Project.Name + "/" + r.Name
	return vcs.Repo{RepoID: vcs.RepoID{ID: r.ID, Name: name}, CloneURL: c.address(r.Project.Name, r.Name), Branch: strings.TrimPrefix(r.Branch, "refs/heads/")}
}

func (c *client) address(project, repository string) string {
	return c.base + rest.Path(project, "_git", repository)
}

// Repos implements [vcs.Lister]. The forge does not divide this list.
func (c *client) Repos(ctx context.Context, _ string) (repos []vcs.Repo, next string, err error) {
	at := "/_apis/git/repositories?" + version
	if c.project != "" {
		at = rest.Path(c.project) + at
	}
	var answer list[*repository]
	if _, err := c.api.Get(ctx, at, &answer); err != nil {
		return nil, "", fmt.Errorf("listing repositories: %w", err)
	}
	for _, r := range answer.Value {
		if r != nil && r.Project != nil {
			repos = append(repos, c.repo(r))
		}
	}
	return repos, "", nil
}

// Head implements [vcs.Repository].
func (c *client) Head(ctx context.Context, repo vcs.RepoID, ref string) (string, error) {
	project, repository, err := c.split(repo.Name)
	if err != nil {
		return "", err
	}
	return c.refs.Find(ctx, c.address(project, repository), c.credential, ref)
}

// Refs implements [vcs.Repository].
func (c *client) Refs(ctx context.Context, repo vcs.RepoID, prefixes []string) ([]vcs.Ref, error) {
	project, repository, err := c.split(repo.Name)
	if err != nil {
		return nil, err
	}
	return c.refs.List(ctx, c.address(project, repository), c.credential, prefixes)
}

// CloneAuth implements [vcs.Repository]. The forge cannot narrow a token to one repository.
func (c *client) CloneAuth(context.Context, vcs.RepoID) (vcs.Credential, error) {
	out := c.credential
	out.Environment = map[string]string{"AZURE_DEV_OPS_TOKEN": out.Password}
	return out, nil
}

type changedFile struct {
	Item *struct {
		Path     string `json:"path"`
		IsFolder bool   `json:"isFolder"`
		Type     string `json:"gitObjectType"`
	} `json:"item"`
	Source   string `json:"sourceServerItem"` // former path in a comparison of commits
	Original string `json:"originalPath"`     // former path in a pull request
}

func addFiles(files []string, more []*changedFile) []string {
	for _, f := range more {
		if f == nil || f.Item == nil || f.Item.IsFolder || f.Item.Type == "tree" {
			continue
		}
		for _, path := range []string{f.Item.Path, f.Source, f.Original} {
			files = rest.AddNames(files, strings.TrimPrefix(path, "/"))
		}
	}
	return files
}

// Changed implements [vcs.Repository].
func (c *client) Changed(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	switch {
	case change.Pull > 0:
		files, complete, err = c.pullFiles(ctx, repo, strconv.Itoa(change.Pull))
	case change.Before != "" && change.After != "":
		files, complete, err = c.pushFiles(ctx, repo, change)
	}
	if errors.Is(err, vcs.ErrNotFound) && change.Pull == 0 {
		return nil, false, nil // commits that no ref contains can be missing
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the changed files: %w", err)
	}
	return files, complete, nil
}

// maxCompared is the number of changes that a comparison of commits asks for.
const maxCompared = 2000

func (c *client) pushFiles(ctx context.Context, repo vcs.RepoID, change vcs.Change) (files []string, complete bool, err error) {
	var answer struct {
		All     bool           `json:"allChangesIncluded"`
		Common  string         `json:"commonCommit"`
		Changes []*changedFile `json:"changes"`
	}
	query := url.Values{
		"baseVersion": {change.Before}, "baseVersionType": {"commit"}, "targetVersion": {change.After}, "targetVersionType": {"commit"},
		"$top": {strconv.Itoa(maxCompared)}, "diffCommonCommit": {"false"},
	}
	if err := c.get(ctx, repo, &answer, query, "diffs", "commits"); err != nil {
		return nil, false, err
	}
	if answer.Common != change.Before {
		return nil, false, nil // no fast-forward
	}
	return addFiles(nil, answer.Changes), answer.All && len(answer.Changes) < maxCompared, nil
}

// pullFiles returns the changes of the latest iteration of a pull request, compared with its base.
func (c *client) pullFiles(ctx context.Context, repo vcs.RepoID, number string) (files []string, complete bool, err error) {
	var iterations list[struct {
		ID int `json:"id"`
	}]
	if err := c.get(ctx, repo, &iterations, nil, "pullRequests", number, "iterations"); err != nil {
		return nil, false, err
	}
	latest := 0
	for _, i := range iterations.Value {
		latest = max(latest, i.ID)
	}
	if latest == 0 {
		return nil, false, nil
	}
	skip := 0
	for range maxPages {
		var answer struct {
			Entries []*changedFile `json:"changeEntries"`
			Next    int            `json:"nextSkip"`
		}
		query := url.Values{"$top": {strconv.Itoa(pageSize)}, "$skip": {strconv.Itoa(skip)}, "$compareTo": {"0"}}
		if err := c.get(ctx, repo, &answer, query, "pullRequests", number, "iterations", strconv.Itoa(latest), "changes"); err != nil {
			return nil, false, err
		}
		files = addFiles(files, answer.Entries)
		if answer.Next <= skip {
			return files, true, nil
		}
		skip = answer.Next
	}
	return files, false, nil
}

// maxPages limits the pages of a list.
const maxPages = 30
