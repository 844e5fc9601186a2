package azure

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
	"workflowagent/internal/server/vcs/forges/site"
)

const (
	cloudURL = "https://dev.azure.com"
	version  = "api-version=7.1"
)

// pageSize is the number of elements that a request asks for.
const pageSize = 100

type client struct {
	*site.Site
	organization string
	project      string // "" for all projects
}

var _ site.Complete = (*client)(nil)

// list is the form of lists.
type list[T any] struct {
	Value []T `json:"value"`
}

// Connect implements [vcs.Forge].
func (Forge) Connect(c vcs.Connection) (vcs.Repository, error) {
	if c.Owner == "" || strings.Contains(c.Owner, "/") {
		return nil, errors.New("the integration has no organization")
	}
	home := site.Address(c.BaseURL, cloudURL) + rest.Path(c.Owner)
	connected, err := site.Connect(c, home, home, "pat")
	if err != nil {
		return nil, err
	}
	out := &client{Site: connected, organization: c.Owner, project: c.Project}
	out.Header = site.Authorization("Basic " + base64.StdEncoding.EncodeToString([]byte(":"+c.Credential.Password)))
	out.Address = out.addressOf
	return out, nil
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

// in returns the resource of a repository, whose id is valid in spite of renames.
func (c *client) in(repo vcs.RepoID) rest.Resource {
	project, _, err := c.split(repo.Name)
	if err != nil {
		return rest.Nowhere(err)
	}
	return c.named(project, repo.ID)
}

func (c *client) named(project, nameOrID string) rest.Resource {
	return c.At(project, "_apis", "git", "repositories", nameOrID).Query(version)
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
	err := c.named(project, nameOrID).Get(ctx, r)
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
	return c.Home + rest.Path(project, "_git", repository)
}

// Repos implements [vcs.Lister]. The forge does not divide this list.
func (c *client) Repos(ctx context.Context, _ string) (repos []vcs.Repo, next string, err error) {
	at := "/_apis/git/repositories?" + version
	if c.project != "" {
		at = rest.Path(c.project) + at
	}
	var answer list[*repository]
	if _, err := c.Get(ctx, at, &answer); err != nil {
		return nil, "", fmt.Errorf("listing repositories: %w", err)
	}
	named := slices.DeleteFunc(answer.Value, func(r *repository) bool { return r == nil || r.Project == nil })
	return site.Repos(named, c.repo), "", nil
}

func (c *client) addressOf(name string) (string, error) {
	project, repository, err := c.split(name)
	if err != nil {
		return "", err
	}
	return c.address(project, repository), nil
}

// CloneAuth implements [vcs.Repository]. The forge cannot narrow a token to one repository.
func (c *client) CloneAuth(ctx context.Context, _ vcs.RepoID) (vcs.Credential, error) {
	out, err := c.Credential(ctx)
	out.Environment = map[string]string{"AZURE_DEV_OPS_TOKEN": out.Password}
	return out, err
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
	return site.Changed(ctx, c.in(repo), change, pullFiles, pushFiles)
}

// maxCompared is the number of changes that a comparison of commits asks for.
const maxCompared = 2000

func pushFiles(ctx context.Context, repo rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	var answer struct {
		All     bool           `json:"allChangesIncluded"`
		Common  string         `json:"commonCommit"`
		Changes []*changedFile `json:"changes"`
	}
	query := url.Values{
		"baseVersion": {change.Before}, "baseVersionType": {"commit"}, "targetVersion": {change.After}, "targetVersionType": {"commit"},
		"$top": {strconv.Itoa(maxCompared)}, "diffCommonCommit": {"false"},
	}
	if err := repo.At("diffs", "commits").Query(query.Encode()).Get(ctx, &answer); err != nil {
		return nil, false, err
	}
	if answer.Common != change.Before {
		return nil, false, nil // no fast-forward
	}
	return addFiles(nil, answer.Changes), answer.All && len(answer.Changes) < maxCompared, nil
}

// pullFiles returns the changes of the latest iteration of a pull request, compared with its base.
func pullFiles(ctx context.Context, repo rest.Resource, change vcs.Change) (files []string, complete bool, err error) {
	var iterations list[struct {
		ID int `json:"id"`
	}]
	at := repo.At("pullRequests", strconv.Itoa(change.Pull), "iterations")
	if err := at.Get(ctx, &iterations); err != nil {
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
		if err := at.At(strconv.Itoa(latest), "changes").Query(query.Encode()).Get(ctx, &answer); err != nil {
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
