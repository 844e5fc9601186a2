package github

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/forges/rest"
)

type branch struct {
	Ref  string      `json:"ref"`
	SHA  string      `json:"sha"`
	Repo *repository `json:"repo"`
}

type pull struct {
	Number  int        `json:"number"`
	Title   string     `json:"title"`
	URL     string     `json:"html_url"`
	State   string     `json:"state"`
	Draft   bool       `json:"draft"`
	Merged  *time.Time `json:"merged_at"`
	Head    *branch    `json:"head"`
	Base    *branch    `json:"base"`
	User    *user      `json:"user"`
	Updated time.Time  `json:"updated_at"`
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
	switch {
	case p.Merged != nil:
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

// Pulls implements [vcs.Pulls]. The cursor is the time of the latest update and the entity tag of
// the first page: the forge does not count a request whose response is unchanged.
func (c *client) Pulls(ctx context.Context, repo vcs.RepoID, since vcs.Cursor) ([]vcs.Pull, vcs.Cursor, error) {
	at, err := path(repo.Name, "pulls")
	if err != nil {
		return nil, since, err
	}
	latest, tag, _ := strings.Cut(string(since), " ")
	state := "open"
	if since != "" {
		state = "all"
	}
	list := rest.NewUpdates(vcs.Cursor(latest))
	var page []*pull
	res, err := c.api.GetIfChanged(ctx, at+"?sort=updated&direction=desc&per_page=100&state="+state, tag, &page)
	if err != nil {
		return nil, since, fmt.Errorf("listing pull requests: %w", err)
	}
	if res.Status == 304 {
		return nil, since, nil
	}
	more, err := rest.AddPage(list, page, (*pull).normal)
	if err == nil && more && res.Next != "" {
		err = rest.Pages(ctx, &c.api, res.Next, func(page []*pull) (bool, error) { return rest.AddPage(list, page, (*pull).normal) })
	}
	pulls, next, err := list.Result(err)
	if etag := strings.Join(res.Header["Etag"], ""); state == "all" && etag != "" && len(etag) < 200 {
		next += vcs.Cursor(" " + etag)
	}
	return pulls, next, err
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
	writes := answer.Permission == "write" || answer.Permission == "admin"
	return writes && answer.User.account().ID == account.ID, nil
}
