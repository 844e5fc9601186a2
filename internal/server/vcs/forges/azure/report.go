package azure

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
)

var states = map[vcs.ReportState]string{
	vcs.ReportPending: "pending", vcs.ReportRunning: "pending", vcs.ReportAction: "pending",
	vcs.ReportSucceeded: "succeeded", vcs.ReportNeutral: "succeeded", vcs.ReportFailed: "failed",
}

const (
	genre        = "pulumi" // of statuses
	maxText      = 255
	commentLimit = 60_000
)

// Report implements [vcs.Reporter]. The forge shows the latest status of each genre and name. Policies
// of branches need that of the pull request.
func (c *client) Report(ctx context.Context, repo vcs.RepoID, r vcs.Report) (string, error) {
	body := map[string]any{
		"state": states[r.State], "description": rest.Trim(r.Summary, maxText), "targetUrl": r.URL,
		"context": map[string]string{"genre": genre, "name": rest.Trim(r.Context, maxText)},
	}
	id, err := c.in(repo).At("commits", r.Commit, "statuses").Create(ctx, body)
	if err == nil && r.Pull > 0 {
		err = c.in(repo).At("pullRequests", strconv.Itoa(r.Pull), "statuses").Send(ctx, "POST", body, nil)
	}
	if err != nil {
		return "", fmt.Errorf("setting a status: %w", err)
	}
	return id, nil
}

// CommentLimit implements [vcs.Commenter].
func (*client) CommentLimit() int { return commentLimit }

// Comment implements [vcs.Commenter]. The id of a comment is those of its thread and of itself.
func (c *client) Comment(ctx context.Context, repo vcs.RepoID, pull int, comment vcs.Comment) (string, error) {
	return rest.Upsert(ctx, &discussion{c, c.in(repo).At("pullRequests", strconv.Itoa(pull), "threads")}, pull, comment)
}

type discussion struct {
	*client
	threads rest.Resource
}

type comment struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
	Author  *user  `json:"author"`
	Deleted bool   `json:"isDeleted"`
}

type thread struct {
	ID       int       `json:"id"`
	Deleted  bool      `json:"isDeleted"`
	Comments []comment `json:"comments"`
}

func (t *thread) first() string { return strconv.Itoa(t.ID) + "/" + strconv.Itoa(t.Comments[0].ID) }

// Create begins a closed thread, because an active one can prevent a merge.
func (d *discussion) Create(ctx context.Context, body string) (string, error) {
	var created thread
	err := d.threads.Send(ctx, "POST", map[string]any{
		"status": "closed", "comments": []map[string]any{{"parentCommentId": 0, "content": body, "commentType": "text"}},
	}, &created)
	if err != nil {
		return "", err
	}
	if len(created.Comments) == 0 {
		return "", fmt.Errorf("the forge created the thread %d without a comment", created.ID)
	}
	return created.first(), nil
}

func (d *discussion) Replace(ctx context.Context, id, body string) error {
	thread, comment, _ := strings.Cut(id, "/")
	return d.threads.At(thread, "comments", comment).Send(ctx, "PATCH", map[string]string{"content": body}, nil)
}

func (d *discussion) Find(ctx context.Context, text string) (string, error) {
	var connection struct {
		User *user `json:"authenticatedUser"`
	}
	if _, err := d.Get(ctx, "/_apis/connectionData", &connection); err != nil {
		return "", err
	}
	own := connection.User.account().ID
	var threads list[*thread]
	if err := d.threads.Get(ctx, &threads); err != nil {
		return "", err
	}
	for _, t := range threads.Value {
		if t == nil || t.Deleted || len(t.Comments) == 0 || own == "" {
			continue
		}
		if c := t.Comments[0]; !c.Deleted && c.Author.account().ID == own && strings.Contains(c.Content, text) {
			return t.first(), nil
		}
	}
	return "", nil
}

// hookEvents are the events that webhooks subscribe to, one subscription each.
var hookEvents = []string{"git.push", "git.pullrequest.created", "git.pullrequest.updated", "git.pullrequest.merged"}

type subscription struct {
	ID        string            `json:"id,omitempty"`
	Publisher string            `json:"publisherId"`
	Event     string            `json:"eventType"`
	Version   string            `json:"resourceVersion"`
	Consumer  string            `json:"consumerId"`
	Action    string            `json:"consumerActionId"`
	From      map[string]string `json:"publisherInputs"`
	To        map[string]string `json:"consumerInputs"`
}

// EnsureHook implements [vcs.Hooker].
func (c *client) EnsureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	return fault.While(c.ensureHook(ctx, repo, h), "registering the webhook")
}

func (c *client) ensureHook(ctx context.Context, repo vcs.RepoID, h vcs.Hook) error {
	project, _, err := c.split(repo.Name)
	if err != nil {
		return err
	}
	r, err := c.read(ctx, project, repo.ID)
	if err != nil {
		return err
	}
	subscriptions := c.At("_apis", "hooks", "subscriptions").Query(version)
	var known list[subscription]
	if err := subscriptions.Get(ctx, &known); err != nil {
		return err
	}
	for _, event := range hookEvents {
		s := subscription{
			Publisher: "tfs", Event: event, Version: "1.0", Consumer: "webHooks", Action: "httpRequest",
			From: map[string]string{"projectId": r.Project.ID, "repository": r.ID},
			To:   map[string]string{"url": h.URL, "basicAuthUsername": "pulumi", "basicAuthPassword": h.Secret},
		}
		for _, k := range known.Value {
			if k.Event == event && k.To["url"] == h.URL && k.From["repository"] == r.ID {
				s.ID = k.ID
			}
		}
		method, at := "POST", subscriptions
		if s.ID != "" {
			method, at = "PUT", subscriptions.At(s.ID)
		}
		if err := at.Send(ctx, method, s, nil); err != nil {
			return err
		}
	}
	return nil
}
