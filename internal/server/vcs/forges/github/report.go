package github

import (
	"context"
	"fmt"
	"strconv"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/rest"
)

// Limits of the forge.
const (
	maxDescription = 140
	maxOutput      = 65_000
	maxTitle       = 250
	commentLimit   = 60_000
)

// statuses are the states of commit statuses.
var statuses = map[vcs.ReportState]string{
	vcs.ReportPending: "pending", vcs.ReportRunning: "pending", vcs.ReportAction: "pending",
	vcs.ReportSucceeded: "success", vcs.ReportNeutral: "success", vcs.ReportFailed: "failure",
}

// checks are the states of check runs: the status, and the conclusion of a completed one.
var checks = map[vcs.ReportState][2]string{
	vcs.ReportPending: {"queued"}, vcs.ReportRunning: {"in_progress"}, vcs.ReportAction: {"completed", "action_required"},
	vcs.ReportSucceeded: {"completed", "success"}, vcs.ReportNeutral: {"completed", "neutral"}, vcs.ReportFailed: {"completed", "failure"},
}

// Report implements [vcs.Reporter]. Only an app can create check runs; a token creates statuses.
func (c *client) Report(ctx context.Context, repo vcs.RepoID, r vcs.Report) (id string, err error) {
	if c.app == nil {
		id, err = c.In(repo).At("statuses", r.Commit).Create(ctx, map[string]any{
			"state": statuses[r.State], "context": rest.Trim(r.Context, maxTitle), "description": rest.Trim(r.Summary, maxDescription), "target_url": r.URL,
		})
	} else {
		state := checks[r.State]
		body := map[string]any{"name": rest.Trim(r.Context, maxTitle), "status": state[0], "details_url": r.URL, "external_id": r.Context}
		if state[1] != "" {
			body["conclusion"] = state[1]
		}
		if r.Summary != "" {
			body["output"] = map[string]string{"title": rest.Trim(r.Summary, maxTitle), "summary": rest.Trim(r.Summary, maxTitle), "text": rest.Trim(r.Details, maxOutput)}
		}
		id, err = sendCheck(ctx, c.In(repo).At("check-runs"), r, body)
	}
	if err != nil {
		return "", fmt.Errorf("reporting on a commit: %w", err)
	}
	return id, nil
}

// sendCheck changes the check run of an earlier report. A completed one does not start again, but is
// replaced by another: the forge shows the latest of each name.
func sendCheck(ctx context.Context, runs rest.Resource, r vcs.Report, body map[string]any) (id string, err error) {
	if r.ID != "" {
		var known struct {
			Status string `json:"status"`
		}
		err := runs.At(r.ID).Get(ctx, &known)
		if err != nil && !rest.IsStatus(err, 404) {
			return "", err
		}
		if err == nil && (known.Status != "completed" || body["status"] == "completed") {
			return r.ID, runs.At(r.ID).Send(ctx, "PATCH", body, nil)
		}
	}
	body["head_sha"] = r.Commit
	return runs.Create(ctx, body)
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	return rest.Upsert(ctx, &githublike.Comments{Repo: c.In(repo), Pull: pull, Own: c.own}, pull, comment)
}

// own returns a function that reports whether the app, or the token's account, wrote a comment.
func (c *client) own(ctx context.Context) (func(githublike.Comment) bool, error) {
	if c.app != nil {
		return func(comment githublike.Comment) bool {
			return comment.App != nil && strconv.FormatInt(comment.App.ID, 10) == c.app.ID
		}, nil
	}
	var account githublike.User
	_, err := c.Get(ctx, "/user", &account)
	return func(comment githublike.Comment) bool { return comment.User != nil && comment.User.ID == account.ID }, err
}

// EnsureHook implements [vcs.Hooker]. An app has one webhook for all repositories, which is part of
// its registration.
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	if c.app != nil {
		return nil
	}
	return rest.EnsureHook(ctx, c.In(repo).At("hooks"), "per_page=100", githublike.HookID(h.URL), "PATCH", map[string]any{
		"active": true, "events": []string{"push", "pull_request", "merge_group", "repository"},
		"config": map[string]string{"url": h.URL, "secret": h.Secret, "content_type": "json", "insecure_ssl": "0"},
	})
}
