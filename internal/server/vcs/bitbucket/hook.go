// Package bitbucket connects Bitbucket Cloud.
package bitbucket

import (
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/hook"
)

// Forge is the kind of Bitbucket Cloud.
type Forge struct{}

var _ vcs.Forge = Forge{}

// Verify implements [vcs.Hooks]. In spite of the header's name, the digest is SHA-256.
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-hub-signature"], "sha256=", d.Body, secrets)
}

type repository struct {
	UUID       string `json:"uuid"`
	FullName   string `json:"full_name"`
	MainBranch *struct {
		Name string `json:"name"`
	} `json:"mainbranch"`
}

func (r *repository) id() vcs.RepoID {
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

type delivery struct {
	Repository  *repository `json:"repository"`
	Actor       *user       `json:"actor"`
	PullRequest *struct {
		ID int `json:"id"`
	} `json:"pullrequest"`
	Push *struct {
		Changes []*change `json:"changes"`
	} `json:"push"`
}

// maxChanges limits the refs of one delivery. A poll finds the others.
const maxChanges = 1000

// members are the members that each kind of delivery uses. Other kinds are ignored.
var members = map[string][]string{
	"repo:push":             {"repository", "actor", "push"},
	"repo:updated":          {"repository", "actor"},
	"repo:transfer":         {"repository", "actor"},
	"repo:deleted":          {"repository", "actor"},
	"pullrequest:created":   {"repository", "actor", "pullrequest"},
	"pullrequest:updated":   {"repository", "actor", "pullrequest"},
	"pullrequest:fulfilled": {"repository", "actor", "pullrequest"},
	"pullrequest:rejected":  {"repository", "actor", "pullrequest"},
}

// Parse implements [vcs.Hooks].
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	if err != nil {
		return vcs.Parsed{}, err
	}
	var body delivery
	if err := hook.Decode(payload, &body); err != nil {
		return vcs.Parsed{}, err
	}
	if err := hook.Require(payload, new(delivery), members[d.Header["x-event-key"]]); err != nil {
		return vcs.Parsed{}, err
	}
	id, kind := hook.ID(d.Header["x-request-uuid"], payload), d.Header["x-event-key"]
	repo, sender := body.Repository.id(), body.Actor.account()
	switch {
	case strings.Contains(kind, "comment"):
		return hook.Ignore(id, vcs.ReasonComment, kind), nil
	case kind == "diagnostics:ping":
		return hook.Ignore(id, vcs.ReasonTest, kind), nil
	case repo.ID == "":
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
	}
	switch kind {
	case "repo:push":
		var events []vcs.Event
		if body.Push != nil {
			for _, c := range body.Push.Changes[:min(len(body.Push.Changes), maxChanges)] {
				if event, ok := c.event(repo, sender); ok {
					events = append(events, event)
				}
			}
		}
		return hook.Events(id, events...), nil
	case "repo:updated", "repo:transfer", "repo:deleted":
		return hook.Events(id, vcs.Event{Kind: vcs.KindAccess, Repo: repo, Sender: sender}), nil
	case "pullrequest:created", "pullrequest:updated", "pullrequest:fulfilled", "pullrequest:rejected":
		if body.PullRequest == nil || body.PullRequest.ID <= 0 {
			return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
		}
		return hook.Events(id, vcs.Event{Kind: vcs.KindPull, Repo: repo, Pull: body.PullRequest.ID, Sender: sender}), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
	}
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
