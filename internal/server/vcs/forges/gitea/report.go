package gitea

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
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
	at, err := path(repo.Name, "statuses", r.Commit)
	if err != nil {
		return "", err
	}
	var status struct {
		ID int64 `json:"id"`
	}
	_, err = c.api.Send(ctx, "POST", at, map[string]string{
		"state": states[r.State], "context": rest.Trim(r.Context, maxContext),
		"description": rest.Trim(r.Summary, maxDescription), "target_url": r.URL,
	}, &status)
	if err != nil {
		return "", fmt.Errorf("setting a commit's status: %w", err)
	}
	return strconv.FormatInt(status.ID, 10), nil
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	id, err := rest.Upsert(ctx, &thread{c, repo.Name, pull}, comment)
	if err != nil {
		return "", fmt.Errorf("commenting on pull request %d: %w", pull, err)
	}
	return id, nil
}

type thread struct {
	*client
	name string
	pull int
}

type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	User *user  `json:"user"`
}

func (t *thread) Create(ctx context.Context, body string) (string, error) {
	at, err := path(t.name, "issues", strconv.Itoa(t.pull), "comments")
	if err != nil {
		return "", err
	}
	var created comment
	_, err = t.api.Send(ctx, "POST", at, map[string]string{"body": body}, &created)
	return strconv.FormatInt(created.ID, 10), err
}

func (t *thread) Replace(ctx context.Context, id, body string) error {
	at, err := path(t.name, "issues", "comments", id)
	if err != nil {
		return err
	}
	_, err = t.api.Send(ctx, "PATCH", at, map[string]string{"body": body}, nil)
	return err
}

// Find needs the permission to read the token's own account. Without it, no comment is known to be
// the integration's own.
func (t *thread) Find(ctx context.Context, text string) (string, error) {
	var own user
	if _, err := t.api.Get(ctx, "/user", &own); rest.IsStatus(err, 403) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	at, err := path(t.name, "issues", strconv.Itoa(t.pull), "comments")
	if err != nil {
		return "", err
	}
	var comments []comment // the forge does not divide this list
	if _, err := t.api.Get(ctx, at, &comments); err != nil {
		return "", err
	}
	for _, c := range comments {
		if c.User != nil && c.User.ID == own.ID && strings.Contains(c.Body, text) {
			return strconv.FormatInt(c.ID, 10), nil
		}
	}
	return "", nil
}

// EnsureHook implements [vcs.Hooker].
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	at, err := path(repo.Name, "hooks")
	if err != nil {
		return err
	}
	id := ""
	type registered struct {
		ID     int64             `json:"id"`
		Config map[string]string `json:"config"`
	}
	err = rest.Pages(ctx, &c.api, at+"?limit=50", func(page []registered) (bool, error) {
		for _, r := range page {
			if r.Config["url"] == h.URL {
				id = strconv.FormatInt(r.ID, 10)
			}
		}
		return id == "", nil
	})
	body := map[string]any{
		"type": "gitea", "active": true,
		"config": map[string]string{"url": h.URL, "secret": h.Secret, "content_type": "json"},
		"events": []string{"push", "delete", "pull_request", "pull_request_sync", "pull_request_label", "repository"},
	}
	switch {
	case err != nil:
	case id == "":
		_, err = c.api.Send(ctx, "POST", at, body, nil)
	default:
		_, err = c.api.Send(ctx, "PATCH", at+rest.Path(id), body, nil)
	}
	if err != nil {
		return fmt.Errorf("registering the webhook: %w", err)
	}
	return nil
}
