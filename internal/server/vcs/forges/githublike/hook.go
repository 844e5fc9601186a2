package githublike

import (
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

// Origin are the members that most kinds of deliveries use.
type Origin struct {
	Repository *Named `json:"repository"`
	Sender     *User  `json:"sender"`
}

// Event returns the content of a delivery about the origin; see [hook.Event].
func (o *Origin) Event(id, detail string, e vcs.Event) vcs.Parsed {
	e.Repo, e.Sender = o.Repository.RepoID(), o.Sender.Account()
	return hook.Event(id, detail, e)
}

// ParsePush returns the content of a delivery about a push. It is ignored with the detail if it names no
// repository.
func ParsePush(id, detail string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		Origin
		Ref        string `json:"ref"`
		Before     string `json:"before"`
		After      string `json:"after"`
		HeadCommit *struct {
			ID      string `json:"id"`
			Message string `json:"message"`
		} `json:"head_commit"`
	}
	if err := hook.Decode(payload, &body); err != nil {
		return vcs.Parsed{}, err
	}
	repo := body.Repository.RepoID()
	if repo.ID != "" && body.Before == body.After {
		return hook.Ignore(id, vcs.ReasonTest, body.Ref), nil
	}
	event, ok := hook.Push(repo, body.Ref, body.Before, body.After, body.Sender.Account())
	if repo.ID != "" && !ok {
		return hook.Ignore(id, vcs.ReasonUnsupported, body.Ref), nil
	}
	if event.Kind == vcs.KindTag {
		event.Before, event.After = "", "" // these can be objects of annotated tags
	}
	if head := body.HeadCommit; head != nil && !event.Deleted {
		event.After, event.Message = hook.Commit(head.ID), head.Message
	}
	return hook.Event(id, detail, event), nil
}
