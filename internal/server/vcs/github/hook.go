// Package github connects GitHub and GitHub Enterprise Server, as a GitHub App or with an access
// token. It calls the API through the core that all forges share, so that one place bounds,
// retries and explains requests.
package github

import (
	"strconv"
	"sync"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/hook"
)

// Forge is the kind of GitHub's servers. The zero value is ready to use; it caches the tokens of
// installations.
type Forge struct {
	mu     sync.Mutex
	tokens map[string]token
}

var _ vcs.Forge = (*Forge)(nil)

// Verify implements [vcs.Hooks].
func (*Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-hub-signature-256"], "sha256=", d.Body, secrets)
}

type repository struct {
	ID            int64  `json:"id"`
	FullName      string `json:"full_name"`
	DefaultBranch string `json:"default_branch"`
}

func (r *repository) id() vcs.RepoID {
	if r == nil || r.ID == 0 {
		return vcs.RepoID{}
	}
	return vcs.RepoID{ID: strconv.FormatInt(r.ID, 10), Name: r.FullName}
}

type user struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Type  string `json:"type"`
}

func (u *user) account() vcs.Account {
	if u == nil || u.ID == 0 {
		return vcs.Account{}
	}
	return vcs.Account{ID: strconv.FormatInt(u.ID, 10), Name: u.Login, Bot: u.Type == "Bot"}
}

type numbered struct {
	Number int `json:"number"`
}

type delivery struct {
	Action       string      `json:"action"`
	Ref          string      `json:"ref"`
	Before       string      `json:"before"`
	After        string      `json:"after"`
	Repository   *repository `json:"repository"`
	Sender       *user       `json:"sender"`
	PullRequest  *numbered   `json:"pull_request"`
	Installation *struct {
		ID int64 `json:"id"`
	} `json:"installation"`
	HeadCommit *struct {
		ID      string `json:"id"`
		Message string `json:"message"`
	} `json:"head_commit"`
	CheckRun   *check `json:"check_run"`
	CheckSuite *check `json:"check_suite"`
	MergeGroup *struct {
		HeadSHA string `json:"head_sha"`
		HeadRef string `json:"head_ref"`
	} `json:"merge_group"`
}

type check struct {
	Name         string     `json:"name"`
	HeadSHA      string     `json:"head_sha"`
	PullRequests []numbered `json:"pull_requests"`
}

// pullActions are the changes of pull requests that can cause or end deployments.
var pullActions = map[string]bool{
	"opened": true, "synchronize": true, "reopened": true, "closed": true, "edited": true,
	"labeled": true, "unlabeled": true, "ready_for_review": true, "converted_to_draft": true,
}

// members are the members that each kind of delivery uses. Other kinds are ignored.
var members = map[string][]string{
	"push":                      {"repository", "sender", "installation", "ref", "before", "after", "head_commit"},
	"pull_request":              {"repository", "sender", "installation", "action", "pull_request"},
	"check_run":                 {"repository", "sender", "installation", "action", "check_run"},
	"check_suite":               {"repository", "sender", "installation", "action", "check_suite"},
	"merge_group":               {"repository", "sender", "installation", "action", "merge_group"},
	"repository":                {"repository", "sender", "installation"},
	"installation":              {"sender", "installation"},
	"installation_repositories": {"sender", "installation"},
}

// Parse implements [vcs.Hooks].
func (*Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	if err != nil {
		return vcs.Parsed{}, err
	}
	var body delivery
	if err := hook.Decode(payload, &body); err != nil {
		return vcs.Parsed{}, err
	}
	if err := hook.Require(payload, new(delivery), members[d.Header["x-github-event"]]); err != nil {
		return vcs.Parsed{}, err
	}
	parsed := parse(hook.ID(d.Header["x-github-delivery"], payload), d.Header["x-github-event"], &body)
	if body.Installation != nil && body.Installation.ID > 0 {
		parsed.Installation = strconv.FormatInt(body.Installation.ID, 10)
	}
	return parsed, nil
}

func parse(id, kind string, body *delivery) vcs.Parsed {
	repo, sender := body.Repository.id(), body.Sender.account()
	detail := kind
	if body.Action != "" {
		detail += "." + body.Action
	}
	switch kind {
	case "ping":
		return hook.Ignore(id, vcs.ReasonTest, kind)
	case "installation", "installation_repositories":
		return hook.Events(id, vcs.Event{Kind: vcs.KindAccess, Sender: sender})
	case "issue_comment", "pull_request_review_comment", "commit_comment":
		return hook.Ignore(id, vcs.ReasonComment, detail)
	}
	if repo.ID == "" {
		return hook.Ignore(id, vcs.ReasonUnsupported, detail)
	}
	switch {
	case kind == "push":
		return parsePush(id, body)
	case kind == "repository":
		return hook.Events(id, vcs.Event{Kind: vcs.KindAccess, Repo: repo, Sender: sender})
	case kind == "pull_request" && pullActions[body.Action] && body.PullRequest != nil && body.PullRequest.Number > 0:
		return hook.Events(id, vcs.Event{Kind: vcs.KindPull, Repo: repo, Pull: body.PullRequest.Number, Sender: sender})
	case kind == "check_run" && body.Action == "rerequested" && body.CheckRun != nil:
		return rerun(id, body.CheckRun, body.CheckRun.Name, repo, sender)
	case kind == "check_suite" && body.Action == "rerequested" && body.CheckSuite != nil:
		return rerun(id, body.CheckSuite, "", repo, sender)
	case kind == "merge_group" && body.Action == "checks_requested" && body.MergeGroup != nil && hook.Commit(body.MergeGroup.HeadSHA) != "":
		return hook.Events(id, vcs.Event{
			Kind: vcs.KindMergeGroup, Repo: repo, Ref: body.MergeGroup.HeadRef, After: hook.Commit(body.MergeGroup.HeadSHA), Sender: sender,
		})
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, detail)
	}
}

func parsePush(id string, body *delivery) vcs.Parsed {
	if body.Before == body.After {
		return hook.Ignore(id, vcs.ReasonTest, body.Ref)
	}
	event, ok := hook.Push(body.Repository.id(), body.Ref, body.Before, body.After, body.Sender.account())
	if !ok {
		return hook.Ignore(id, vcs.ReasonUnsupported, body.Ref)
	}
	if event.Kind == vcs.KindTag {
		event.Before, event.After = "", "" // these can be objects of annotated tags
	}
	if head := body.HeadCommit; head != nil && !event.Deleted {
		event.After, event.Message = hook.Commit(head.ID), head.Message
	}
	return hook.Events(id, event)
}

// rerun returns the events of a check that an account wants to repeat, one for each pull request.
// The forge lists none for those from forks.
func rerun(id string, c *check, name string, repo vcs.RepoID, sender vcs.Account) vcs.Parsed {
	var events []vcs.Event
	for _, p := range c.PullRequests {
		if p.Number > 0 && hook.Commit(c.HeadSHA) != "" {
			events = append(events, vcs.Event{Kind: vcs.KindRerun, Repo: repo, Pull: p.Number, After: hook.Commit(c.HeadSHA), Check: name, Sender: sender})
		}
	}
	return hook.Events(id, events...)
}
