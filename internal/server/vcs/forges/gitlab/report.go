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
	id, err := c.in(repo).At("statuses", r.Commit).Create(ctx, map[string]string{
		"state": states[r.State], "name": rest.Trim(r.Context, maxText), "description": rest.Trim(r.Summary, maxText), "target_url": r.URL,
	})
	// The forge refuses to set a state again, and to return from running to pending.
	if e, ok := errors.AsType[*rest.Error](err); ok && e.Status == 400 && strings.Contains(e.Message, "Cannot transition status") {
		return r.ID, nil
	}
	if err != nil {
		return "", fmt.Errorf("setting a commit's status: %w", err)
	}
	return id, nil
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	return rest.Upsert(ctx, &thread{c, c.in(repo).At("merge_requests", strconv.Itoa(pull), "notes")}, pull, comment)
}

type thread struct {
	*client
	notes rest.Resource
}

type note struct {
	ID     int64  `json:"id"`
	Body   string `json:"body"`
	Author *user  `json:"author"`
}

func (t *thread) Create(ctx context.Context, body string) (string, error) {
	return t.notes.Create(ctx, map[string]string{"body": body})
}

func (t *thread) Replace(ctx context.Context, id, body string) error {
	return t.notes.At(id).Send(ctx, "PUT", map[string]string{"body": body}, nil)
}

func (t *thread) Find(ctx context.Context, text string) (id string, err error) {
	var own user
	if _, err := t.Get(ctx, "/user", &own); err != nil {
		return "", err
	}
	return rest.First(ctx, t.notes.Query("per_page=100&sort=asc"), func(page []note) string {
		for _, n := range page {
			if n.Author != nil && n.Author.ID == own.ID && strings.Contains(n.Body, text) {
				return strconv.FormatInt(n.ID, 10)
			}
		}
		return ""
	})
}

type registeredHook struct {
	ID  int64  `json:"id"`
	URL string `json:"url"`
}

// EnsureHook implements [vcs.Hooker].
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	known := func(page []registeredHook) string {
		for _, r := range page {
			if r.URL == h.URL {
				return strconv.FormatInt(r.ID, 10)
			}
		}
		return ""
	}
	return rest.EnsureHook(ctx, c.in(repo).At("hooks"), "per_page=100", known, "PUT", map[string]any{
		"url": h.URL, "token": h.Secret, "push_events": true, "tag_push_events": true, "merge_requests_events": true, "enable_ssl_verification": true,
	})
}
