package azure

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/forges/rest"
)

type pull struct {
	Number  int       `json:"pullRequestId"`
	Title   string    `json:"title"`
	Status  string    `json:"status"`
	Draft   bool      `json:"isDraft"`
	Source  string    `json:"sourceRefName"`
	Target  string    `json:"targetRefName"`
	Created time.Time `json:"creationDate"`
	Closed  time.Time `json:"closedDate"`
	Author  *user     `json:"createdBy"`
	Head    *struct {
		ID string `json:"commitId"`
	} `json:"lastMergeSourceCommit"`
	Fork   *struct{} `json:"forkSource"`
	Labels []struct {
		Name   string `json:"name"`
		Active bool   `json:"active"`
	} `json:"labels"`
}

func (c *client) normal(repo vcs.RepoID, p *pull) (vcs.Pull, error) {
	if p.Number <= 0 || p.Head == nil || hook.Commit(p.Head.ID) == "" {
		return vcs.Pull{}, fmt.Errorf("the forge's pull request %d has no head: %w", p.Number, vcs.ErrNotFound)
	}
	project, repository, err := c.split(repo.Name)
	if err != nil {
		return vcs.Pull{}, err
	}
	out := vcs.Pull{
		Number: p.Number, Title: p.Title, URL: c.address(project, repository) + rest.Path("pullrequest", strconv.Itoa(p.Number)), State: vcs.PullClosed,
		Head: hook.Commit(p.Head.ID), Base: strings.TrimPrefix(p.Target, "refs/heads/"), Source: strings.TrimPrefix(p.Source, "refs/heads/"),
		Draft: p.Draft, Author: p.Author.account(), Fork: p.Fork != nil, UpdatedAt: p.Created,
	}
	if p.Closed.After(p.Created) {
		out.UpdatedAt = p.Closed
	}
	switch {
	case out.Fork:
	case strings.HasPrefix(p.Source, "refs/heads/"):
		out.Ref = p.Source // the forge has a ref for the merged commit only
	default:
		out.Fork, out.Doubt = true, vcs.ReasonNoBranch
	}
	switch p.Status {
	case "active":
		out.State = vcs.PullOpen
	case "completed":
		out.State = vcs.PullMerged
	}
	for _, label := range p.Labels {
		if label.Active {
			out.Labels = append(out.Labels, label.Name)
		}
	}
	return out, nil
}

// Pull implements [vcs.Pulls].
func (c *client) Pull(ctx context.Context, repo vcs.RepoID, number int) (vcs.Pull, error) {
	var p pull
	if err := c.in(repo).At("pullRequests", strconv.Itoa(number)).Get(ctx, &p); err != nil {
		return vcs.Pull{}, fmt.Errorf("reading pull request %d: %w", number, err)
	}
	return c.normal(repo, &p)
}

// Pulls implements [vcs.Pulls]. The forge does not say when an open pull request was updated, so all
// open ones are returned each time. The cursor is the time at which the latest one was closed.
func (c *client) Pulls(ctx context.Context, repo vcs.RepoID, since vcs.Cursor) ([]vcs.Pull, vcs.Cursor, error) {
	updates := rest.NewUpdates(since)
	statuses := []string{"active"}
	if since != "" {
		statuses = append(statuses, "completed", "abandoned")
	}
	var open []vcs.Pull
	var long error
	for _, status := range statuses {
		err := c.pages(ctx, repo, status, func(p *pull) (bool, error) {
			normal, err := c.normal(repo, p)
			if errors.Is(err, vcs.ErrNotFound) {
				return true, nil // it has no commit, and must not hide the others
			}
			if err != nil {
				return false, err
			}
			if normal.State == vcs.PullOpen {
				open = append(open, normal)
				return true, nil
			}
			return updates.Add(normal), nil
		})
		if err != nil && !errors.Is(err, rest.ErrManyPages) {
			return nil, since, fmt.Errorf("listing pull requests: %w", err)
		}
		if err != nil {
			long = err
		}
	}
	closed, next, err := updates.Result(long)
	return append(closed, open...), next, err
}

// pages reads the pull requests with a status, the one that was created or closed last first.
func (c *client) pages(ctx context.Context, repo vcs.RepoID, status string, each func(p *pull) (more bool, err error)) error {
	for skip := 0; skip < maxPages*pageSize; {
		var answer list[*pull]
		query := url.Values{"searchCriteria.status": {status}, "$top": {strconv.Itoa(pageSize)}, "$skip": {strconv.Itoa(skip)}}
		if err := c.in(repo).At("pullrequests").Query(query.Encode()).Get(ctx, &answer); err != nil {
			return err
		}
		for _, p := range answer.Value {
			if p == nil {
				continue
			}
			if more, err := each(p); err != nil || !more {
				return err
			}
		}
		if skip += len(answer.Value); len(answer.Value) == 0 {
			return nil
		}
	}
	return rest.ErrManyPages
}

// MayWrite implements [vcs.Pulls]. The forge evaluates permissions only for the account that asks, so
// no other account is known to have any.
func (*client) MayWrite(context.Context, vcs.RepoID, vcs.Account) (bool, error) { return false, nil }
