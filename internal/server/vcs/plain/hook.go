// Package plain connects git servers without an API of their own: it lists refs over the git
// protocol, and accepts deliveries in the generic form that a hook of git or a CI step can send.
package plain

import (
	"strings"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/hook"
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

type delivery struct {
	Event        string     `json:"event"`
	Commit       string     `json:"commit"`
	Before       string     `json:"before"`
	Branch       string     `json:"branch"`
	Tag          string     `json:"tag"`
	RepoURL      string     `json:"repoUrl"`
	Sender       string     `json:"sender"`
	Message      string     `json:"message"`
	ChangedFiles *[]string  `json:"changedFiles"`
	DeliveryID   string     `json:"deliveryId"`
	Timestamp    *time.Time `json:"timestamp"`
}

// members are the members that each kind of delivery uses. Other kinds are ignored.
var members = map[string][]string{
	"push":     {"commit", "before", "branch", "repoUrl", "sender", "message", "changedFiles", "deliveryId", "timestamp"},
	"tag_push": {"commit", "before", "tag", "repoUrl", "sender", "message", "deliveryId", "timestamp"},
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
	if err := hook.Require(payload, new(delivery), members[body.Event]); err != nil {
		return vcs.Parsed{}, err
	}
	id := hook.ID(body.DeliveryID, payload)
	if body.Timestamp != nil && time.Since(*body.Timestamp).Abs() > tolerance {
		return hook.Ignore(id, vcs.ReasonStale, "the timestamp differs from the server's clock by more than 15 minutes"), nil
	}
	var ref string
	switch body.Event {
	case "push":
		ref = "refs/heads/" + strings.TrimPrefix(body.Branch, "refs/heads/")
	case "tag_push":
		ref = "refs/tags/" + strings.TrimPrefix(body.Tag, "refs/tags/")
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, body.Event), nil
	}
	repo, err := Identify(body.RepoURL)
	if err != nil {
		return hook.Ignore(id, vcs.ReasonUnknownRepo, "repoUrl is not the address of a repository"), nil //nolint:nilerr // the sender receives a success
	}
	event, ok := hook.Push(repo, ref, body.Before, body.Commit, vcs.Account{Name: body.Sender})
	if !ok || event.After == "" && !event.Deleted {
		return hook.Ignore(id, vcs.ReasonUnsupported, "the commit must be a full id, and the branch or tag a valid name"), nil
	}
	event.Message, event.Unanchored = body.Message, body.Before == ""
	if body.ChangedFiles != nil && event.Kind == vcs.KindPush {
		event.Files, event.Complete = *body.ChangedFiles, true
	}
	return hook.Events(id, event), nil
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
