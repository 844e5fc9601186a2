package gitlab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
)

var states = map[vcs.ReportState]string{
	vcs.ReportPending: "pending", vcs.ReportRunning: "running", vcs.ReportAction: "pending",
	vcs.ReportSucceeded: "success", vcs.ReportNeutral: "success", vcs.ReportFailed: "failed",
}

// Limits of the forge.
const (
	maxText      = 255
	commentLimit = 60_000
)

// Report implements [vcs.Reporter].
func (c *client) Report(ctx context.Context, repo vcs.RepoID, r vcs.Report) (string, error) {
	var status struct {
		ID int64 `json:"id"`
	}
	_, err := c.api.Send(ctx, "POST", path(repo, "statuses", r.Commit), map[string]string{
		"state": states[r.State], "name": rest.Trim(r.Context, maxText), "description": rest.Trim(r.Summary, maxText), "target_url": r.URL,
	}, &status)
	// The forge refuses to set a state again, and to return from running to pending.
	if e, ok := errors.AsType[*rest.Error](err); ok && e.Status == 400 && strings.Contains(e.Message, "Cannot transition status") {
		return r.ID, nil
	}
	if err != nil {
		return "", fmt.Errorf("setting a commit's status: %w", err)
	}
	return strconv.FormatInt(status.ID, 10), nil
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	id, err := rest.Upsert(ctx, &thread{c, path(repo, "merge_requests", strconv.Itoa(pull), "notes")}, comment)
	if err != nil {
		return "", fmt.Errorf("commenting on merge request %d: %w", pull, err)
	}
	return id, nil
}

type thread struct {
	*client
	path string
}

type note struct {
	ID     int64  `json:"id"`
	Body   string `json:"body"`
	Author *user  `json:"author"`
}

func (t *thread) Create(ctx context.Context, body string) (string, error) {
	var created note
	_, err := t.api.Send(ctx, "POST", t.path, map[string]string{"body": body}, &created)
	return strconv.FormatInt(created.ID, 10), err
}

func (t *thread) Replace(ctx context.Context, id, body string) error {
	_, err := t.api.Send(ctx, "PUT", t.path+rest.Path(id), map[string]string{"body": body}, nil)
	return err
}

func (t *thread) Find(ctx context.Context, text string) (id string, err error) {
	var own user
	if _, err := t.api.Get(ctx, "/user", &own); err != nil {
		return "", err
	}
	err = rest.Pages(ctx, &t.api, t.path+"?per_page=100&sort=asc", func(page []note) (bool, error) {
		for _, n := range page {
			if n.Author != nil && n.Author.ID == own.ID && strings.Contains(n.Body, text) {
				id = strconv.FormatInt(n.ID, 10)
				return false, nil
			}
		}
		return true, nil
	})
	return id, err
}

// EnsureHook implements [vcs.Hooker].
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	at, id := path(repo, "hooks"), ""
	type registered struct {
		ID  int64  `json:"id"`
		URL string `json:"url"`
	}
	err := rest.Pages(ctx, &c.api, at+"?per_page=100", func(page []registered) (bool, error) {
		for _, r := range page {
			if r.URL == h.URL {
				id = strconv.FormatInt(r.ID, 10)
			}
		}
		return id == "", nil
	})
	body := map[string]any{
		"url": h.URL, "token": h.Secret, "push_events": true, "tag_push_events": true, "merge_requests_events": true, "enable_ssl_verification": true,
	}
	switch {
	case err != nil:
	case id == "":
		_, err = c.api.Send(ctx, "POST", at, body, nil)
	default:
		_, err = c.api.Send(ctx, "PUT", at+rest.Path(id), body, nil)
	}
	if err != nil {
		return fmt.Errorf("registering the webhook: %w", err)
	}
	return nil
}
