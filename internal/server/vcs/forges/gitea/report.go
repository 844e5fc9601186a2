package gitea

import (
	"context"
	"fmt"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/rest"
)

var states = map[vcs.ReportState]string{
	vcs.ReportPending: "pending", vcs.ReportRunning: "pending", vcs.ReportAction: "pending",
	vcs.ReportSucceeded: "success", vcs.ReportNeutral: "success", vcs.ReportFailed: "failure",
}

// Limits of the forge's database.
const (
	maxContext     = 255
	maxDescription = 255
	commentLimit   = 60_000
)

// Report implements [vcs.Reporter]. The forge shows the latest status of each context.
func (c *client) Report(ctx context.Context, repo vcs.RepoID, r vcs.Report) (string, error) {
	id, err := c.In(repo).At("statuses", r.Commit).Create(ctx, map[string]string{
		"state": states[r.State], "context": rest.Trim(r.Context, maxContext),
		"description": rest.Trim(r.Summary, maxDescription), "target_url": r.URL,
	})
	if err != nil {
		return "", fmt.Errorf("setting a commit's status: %w", err)
	}
	return id, nil
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	return rest.Upsert(ctx, &githublike.Comments{Repo: c.In(repo), Pull: pull, Own: c.own}, pull, comment)
}

// own needs the permission to read the token's own account. Without it, no comment is known to be the
// integration's own.
func (c *client) own(ctx context.Context) (func(githublike.Comment) bool, error) {
	var account githublike.User
	_, err := c.Get(ctx, "/user", &account)
	if rest.IsStatus(err, 403) {
		return nil, nil //nolint:nilnil // the account is unknown
	}
	return func(c githublike.Comment) bool { return c.User != nil && c.User.ID == account.ID }, err
}

// EnsureHook implements [vcs.Hooker].
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	return rest.EnsureHook(ctx, c.In(repo).At("hooks"), "limit=50", githublike.HookID(h.URL), "PATCH", map[string]any{
		"type": "gitea", "active": true,
		"config": map[string]string{"url": h.URL, "secret": h.Secret, "content_type": "json"},
		"events": []string{"push", "delete", "pull_request", "pull_request_sync", "pull_request_label", "repository"},
	})
}
