// Package gitea connects Gitea and Forgejo.
package gitea

import (
	"strconv"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/hook"
)

// Forge is the kind of Gitea's and Forgejo's servers.
type Forge struct{}

var _ vcs.Forge = Forge{}

// Verify implements [vcs.Hooks].
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-gitea-signature"], "", d.Body, secrets)
}

type repository struct {
	ID            int64  `json:"id"`
	FullName      string `json:"full_name"`
	CloneURL      string `json:"clone_url"`
	DefaultBranch string `json:"default_branch"`
}

func (r *repository) id() vcs.RepoID {
	if r == nil {
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

type delivery struct {
	Ref        string      `json:"ref"`
	RefType    string      `json:"ref_type"`
	Before     string      `json:"before"`
	After      string      `json:"after"`
	Action     string      `json:"action"`
	Number     int         `json:"number"`
	Repository *repository `json:"repository"`
	Sender     *user       `json:"sender"`
	HeadCommit *struct {
		ID      string `json:"id"`
		Message string `json:"message"`
	} `json:"head_commit"`
}

// members are the members that each kind of delivery uses. Other kinds are ignored.
var members = map[string][]string{
	"push":               {"repository", "sender", "ref", "before", "after", "head_commit"},
	"delete":             {"repository", "sender", "ref", "ref_type"},
	"pull_request":       {"repository", "sender", "number"},
	"pull_request_sync":  {"repository", "sender", "number"},
	"pull_request_label": {"repository", "sender", "number"},
	"repository":         {"repository", "sender"},
}

// Parse implements [vcs.Hooks]. The server also sends headers of other forges, which are not read.
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	if err != nil {
		return vcs.Parsed{}, err
	}
	var body delivery
	if err := hook.Decode(payload, &body); err != nil {
		return vcs.Parsed{}, err
	}
	if err := hook.Require(payload, new(delivery), members[d.Header["x-gitea-event"]]); err != nil {
		return vcs.Parsed{}, err
	}
	id, kind := hook.ID(d.Header["x-gitea-delivery"], payload), d.Header["x-gitea-event"]
	if body.Repository == nil || body.Repository.ID == 0 {
		return hook.Ignore(id, vcs.ReasonUnsupported, kind+" without a repository"), nil
	}
	repo, sender := body.Repository.id(), body.Sender.account()
	switch kind {
	case "push":
		return parsePush(id, &body), nil
	case "delete":
		// The deletion of a branch is no push. That of a tag is one, too.
		prefix, ok := map[string]string{"branch": "refs/heads/", "tag": "refs/tags/"}[body.RefType]
		if event, valid := hook.Push(repo, prefix+body.Ref, "", "0", sender); ok && valid {
			return hook.Events(id, event), nil
		}
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
	case "pull_request", "pull_request_sync", "pull_request_label":
		if body.Number <= 0 {
			return hook.Ignore(id, vcs.ReasonUnsupported, kind+" without a number"), nil
		}
		return hook.Events(id, vcs.Event{Kind: vcs.KindPull, Repo: repo, Pull: body.Number, Sender: sender}), nil
	case "issue_comment", "pull_request_comment":
		return hook.Ignore(id, vcs.ReasonComment, kind), nil
	case "repository":
		return hook.Events(id, vcs.Event{Kind: vcs.KindAccess, Repo: repo, Sender: sender}), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
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
