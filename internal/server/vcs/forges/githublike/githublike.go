// Package githublike contains what the API and the deliveries of Gitea have in common with GitHub's.
package githublike

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/forges/rest"
	"workflowagent/internal/server/vcs/forges/site"
)

// Site is a client of the API.
type Site struct{ *site.Site }

// In returns the resource of a repository.
func (s Site) In(repo vcs.RepoID) rest.Resource { return s.Repository("/repos", repo.Name) }

// Find implements [vcs.Repository]. The server redirects the old name of a renamed repository.
func (s Site) Find(ctx context.Context, name string) (vcs.Repo, error) {
	var r Repository
	if err := s.In(vcs.RepoID{Name: name}).Get(ctx, &r); err != nil {
		return vcs.Repo{}, fmt.Errorf("finding the repository %s: %w", name, err)
	}
	return s.Repo(&r), nil
}

// Repo describes a repository. Its clone URL is built from the configuration, because the server's
// own can be one that only users can reach.
func (s Site) Repo(r *Repository) vcs.Repo {
	return vcs.Repo{RepoID: r.RepoID(), CloneURL: s.CloneURL(r.FullName), Branch: r.DefaultBranch}
}

// Repository is a repository in the API.
type Repository struct {
	Named
	DefaultBranch string `json:"default_branch"`
}

// Named identifies a repository.
type Named struct {
	ID       int64  `json:"id"`
	FullName string `json:"full_name"`
}

// RepoID returns the id of a repository, or the zero value for nil.
func (r *Named) RepoID() vcs.RepoID {
	if r == nil || r.ID == 0 {
		return vcs.RepoID{}
	}
	return vcs.RepoID{ID: strconv.FormatInt(r.ID, 10), Name: r.FullName}
}

// User is an account.
type User struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Type  string `json:"type"` // only GitHub's
}

// Account returns the account, or the zero value for nil.
func (u *User) Account() vcs.Account {
	if u == nil || u.ID == 0 {
		return vcs.Account{}
	}
	return vcs.Account{ID: strconv.FormatInt(u.ID, 10), Name: u.Login, Bot: u.Type == "Bot"}
}

// Branch is the head or the base of a pull request.
type Branch struct {
	Ref string `json:"ref"`
	// Label is "" for a pull request of Gitea's flow AGit: users who may only read the repository make one by a
	// push to refs/for, and the server names the base repository as that of the head.
	Label string      `json:"label"`
	SHA   string      `json:"sha"`
	Repo  *Repository `json:"repo"`
}

// Pull is a pull request.
type Pull struct {
	Number   int        `json:"number"`
	Title    string     `json:"title"`
	URL      string     `json:"html_url"`
	State    string     `json:"state"`
	Draft    bool       `json:"draft"`
	MergedAt *time.Time `json:"merged_at"`
	Merged   bool       `json:"merged"` // not in GitHub's lists
	Head     *Branch    `json:"head"`
	Base     *Branch    `json:"base"`
	User     *User      `json:"user"`
	Updated  time.Time  `json:"updated_at"`
	Labels   []struct {
		Name string `json:"name"`
	} `json:"labels"`
}

// Normal returns the pull request in the form of all forges.
func (p *Pull) Normal() (vcs.Pull, error) {
	if p.Number <= 0 || p.Head == nil || p.Base == nil || p.Base.Repo == nil || hook.Commit(p.Head.SHA) == "" {
		return vcs.Pull{}, fmt.Errorf("the forge's pull request %d has no head or no base: %w", p.Number, vcs.ErrNotFound)
	}
	out := vcs.Pull{
		Number: p.Number, Title: p.Title, URL: p.URL, State: vcs.PullClosed,
		Head: hook.Commit(p.Head.SHA), Base: p.Base.Ref, Source: p.Head.Ref, Ref: "refs/pull/" + strconv.Itoa(p.Number) + "/head",
		Draft: p.Draft, Author: p.User.Account(), UpdatedAt: p.Updated,
		// The repository of a deleted fork is null.
		Fork: p.Head.Repo == nil || p.Head.Repo.ID != p.Base.Repo.ID,
	}
	switch {
	case p.Merged, p.MergedAt != nil:
		out.State = vcs.PullMerged
	case p.State == "open":
		out.State = vcs.PullOpen
	}
	for _, label := range p.Labels {
		out.Labels = append(out.Labels, label.Name)
	}
	return out, nil
}

// MayWrite reports whether an account has one of the permissions in a repository.
func MayWrite(ctx context.Context, repo rest.Resource, account vcs.Account, permissions ...string) (bool, error) {
	if account.Name == "" || account.ID == "" {
		return false, nil
	}
	var answer struct {
		Permission string `json:"permission"`
		User       *User  `json:"user"`
	}
	err := repo.At("collaborators", account.Name, "permission").Get(ctx, &answer)
	if rest.IsStatus(err, 404) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the permission of %s: %w", account.Name, err)
	}
	// Another account can have the name now.
	return slices.Contains(permissions, answer.Permission) && answer.User.Account().ID == account.ID, nil
}

// ChangedFile is a file of a pull request or a commit.
type ChangedFile struct {
	Name     string `json:"filename"`
	Previous string `json:"previous_filename"`
}

// AddFiles appends both names of each file.
func AddFiles(files []string, more []ChangedFile) []string {
	for _, f := range more {
		files = rest.AddNames(files, f.Name, f.Previous)
	}
	return files
}

// Hook is a registered webhook.
type Hook struct {
	ID     int64 `json:"id"`
	Config struct {
		URL string `json:"url"`
	} `json:"config"`
}

// HookID returns a function that returns the id of the webhook with a URL, or "".
func HookID(url string) func(page []Hook) string {
	return func(page []Hook) string {
		for _, h := range page {
			if h.Config.URL == url {
				return strconv.FormatInt(h.ID, 10)
			}
		}
		return ""
	}
}

// Comments are the comments of a pull request. It implements [rest.Thread].
type Comments struct {
	Repo rest.Resource
	Pull int
	// Own returns a function that reports whether the integration's own account wrote a comment, or nil if
	// the account is unknown.
	Own func(ctx context.Context) (func(Comment) bool, error)
}

// Comment is a comment on a pull request.
type Comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	User *User  `json:"user"`
	App  *struct {
		ID int64 `json:"id"`
	} `json:"performed_via_github_app"`
}

func (c *Comments) list() rest.Resource { return c.Repo.At("issues", strconv.Itoa(c.Pull), "comments") }

// Create implements [rest.Thread].
func (c *Comments) Create(ctx context.Context, body string) (string, error) {
	return c.list().Create(ctx, map[string]string{"body": body})
}

// Replace implements [rest.Thread].
func (c *Comments) Replace(ctx context.Context, id, body string) error {
	return c.Repo.At("issues", "comments", id).Send(ctx, "PATCH", map[string]string{"body": body}, nil)
}

// Find implements [rest.Thread].
func (c *Comments) Find(ctx context.Context, text string) (string, error) {
	isOwn, err := c.Own(ctx)
	if err != nil || isOwn == nil {
		return "", err
	}
	return rest.First(ctx, c.list().Query("per_page=100"), func(page []Comment) string {
		for _, comment := range page {
			if isOwn(comment) && strings.Contains(comment.Body, text) {
				return strconv.FormatInt(comment.ID, 10)
			}
		}
		return ""
	})
}
