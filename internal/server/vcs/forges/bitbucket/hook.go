// Package bitbucket connects Bitbucket Cloud.
package bitbucket

import (
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

// Forge is the kind of Bitbucket Cloud.
type Forge struct{}

var _ vcs.Forge = Forge{}

// Verify implements [vcs.Hooks]. In spite of the header's name, the digest is SHA-256.
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-hub-signature"], "sha256=", d.Body, secrets)
}

type repository struct {
	named
	MainBranch *struct {
		Name string `json:"name"`
	} `json:"mainbranch"`
}

// named identifies a repository.
type named struct {
	UUID     string `json:"uuid"`
	FullName string `json:"full_name"`
}

func (r *named) id() vcs.RepoID {
	if r == nil {
		return vcs.RepoID{}
	}
	return vcs.RepoID{ID: r.UUID, Name: r.FullName}
}

type user struct {
	UUID string `json:"uuid"`
	Name string `json:"nickname"`
	Type string `json:"type"`
}

func (u *user) account() vcs.Account {
	if u == nil || u.UUID == "" {
		return vcs.Account{}
	}
	return vcs.Account{ID: u.UUID, Name: u.Name, Bot: u.Type == "app_user"}
}

// ref is a branch or a tag before or after a push.
type ref struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Target *struct {
		Hash    string `json:"hash"`
		Message string `json:"message"`
	} `json:"target"`
}

type change struct {
	Old *ref `json:"old"`
	New *ref `json:"new"`
}

// origin are the members that all kinds of deliveries use.
type origin struct {
	Repository *named `json:"repository"`
	Actor      *user  `json:"actor"`
}

// maxChanges limits the refs of one delivery. A poll finds the others.
const maxChanges = 1000

// Parse implements [vcs.Hooks].
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	return hook.Parse(d, "x-request-uuid", "x-event-key", parse)
}

func parse(id, kind string, payload []byte) (vcs.Parsed, error) {
	switch kind {
	case "repo:push":
		return parsePush(id, payload)
	case "repo:updated", "repo:transfer", "repo:deleted":
		var body origin
		err := hook.Decode(payload, &body)
		return hook.Event(id, kind, vcs.Event{Kind: vcs.KindAccess, Repo: body.Repository.id(), Sender: body.Actor.account()}), err
	case "pullrequest:created", "pullrequest:updated", "pullrequest:fulfilled", "pullrequest:rejected":
		return parsePull(id, kind, payload)
	case "diagnostics:ping":
		return hook.Ignore(id, vcs.ReasonTest, kind), nil
	}
	if strings.Contains(kind, "comment") {
		return hook.Ignore(id, vcs.ReasonComment, kind), nil
	}
	return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
}

func parsePush(id string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		origin
		Push struct {
			Changes []*change `json:"changes"`
		} `json:"push"`
	}
	err := hook.Decode(payload, &body)
	repo, changes := body.Repository.id(), body.Push.Changes
	if err != nil || repo.ID == "" {
		return hook.Ignore(id, vcs.ReasonUnsupported, "repo:push"), err
	}
	var events []vcs.Event
	for _, c := range changes[:min(len(changes), maxChanges)] {
		if event, ok := c.event(repo, body.Actor.account()); ok {
			events = append(events, event)
		}
	}
	return hook.Events(id, events...), nil
}

func parsePull(id, kind string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		origin
		PullRequest struct {
			ID int `json:"id"`
		} `json:"pullrequest"`
	}
	err := hook.Decode(payload, &body)
	return hook.Event(id, kind, vcs.Event{
		Kind: vcs.KindPull, Repo: body.Repository.id(), Pull: body.PullRequest.ID, Sender: body.Actor.account(),
	}), err
}

func (c *change) event(repo vcs.RepoID, sender vcs.Account) (event vcs.Event, ok bool) {
	if c == nil || c.Old == nil && c.New == nil {
		return vcs.Event{}, false
	}
	named := c.New
	if named == nil {
		named = c.Old
	}
	prefix := map[string]string{"branch": "refs/heads/", "named_branch": "refs/heads/", "tag": "refs/tags/", "annotated_tag": "refs/tags/"}[named.Type]
	after := "0"
	if c.New != nil {
		after = c.New.commit()
	}
	if event, ok = hook.Push(repo, prefix+named.Name, c.Old.commit(), after, sender); c.New != nil && c.New.Target != nil {
		event.Message = c.New.Target.Message
	}
	return event, ok && prefix != "" && (event.Deleted || event.After != "")
}

func (r *ref) commit() string {
	if r == nil || r.Target == nil {
		return ""
	}
	return r.Target.Hash
}
