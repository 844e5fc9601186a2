// Package plain connects git servers without an API of their own: it lists refs over the git
// protocol, and accepts deliveries in the generic form that a hook of git or a CI step can send.
package plain

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/workflow"
)

// tolerance is the accepted difference between the clocks of the sender and this server.
const tolerance = 15 * time.Minute

// Forge is the kind of plain git servers.
type Forge struct{}

var _ vcs.Forge = Forge{}

// Verify implements [vcs.Hooks].
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-generic-vcs-signature"], "v1=", d.Body, secrets)
}

// delivery are the members that pushes of branches and of tags use.
type delivery struct {
	Commit    string     `json:"commit"`
	Before    string     `json:"before"`
	RepoURL   string     `json:"repoUrl"`
	Sender    string     `json:"sender"`
	Message   string     `json:"message"`
	Timestamp *time.Time `json:"timestamp"`
}

// Parse implements [vcs.Hooks].
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	if err != nil {
		return vcs.Parsed{}, err
	}
	var sent struct {
		Event string `json:"event"`
		ID    string `json:"deliveryId"`
	}
	if err := hook.Peek(payload, &sent); err != nil {
		return vcs.Parsed{}, err
	}
	id := hook.ID(sent.ID, payload)
	parsed, err := parse(id, sent.Event, payload)
	if sent.ID != "" && len(parsed.Events) == 1 {
		// Build systems send numbers that are unique in a repository or a pipeline only.
		e := parsed.Events[0]
		sum := sha256.Sum256([]byte(strings.Join([]string{e.Repo.ID, e.Ref, e.Before, e.After}, "\n")))
		parsed.ID = hook.ID(sent.ID+"/"+hex.EncodeToString(sum[:8]), payload)
	}
	return parsed, err
}

func parse(id, kind string, payload []byte) (vcs.Parsed, error) {
	switch kind {
	case "push":
		var body struct {
			delivery
			Branch string    `json:"branch"`
			Files  *[]string `json:"changedFiles"`
		}
		if err := hook.Decode(payload, &body); err != nil {
			return vcs.Parsed{}, err
		}
		parsed := read(id, body.delivery, "refs/heads/"+strings.TrimPrefix(body.Branch, "refs/heads/"))
		if body.Files != nil && len(parsed.Events) > 0 {
			parsed.Events[0].Files, parsed.Events[0].Complete = *body.Files, true
		}
		return parsed, nil
	case "tag_push":
		var body struct {
			delivery
			Tag string `json:"tag"`
		}
		if err := hook.Decode(payload, &body); err != nil {
			return vcs.Parsed{}, err
		}
		return read(id, body.delivery, "refs/tags/"+strings.TrimPrefix(body.Tag, "refs/tags/")), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), nil
	}
}

func read(id string, body delivery, ref string) vcs.Parsed {
	if body.Timestamp != nil && time.Since(*body.Timestamp).Abs() > tolerance {
		return hook.Ignore(id, vcs.ReasonStale, "the timestamp differs from the server's clock by more than 15 minutes")
	}
	repo, err := Identify(body.RepoURL)
	if err != nil {
		return hook.Ignore(id, vcs.ReasonUnknownRepo, "repoUrl is not the address of a repository")
	}
	event, ok := hook.Push(repo, ref, body.Before, body.Commit, vcs.Account{Name: body.Sender})
	if !ok || event.After == "" && !event.Deleted {
		return hook.Ignore(id, vcs.ReasonUnsupported, "the commit must be a full id, and the branch or tag a valid name")
	}
	event.Message, event.Unanchored = body.Message, body.Before == ""
	return hook.Events(id, event)
}

// Identify returns the id of a repository: its address without credentials, and without the suffix
// that git servers ignore.
func Identify(address string) (vcs.RepoID, error) {
	repo, err := workflow.ParseRepository(address)
	if err != nil {
		return vcs.RepoID{}, err
	}
	repo.Password = ""
	_, name, _ := strings.Cut(repo.Name(), "/")
	return vcs.RepoID{ID: strings.TrimSuffix(strings.TrimRight(repo.String(), "/"), ".git"), Name: name}, nil
}
