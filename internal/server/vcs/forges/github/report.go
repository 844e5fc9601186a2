package github

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
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
func (c *client) Report(ctx context.Context, repo vcs.RepoID, r vcs.Report) (string, error) {
	var created struct {
		ID int64 `json:"id"`
	}
	var err error
	if c.app == nil {
		err = c.send(ctx, repo, "POST", map[string]any{
			"state": statuses[r.State], "context": rest.Trim(r.Context, maxTitle), "description": rest.Trim(r.Summary, maxDescription), "target_url": r.URL,
		}, &created, "statuses", r.Commit)
	} else {
		state := checks[r.State]
		body := map[string]any{"name": rest.Trim(r.Context, maxTitle), "status": state[0], "details_url": r.URL, "external_id": r.Context}
		if state[1] != "" {
			body["conclusion"] = state[1]
		}
		if r.Summary != "" {
			body["output"] = map[string]string{"title": rest.Trim(r.Summary, maxTitle), "summary": rest.Trim(r.Summary, maxTitle), "text": rest.Trim(r.Details, maxOutput)}
		}
		err = c.sendCheck(ctx, repo, r, body, &created)
	}
	if err != nil {
		return "", fmt.Errorf("reporting on a commit: %w", err)
	}
	return strconv.FormatInt(created.ID, 10), nil
}

// sendCheck changes the check run of an earlier report. A completed one does not start again, but is
// replaced by another: the forge shows the latest of each name.
func (c *client) sendCheck(ctx context.Context, repo vcs.RepoID, r vcs.Report, body map[string]any, into any) error {
	if r.ID != "" {
		var known struct {
			Status string `json:"status"`
		}
		err := c.get(ctx, repo, &known, "check-runs", r.ID)
		if err != nil && !rest.IsStatus(err, 404) {
			return err
		}
		if err == nil && (known.Status != "completed" || body["status"] == "completed") {
			return c.send(ctx, repo, "PATCH", body, into, "check-runs", r.ID)
		}
	}
	body["head_sha"] = r.Commit
	return c.send(ctx, repo, "POST", body, into, "check-runs")
}

func (c *client) send(ctx context.Context, repo vcs.RepoID, method string, body, into any, elements ...string) error {
	at, err := path(repo.Name, elements...)
	if err != nil {
		return err
	}
	_, err = c.api.Send(ctx, method, at, body, into)
	return err
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	id, err := rest.Upsert(ctx, &thread{c, repo, strconv.Itoa(pull)}, comment)
	if err != nil {
		return "", fmt.Errorf("commenting on pull request %d: %w", pull, err)
	}
	return id, nil
}

type thread struct {
	*client
	repo vcs.RepoID
	pull string
}

type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	User *user  `json:"user"`
	App  *struct {
		ID int64 `json:"id"`
	} `json:"performed_via_github_app"`
}

func (t *thread) Create(ctx context.Context, body string) (string, error) {
	var created comment
	err := t.send(ctx, t.repo, "POST", map[string]string{"body": body}, &created, "issues", t.pull, "comments")
	return strconv.FormatInt(created.ID, 10), err
}

func (t *thread) Replace(ctx context.Context, id, body string) error {
	return t.send(ctx, t.repo, "PATCH", map[string]string{"body": body}, nil, "issues", "comments", id)
}

func (t *thread) Find(ctx context.Context, text string) (id string, err error) {
	own := func(c comment) bool { return c.App != nil && strconv.FormatInt(c.App.ID, 10) == t.app.ID }
	if t.app == nil {
		var account user
		if _, err := t.api.Get(ctx, "/user", &account); err != nil {
			return "", err
		}
		own = func(c comment) bool { return c.User != nil && c.User.ID == account.ID }
	}
	at, err := path(t.repo.Name, "issues", t.pull, "comments")
	if err != nil {
		return "", err
	}
	err = rest.Pages(ctx, &t.api, at+"?per_page=100", func(page []comment) (bool, error) {
		for _, c := range page {
			if own(c) && strings.Contains(c.Body, text) {
				id = strconv.FormatInt(c.ID, 10)
				return false, nil
			}
		}
		return true, nil
	})
	return id, err
}

// EnsureHook implements [vcs.Hooker]. An app has one webhook for all repositories, which is part of
// its registration.
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	if c.app != nil {
		return nil
	}
	at, err := path(repo.Name, "hooks")
	if err != nil {
		return err
	}
	id := ""
	type registered struct {
		ID     int64 `json:"id"`
		Config struct {
			URL string `json:"url"`
		} `json:"config"`
	}
	err = rest.Pages(ctx, &c.api, at+"?per_page=100", func(page []registered) (bool, error) {
		for _, r := range page {
			if r.Config.URL == h.URL {
				id = strconv.FormatInt(r.ID, 10)
			}
		}
		return id == "", nil
	})
	body := map[string]any{
		"name": "web", "active": true, "events": []string{"push", "pull_request", "merge_group", "repository"},
		"config": map[string]string{"url": h.URL, "secret": h.Secret, "content_type": "json", "insecure_ssl": "0"},
	}
	switch {
	case err != nil:
	case id == "":
		_, err = c.api.Send(ctx, "POST", at, body, nil)
	default:
		delete(body, "name")
		_, err = c.api.Send(ctx, "PATCH", at+rest.Path(id), body, nil)
	}
	if err != nil {
		return fmt.Errorf("registering the webhook: %w", err)
	}
	return nil
}
