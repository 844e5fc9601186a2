package bitbucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
)

var states = map[vcs.ReportState]string{
	vcs.ReportPending: "INPROGRESS", vcs.ReportRunning: "INPROGRESS", vcs.ReportAction: "INPROGRESS",
	vcs.ReportSucceeded: "SUCCESSFUL", vcs.ReportNeutral: "SUCCESSFUL", vcs.ReportFailed: "FAILED",
}

// Limits of the forge.
const (
	maxKey       = 40
	maxText      = 255
	commentLimit = 30_000
)

// key returns the key of a status, which identifies it on its commit.
func key(context string) string {
	if len(context) <= maxKey {
		return context
	}
	sum := sha256.Sum256([]byte(context))
	return hex.EncodeToString(sum[:])[:maxKey]
}

// Report implements [vcs.Reporter].
func (c *client) Report(ctx context.Context, repo vcs.RepoID, r vcs.Report) (string, error) {
	err := c.in(repo).At("commit", r.Commit, "statuses", "build").Send(ctx, "POST", map[string]string{
		"key": key(r.Context), "name": rest.Trim(r.Context, maxText), "state": states[r.State],
		"description": rest.Trim(r.Summary, maxText), "url": r.URL,
	}, nil)
	if err != nil {
		return "", fmt.Errorf("setting a commit's status: %w", err)
	}
	return key(r.Context), nil
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	return rest.Upsert(ctx, &thread{c, c.in(repo).At("pullrequests", strconv.Itoa(pull), "comments")}, pull, comment)
}

type thread struct {
	*client
	comments rest.Resource
}

type content struct {
	Raw string `json:"raw"`
}

type comment struct {
	ID      int64   `json:"id"`
	Content content `json:"content"`
	User    *user   `json:"user"`
	Deleted bool    `json:"deleted"`
}

func (t *thread) Create(ctx context.Context, body string) (string, error) {
	return t.comments.Create(ctx, map[string]content{"content": {body}})
}

func (t *thread) Replace(ctx context.Context, id, body string) error {
	return t.comments.At(id).Send(ctx, "PUT", map[string]content{"content": {body}}, nil)
}

// Find needs the permission to read the token's own account. Without it, no comment is known to be
// the integration's own.
func (t *thread) Find(ctx context.Context, text string) (id string, err error) {
	var own user
	if _, err := t.Get(ctx, "/user", &own); rest.IsStatus(err, 403) || rest.IsStatus(err, 401) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return rest.First(ctx, t.comments.Query("pagelen=100"), func(list page[comment]) string {
		for _, c := range list.Values {
			if !c.Deleted && own.UUID != "" && c.User.account().ID == own.UUID && strings.Contains(c.Content.Raw, text) {
				return strconv.FormatInt(c.ID, 10)
			}
		}
		return ""
	})
}

type registeredHook struct {
	UUID string `json:"uuid"`
	URL  string `json:"url"`
}

// EnsureHook implements [vcs.Hooker].
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	known := func(list page[registeredHook]) string {
		for _, r := range list.Values {
			if r.URL == h.URL {
				return r.UUID
			}
		}
		return ""
	}
	return rest.EnsureHook(ctx, c.in(repo).At("hooks"), "pagelen=100", known, "PUT", map[string]any{
		"description": "Pulumi deployments", "url": h.URL, "active": true, "secret": h.Secret,
		"events": []string{"repo:push", "repo:updated", "pullrequest:created", "pullrequest:updated", "pullrequest:fulfilled", "pullrequest:rejected"},
	})
}
