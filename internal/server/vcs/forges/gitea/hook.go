// Package gitea connects Gitea and Forgejo.
package gitea

import (
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/hook"
)

// Forge is the kind of Gitea's and Forgejo's servers.
type Forge struct{}

var _ vcs.Forge = Forge{}

const withoutRepository = " without a repository"

// Verify implements [vcs.Hooks].
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-gitea-signature"], "", d.Body, secrets)
}

// Parse implements [vcs.Hooks]. The server also sends headers of other forges, which are not read.
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	return hook.Parse(d, "x-gitea-delivery", "x-gitea-event", parse)
}

func parse(id, kind string, payload []byte) (vcs.Parsed, error) {
	switch kind {
	case "push":
		return githublike.ParsePush(id, kind+withoutRepository, payload)
	case "delete":
		return parseDelete(id, payload)
	case "pull_request", "pull_request_sync", "pull_request_label":
		return parsePull(id, kind, payload)
	case "repository":
		var body githublike.Origin
		err := hook.Decode(payload, &body)
		return body.Event(id, kind+withoutRepository, vcs.Event{Kind: vcs.KindAccess}), err
	case "issue_comment", "pull_request_comment":
		return hook.Ignore(id, vcs.ReasonComment, kind), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
	}
}

// parseDelete returns the deletion of a branch, which is no push. That of a tag is one, too.
func parseDelete(id string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		githublike.Origin
		Ref     string `json:"ref"`
		RefType string `json:"ref_type"`
	}
	err := hook.Decode(payload, &body)
	prefix, ok := map[string]string{"branch": "refs/heads/", "tag": "refs/tags/"}[body.RefType]
	event, valid := hook.Push(vcs.RepoID{}, prefix+body.Ref, "", "0", vcs.Account{})
	if err != nil || !ok || !valid {
		return hook.Ignore(id, vcs.ReasonUnsupported, "delete"), err
	}
	return body.Event(id, "delete"+withoutRepository, event), nil
}

func parsePull(id, kind string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		githublike.Origin
		Number int `json:"number"`
	}
	err := hook.Decode(payload, &body)
	detail := kind + withoutRepository
	if body.Repository.RepoID().ID != "" {
		detail = kind + " without a number"
	}
	return body.Event(id, detail, vcs.Event{Kind: vcs.KindPull, Pull: body.Number}), err
}
