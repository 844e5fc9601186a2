package gitea

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/forges/rest"
)

type branch struct {
	Ref string `json:"ref"`
	// Label is "" for a pull request of the flow AGit: whoever may read the repository makes one by a
	// push to refs/for, and the server names the base repository as that of the head.
	Label string      `json:"label"`
	SHA   string      `json:"sha"`
	Repo  *repository `json:"repo"`
}

type pull struct {
	Number  int       `json:"number"`
	Title   string    `json:"title"`
	URL     string    `json:"html_url"`
	State   string    `json:"state"`
	Draft   bool      `json:"draft"`
	Merged  bool      `json:"merged"`
	Head    *branch   `json:"head"`
	Base    *branch   `json:"base"`
	User    *user     `json:"user"`
	Updated time.Time `json:"updated_at"`
	Labels  []struct {
		Name string `json:"name"`
	} `json:"labels"`
}

func (p *pull) normal() (vcs.Pull, error) {
	if p.Number <= 0 || p.Head == nil || p.Base == nil || p.Base.Repo == nil || hook.Commit(p.Head.SHA) == "" {
		return vcs.Pull{}, fmt.Errorf("the forge's pull request %d has no head or no base: %w", p.Number, vcs.ErrNotFound)
	}
	out := vcs.Pull{
		Number: p.Number, Title: p.Title, URL: p.URL, State: vcs.PullClosed,
		Head: hook.Commit(p.Head.SHA), Base: p.Base.Ref, Source: p.Head.Ref, Ref: "refs/pull/" + strconv.Itoa(p.Number) + "/head",
		Draft: p.Draft, Author: p.User.account(), UpdatedAt: p.Updated,
		// The repository of a deleted fork is null.
		Fork: p.Head.Repo == nil || p.Head.Repo.ID != p.Base.Repo.ID,
	}
	if !out.Fork && (p.Head.Label == "" || strings.HasPrefix(p.Head.Ref, "refs/")) {
		out.Fork, out.Doubt = true, vcs.ReasonNoBranch
	}
	switch {
	case p.Merged:
		out.State = vcs.PullMerged
	case p.State == "open":
		out.State = vcs.PullOpen
	}
	for _, label := range p.Labels {
		out.Labels = append(out.Labels, label.Name)
	}
	return out, nil
}

// Pull implements [vcs.Pulls].
func (c *client) Pull(ctx context.Context, repo vcs.RepoID, number int) (vcs.Pull, error) {
	var p pull
	if err := c.get(ctx, repo, &p, "pulls", strconv.Itoa(number)); err != nil {
		return vcs.Pull{}, fmt.Errorf("reading pull request %d: %w", number, err)
	}
	return p.normal()
}

// Pulls implements [vcs.Pulls]. The cursor is the time of the latest update.
func (c *client) Pulls(ctx context.Context, repo vcs.RepoID, since vcs.Cursor) ([]vcs.Pull, vcs.Cursor, error) {
	at, err := path(repo.Name, "pulls")
	if err != nil {
		return nil, since, err
	}
	state := "open"
	if since != "" {
		state = "all"
	}
	list := rest.NewUpdates(since)
	err = rest.Pages(ctx, &c.api, at+"?sort=recentupdate&limit=50&state="+url.QueryEscape(state), func(page []*pull) (bool, error) {
		return rest.AddPage(list, page, (*pull).normal)
	})
	return list.Result(err)
}

// MayWrite implements [vcs.Pulls].
func (c *client) MayWrite(ctx context.Context, repo vcs.RepoID, account vcs.Account) (bool, error) {
	if account.Name == "" || account.ID == "" {
		return false, nil
	}
	var answer struct {
		Permission string `json:"permission"`
		User       *user  `json:"user"`
	}
	err := c.get(ctx, repo, &answer, "collaborators", account.Name, "permission")
	if rest.IsStatus(err, 404) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the permission of %s: %w", account.Name, err)
	}
	// Another account can have the name now.
	writes := slices.Contains([]string{"write", "admin", "owner"}, answer.Permission)
	return writes && answer.User.account().ID == account.ID, nil
}
