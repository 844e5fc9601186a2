package gitlab

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/forges/rest"
)

// developer is the lowest access level that may push.
const developer = 30

type merge struct {
	Number        int       `json:"iid"`
	Title         string    `json:"title"`
	URL           string    `json:"web_url"`
	State         string    `json:"state"`
	Draft         bool      `json:"draft"`
	SHA           string    `json:"sha"`
	Source        string    `json:"source_branch"`
	Target        string    `json:"target_branch"`
	SourceProject *int64    `json:"source_project_id"`
	TargetProject int64     `json:"target_project_id"`
	Labels        []string  `json:"labels"`
	Author        *user     `json:"author"`
	Updated       time.Time `json:"updated_at"`
	Changes       string    `json:"changes_count"`
}

func (m *merge) normal() (vcs.Pull, error) {
	if m.Number <= 0 || m.TargetProject <= 0 || hook.Commit(m.SHA) == "" {
		return vcs.Pull{}, fmt.Errorf("the forge's merge request %d has no head or no target: %w", m.Number, vcs.ErrNotFound)
	}
	out := vcs.Pull{
		Number: m.Number, Title: m.Title, URL: m.URL, State: vcs.PullClosed, Head: hook.Commit(m.SHA),
		Base: m.Target, Source: m.Source, Ref: "refs/merge-requests/" + strconv.Itoa(m.Number) + "/head",
		Draft: m.Draft, Labels: m.Labels, Author: m.Author.account(), UpdatedAt: m.Updated,
		// The project of a deleted fork is null.
		Fork: m.SourceProject == nil || *m.SourceProject != m.TargetProject,
	}
	switch m.State {
	case "opened", "locked": // the state is locked while the forge merges
		out.State = vcs.PullOpen
	case "merged":
		out.State = vcs.PullMerged
	}
	return out, nil
}

// Pull implements [vcs.Pulls].
func (c *client) Pull(ctx context.Context, repo vcs.RepoID, number int) (vcs.Pull, error) {
	var m merge
	if err := c.in(repo).At("merge_requests", strconv.Itoa(number)).Get(ctx, &m); err != nil {
		return vcs.Pull{}, fmt.Errorf("reading merge request %d: %w", number, err)
	}
	return m.normal()
}

// Pulls implements [vcs.Pulls]. The cursor is the time of the latest update.
func (c *client) Pulls(ctx context.Context, repo vcs.RepoID, since vcs.Cursor) ([]vcs.Pull, vcs.Cursor, error) {
	state := "opened"
	if since != "" {
		state = "all"
	}
	list := rest.NewUpdates(since)
	at := c.in(repo).At("merge_requests").Query("order_by=updated_at&sort=desc&per_page=100&state=" + state)
	err := rest.Each(ctx, at, func(page []*merge) (bool, error) { return rest.AddPage(list, page, (*merge).normal) })
	return list.Result(err)
}

// MayWrite implements [vcs.Pulls].
func (c *client) MayWrite(ctx context.Context, repo vcs.RepoID, account vcs.Account) (bool, error) {
	if account.ID == "" {
		return false, nil
	}
	var member struct {
		ID    int64 `json:"id"`
		Level int   `json:"access_level"`
	}
	err := c.in(repo).At("members", "all", account.ID).Get(ctx, &member)
	if rest.IsStatus(err, 404) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the permission of %s: %w", account.Name, err)
	}
	return member.Level >= developer && strconv.FormatInt(member.ID, 10) == account.ID, nil
}
