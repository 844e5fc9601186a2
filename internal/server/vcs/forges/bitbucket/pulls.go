package bitbucket

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/forges/rest"
)

type side struct {
	Branch *struct {
		Name string `json:"name"`
	} `json:"branch"`
	Commit *struct {
		Hash string `json:"hash"`
	} `json:"commit"`
	Repository *repository `json:"repository"`
}

type pull struct {
	Number      int       `json:"id"`
	Title       string    `json:"title"`
	State       string    `json:"state"`
	Draft       bool      `json:"draft"`
	Source      *side     `json:"source"`
	Destination *side     `json:"destination"`
	Author      *user     `json:"author"`
	Updated     time.Time `json:"updated_on"`
	Links       struct {
		HTML struct {
			Href string `json:"href"`
		} `json:"html"`
	} `json:"links"`
}

// minShort is the length of the commit ids in the forge's pull requests.
const minShort = 12

func (c *client) normal(ctx context.Context, repo vcs.RepoID, p *pull) (vcs.Pull, error) {
	if p.Number <= 0 || p.Source == nil || p.Source.Branch == nil || p.Source.Commit == nil || len(p.Source.Commit.Hash) < minShort ||
		p.Destination == nil || p.Destination.Branch == nil || p.Destination.Repository == nil {
		return vcs.Pull{}, fmt.Errorf("the forge's pull request %d has no head or no base: %w", p.Number, vcs.ErrNotFound)
	}
	source := p.Source.Repository
	out := vcs.Pull{
		Number: p.Number, Title: p.Title, URL: p.Links.HTML.Href, State: vcs.PullClosed, Head: hook.Commit(p.Source.Commit.Hash),
		Base: p.Destination.Branch.Name, Source: p.Source.Branch.Name, Draft: p.Draft, Author: p.Author.account(), UpdatedAt: p.Updated,
		// The repository of a deleted fork is null.
		Fork: source == nil || source.UUID != p.Destination.Repository.UUID,
	}
	switch p.State {
	case "OPEN":
		out.State = vcs.PullOpen
	case "MERGED":
		out.State = vcs.PullMerged
	}
	names := []string{repo.Name}
	if !out.Fork {
		out.Ref = "refs/heads/" + out.Source
	} else if source != nil {
		names = append(names, source.FullName)
	}
	if out.Head == "" {
		full, err := c.resolve(ctx, p.Source.Commit.Hash, names...)
		if err != nil && (out.State == vcs.PullOpen || !errors.Is(err, vcs.ErrNotFound)) {
			return vcs.Pull{}, fmt.Errorf("finding the commit %.40s: %w", p.Source.Commit.Hash, err)
		}
		out.Head = hook.Commit(full)
	}
	return out, nil
}

// Pull implements [vcs.Pulls].
func (c *client) Pull(ctx context.Context, repo vcs.RepoID, number int) (vcs.Pull, error) {
	var p pull
	err := c.in(repo).At("pullrequests", strconv.Itoa(number)).Get(ctx, &p)
	if err != nil {
		return vcs.Pull{}, fmt.Errorf("reading pull request %d: %w", number, err)
	}
	return c.normal(ctx, repo, &p)
}

// Pulls implements [vcs.Pulls]. The cursor is the time of the latest update.
func (c *client) Pulls(ctx context.Context, repo vcs.RepoID, since vcs.Cursor) ([]vcs.Pull, vcs.Cursor, error) {
	at := c.in(repo).At("pullrequests").Query("sort=-updated_on&pagelen=50&state=OPEN")
	if since != "" {
		at = at.Query("state=MERGED&state=DECLINED&state=SUPERSEDED")
	}
	list := rest.NewUpdates(since)
	err := rest.Each(ctx, at, func(part page[*pull]) (bool, error) {
		for _, p := range part.Values {
			if p == nil {
				continue
			}
			if list.IsOld(p.Updated) {
				return false, nil
			}
			normal, err := c.normal(ctx, repo, p)
			if errors.Is(err, vcs.ErrNotFound) {
				continue // it has no commit, and must not hide the others
			}
			if err != nil {
				return false, err
			}
			list.Add(normal)
		}
		return true, nil
	})
	return list.Result(err)
}

// MayWrite implements [vcs.Pulls].
func (c *client) MayWrite(ctx context.Context, repo vcs.RepoID, account vcs.Account) (bool, error) {
	if err := rest.CheckName(repo.Name); err != nil || account.ID == "" {
		return false, err
	}
	workspace, slug, _ := strings.Cut(repo.Name, "/")
	at := c.At("workspaces", workspace, "permissions", "repositories", slug).Query("q=" + url.QueryEscape(`user.uuid="`+account.ID+`"`))
	type permission struct {
		Permission string `json:"permission"`
		User       *user  `json:"user"`
	}
	may := false
	err := rest.Each(ctx, at, func(list page[permission]) (bool, error) {
		for _, p := range list.Values {
			may = may || p.User.account().ID == account.ID && (p.Permission == "write" || p.Permission == "admin")
		}
		return !may, nil
	})
	return may, fault.While(err, "reading the permission of %s", account.Name)
}
