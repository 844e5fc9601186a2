package github

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/rest"
)

// Pull implements [vcs.Pulls].
func (c *client) Pull(ctx context.Context, repo vcs.RepoID, number int) (vcs.Pull, error) {
	var p githublike.Pull
	if err := c.In(repo).At("pulls", strconv.Itoa(number)).Get(ctx, &p); err != nil {
		return vcs.Pull{}, fmt.Errorf("reading pull request %d: %w", number, err)
	}
	return p.Normal()
}

// Pulls implements [vcs.Pulls]. The cursor is the time of the latest update and the entity tag of
// the first page: the forge does not count a request whose response is unchanged.
func (c *client) Pulls(ctx context.Context, repo vcs.RepoID, since vcs.Cursor) ([]vcs.Pull, vcs.Cursor, error) {
	latest, tag, _ := strings.Cut(string(since), " ")
	state := "open"
	if since != "" {
		state = "all"
	}
	list := rest.NewUpdates(vcs.Cursor(latest))
	var page []*githublike.Pull
	first := c.In(repo).At("pulls").Query("sort=updated&direction=desc&per_page=100&state=" + state)
	res, err := first.GetIfChanged(ctx, tag, &page)
	if err != nil {
		return nil, since, fmt.Errorf("listing pull requests: %w", err)
	}
	if res.Status == 304 {
		return nil, since, nil
	}
	more, err := rest.AddPage(list, page, (*githublike.Pull).Normal)
	if err == nil && more && res.Next != "" {
		err = rest.Pages(ctx, &c.Client, res.Next, func(page []*githublike.Pull) (bool, error) {
			return rest.AddPage(list, page, (*githublike.Pull).Normal)
		})
	}
	pulls, next, err := list.Result(err)
	if etag := strings.Join(res.Header["Etag"], ""); state == "all" && etag != "" && len(etag) < 200 {
		next += vcs.Cursor(" " + etag)
	}
	return pulls, next, err
}

// MayWrite implements [vcs.Pulls].
func (c *client) MayWrite(ctx context.Context, repo vcs.RepoID, account vcs.Account) (bool, error) {
	return githublike.MayWrite(ctx, c.In(repo), account, "write", "admin")
}
