// Package gitea connects Gitea and Forgejo.
package gitea

import (
	"cmp"
	"strconv"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

// Forge is the kind of Gitea's and Forgejo's servers.
type Forge struct{}

var _ vcs.Forge = Forge{}

// Verify implements [vcs.Hooks].
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-gitea-signature"], "", d.Body, secrets)
}

type repository struct {
	named
	CloneURL      string `json:"clone_url"`
	DefaultBranch string `json:"default_branch"`
}

// named identifies a repository.
type named struct {
	ID       int64  `json:"id"`
	FullName string `json:"full_name"`
}

func (r *named) id() vcs.RepoID {
	if r == nil || r.ID == 0 {
		return vcs.RepoID{}
	}
	return vcs.RepoID{ID: strconv.FormatInt(r.ID, 10), Name: r.FullName}
}

type user struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
}

func (u *user) account() vcs.Account {
	if u == nil || u.ID == 0 {
		return vcs.Account{}
	}
	return vcs.Account{ID: strconv.FormatInt(u.ID, 10), Name: u.Login}
}

// origin are the members that all kinds of deliveries use.
type origin struct {
	Repository *named `json:"repository"`
	Sender     *user  `json:"sender"`
}

// Parse implements [vcs.Hooks]. The server also sends headers of other forges, which are not read.
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	parsed, wrong := parse(hook.ID(d.Header["x-gitea-delivery"], payload), d.Header["x-gitea-event"], payload)
	if wrong != nil {
		return vcs.Parsed{}, cmp.Or(err, wrong)
	}
	return parsed, nil
}

func parse(id, kind string, payload []byte) (vcs.Parsed, error) {
	switch kind {
	case "push":
		return parsePush(id, payload)
	case "delete":
		return parseDelete(id, payload)
	case "pull_request", "pull_request_sync", "pull_request_label":
		return parsePull(id, kind, payload)
	case "repository":
		var body origin
		err := hook.Decode(payload, &body)
		if err != nil || body.Repository.id().ID == "" {
			return withoutRepository(id, kind), err
		}
		return hook.Events(id, vcs.Event{Kind: vcs.KindAccess, Repo: body.Repository.id(), Sender: body.Sender.account()}), nil
	case "issue_comment", "pull_request_comment":
		return hook.Ignore(id, vcs.ReasonComment, kind), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
	}
}

func withoutRepository(id, kind string) vcs.Parsed {
	return hook.Ignore(id, vcs.ReasonUnsupported, kind+" without a repository")
}

func parsePush(id string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		origin
		Ref        string `json:"ref"`
		Before     string `json:"before"`
		After      string `json:"after"`
		HeadCommit *struct {
			ID      string `json:"id"`
			Message string `json:"message"`
		} `json:"head_commit"`
	}
	err := hook.Decode(payload, &body)
	repo := body.Repository.id()
	if err != nil || repo.ID == "" {
		return withoutRepository(id, "push"), err
	}
	if body.Before == body.After {
		return hook.Ignore(id, vcs.ReasonTest, body.Ref), nil
	}
	event, ok := hook.Push(repo, body.Ref, body.Before, body.After, body.Sender.account())
	if !ok {
		return hook.Ignore(id, vcs.ReasonUnsupported, body.Ref), nil
	}
	if event.Kind == vcs.KindTag {
		event.Before, event.After = "", "" // these can be objects of annotated tags
	}
	if head := body.HeadCommit; head != nil && !event.Deleted {
		event.After, event.Message = hook.Commit(head.ID), head.Message
	}
	return hook.Events(id, event), nil
}

// parseDelete returns the deletion of a branch, which is no push. That of a tag is one, too.
func parseDelete(id string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		origin
		Ref     string `json:"ref"`
		RefType string `json:"ref_type"`
	}
	err := hook.Decode(payload, &body)
	repo := body.Repository.id()
	if err != nil || repo.ID == "" {
		return withoutRepository(id, "delete"), err
	}
	prefix, ok := map[string]string{"branch": "refs/heads/", "tag": "refs/tags/"}[body.RefType]
	if event, valid := hook.Push(repo, prefix+body.Ref, "", "0", body.Sender.account()); ok && valid {
		return hook.Events(id, event), nil
	}
	return hook.Ignore(id, vcs.ReasonUnsupported, "delete"), nil
}

func parsePull(id, kind string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		origin
		Number int `json:"number"`
	}
	err := hook.Decode(payload, &body)
	repo := body.Repository.id()
	if err != nil || repo.ID == "" {
		return withoutRepository(id, kind), err
	}
	if body.Number <= 0 {
		return hook.Ignore(id, vcs.ReasonUnsupported, kind+" without a number"), nil
	}
	return hook.Events(id, vcs.Event{Kind: vcs.KindPull, Repo: repo, Pull: body.Number, Sender: body.Sender.account()}), nil
}
