package gitea

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/rest"
)

func normal(p *githublike.Pull) (vcs.Pull, error) {
	out, err := p.Normal()
	if err == nil && !out.Fork && (p.Head.Label == "" || strings.HasPrefix(p.Head.Ref, "refs/")) {
		out.Fork, out.Doubt = true, vcs.ReasonNoBranch
	}
	return out, err
}

// Pull implements [vcs.Pulls].
func (c *client) Pull(ctx context.Context, repo vcs.RepoID, number int) (vcs.Pull, error) {
	var p githublike.Pull
	if err := c.In(repo).At("pulls", strconv.Itoa(number)).Get(ctx, &p); err != nil {
		return vcs.Pull{}, fmt.Errorf("reading pull request %d: %w", number, err)
	}
	return normal(&p)
}

// Pulls implements [vcs.Pulls]. The cursor is the time of the latest update.
func (c *client) Pulls(ctx context.Context, repo vcs.RepoID, since vcs.Cursor) ([]vcs.Pull, vcs.Cursor, error) {
	state := "open"
	if since != "" {
		state = "all"
	}
	list := rest.NewUpdates(since)
	at := c.In(repo).At("pulls").Query("sort=recentupdate&limit=50&state=" + state)
	err := rest.Each(ctx, at, func(page []*githublike.Pull) (bool, error) { return rest.AddPage(list, page, normal) })
	return list.Result(err)
}

// MayWrite implements [vcs.Pulls].
func (c *client) MayWrite(ctx context.Context, repo vcs.RepoID, account vcs.Account) (bool, error) {
	return githublike.MayWrite(ctx, c.In(repo), account, "write", "admin", "owner")
}
