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
	err := c.send(ctx, "POST", repo.Name, map[string]string{
		"key": key(r.Context), "name": rest.Trim(r.Context, maxText), "state": states[r.State],
		"description": rest.Trim(r.Summary, maxText), "url": r.URL,
	}, nil, "commit", r.Commit, "statuses", "build")
	if err != nil {
		return "", fmt.Errorf("setting a commit's status: %w", err)
	}
	return key(r.Context), nil
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter].
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	id, err := rest.Upsert(ctx, &thread{c, repo.Name, strconv.Itoa(pull)}, comment)
	if err != nil {
		return "", fmt.Errorf("commenting on pull request %d: %w", pull, err)
	}
	return id, nil
}

type thread struct {
	*client
	name, pull string
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
	var created comment
	err := t.send(ctx, "POST", t.name, map[string]content{"content": {body}}, &created, "pullrequests", t.pull, "comments")
	return strconv.FormatInt(created.ID, 10), err
}

func (t *thread) Replace(ctx context.Context, id, body string) error {
	return t.send(ctx, "PUT", t.name, map[string]content{"content": {body}}, nil, "pullrequests", t.pull, "comments", id)
}

// Find needs the permission to read the token's own account. Without it, no comment is known to be
// the integration's own.
func (t *thread) Find(ctx context.Context, text string) (id string, err error) {
	var own user
	if _, err := t.api.Get(ctx, "/user", &own); rest.IsStatus(err, 403) || rest.IsStatus(err, 401) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	at, err := path(t.name, "pullrequests", t.pull, "comments")
	if err != nil {
		return "", err
	}
	err = rest.Pages(ctx, &t.api, at+"?pagelen=100", func(list page[comment]) (bool, error) {
		for _, c := range list.Values {
			if !c.Deleted && own.UUID != "" && c.User.account().ID == own.UUID && strings.Contains(c.Content.Raw, text) {
				id = strconv.FormatInt(c.ID, 10)
				return false, nil
			}
		}
		return true, nil
	})
	return id, err
}

func permissionPath(name string) (string, error) {
	if err := rest.CheckName(name); err != nil {
		return "", err
	}
	workspace, slug, _ := strings.Cut(name, "/")
	return "/workspaces" + rest.Path(workspace, "permissions", "repositories", slug), nil
}

// EnsureHook implements [vcs.Hooker].
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	at, err := path(repo.Name, "hooks")
	if err != nil {
		return err
	}
	id := ""
	type registered struct {
		UUID string `json:"uuid"`
		URL  string `json:"url"`
	}
	err = rest.Pages(ctx, &c.api, at+"?pagelen=100", func(list page[registered]) (bool, error) {
		for _, r := range list.Values {
			if r.URL == h.URL {
				id = r.UUID
			}
		}
		return id == "", nil
	})
	body := map[string]any{
		"description": "Pulumi deployments", "url": h.URL, "active": true, "secret": h.Secret,
		"events": []string{"repo:push", "repo:updated", "pullrequest:created", "pullrequest:updated", "pullrequest:fulfilled", "pullrequest:rejected"},
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
