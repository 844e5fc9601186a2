// Package gitlab connects gitlab.com and GitLab's own servers.
package gitlab

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

// Forge is the kind of GitLab's servers.
type Forge struct{}

var _ vcs.Forge = Forge{}

// tolerance is the accepted age of a signed delivery.
const tolerance = 5 * time.Minute

// Verify implements [vcs.Hooks]. Deliveries contain the secret itself, and those of newer servers
// can have a signature in the form of Standard Webhooks too. One of them must be right.
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	if verifySignature(d, secrets) == nil {
		return nil
	}
	return hook.Equal(d.Header["x-gitlab-token"], secrets)
}

func verifySignature(d vcs.Delivery, secrets [][]byte) error {
	id, sent := d.Header["webhook-id"], d.Header["webhook-timestamp"]
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || id == "" || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return vcs.ErrUnverified
	}
	for signature := range strings.FieldsSeq(d.Header["webhook-signature"]) {
		digits, found := strings.CutPrefix(signature, "v1,")
		given, err := base64.StdEncoding.DecodeString(digits)
		if !found || err != nil {
			continue
		}
		right := hook.Any(secrets, func(secret []byte) bool {
			return hmac.Equal(given, hook.MAC(signingKey(secret), []byte(id+"."+sent+"."), d.Body))
		})
		if right == nil {
			return nil
		}
	}
	return vcs.ErrUnverified
}

// signingKey returns the key in a secret, which can be encoded.
func signingKey(secret []byte) []byte {
	encoded, found := bytes.CutPrefix(secret, []byte("whsec_"))
	key, err := base64.StdEncoding.DecodeString(string(encoded))
	if !found || err != nil || len(key) == 0 {
		return secret
	}
	return key
}

type project struct {
	named
	DefaultBranch string `json:"default_branch"`
}

// named identifies a project.
type named struct {
	ID   int64  `json:"id"`
	Path string `json:"path_with_namespace"`
}

func (p *named) id() vcs.RepoID {
	if p == nil || p.ID <= 0 {
		return vcs.RepoID{}
	}
	return vcs.RepoID{ID: strconv.FormatInt(p.ID, 10), Name: p.Path}
}

type user struct {
	ID       int64  `json:"id"`
	UserName string `json:"username"`
	Bot      bool   `json:"bot"`
}

func (u *user) account() vcs.Account {
	if u == nil || u.ID <= 0 {
		return vcs.Account{}
	}
	return vcs.Account{ID: strconv.FormatInt(u.ID, 10), Name: u.UserName, Bot: u.Bot}
}

// mergeChanges are the changes, besides new commits, of a merge request that can matter.
var mergeChanges = []string{"target_branch", "labels", "draft", "work_in_progress", "title", "state_id"}

// Parse implements [vcs.Hooks].
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	if err != nil {
		return vcs.Parsed{}, err
	}
	var sent struct {
		Kind  string `json:"object_kind"`
		Merge struct {
			Action string `json:"action"`
		} `json:"object_attributes"`
	}
	if err := hook.Peek(payload, &sent); err != nil {
		return vcs.Parsed{}, err
	}
	id := hook.ID(cmp.Or(d.Header["idempotency-key"], d.Header["x-gitlab-event-uuid"]), payload)
	switch sent.Kind {
	case "push", "tag_push":
		return parsePush(id, sent.Kind, payload)
	case "merge_request":
		return parseMerge(id, sent.Merge.Action, payload)
	case "note":
		return hook.Ignore(id, vcs.ReasonComment, sent.Kind), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, sent.Kind), nil
	}
}

func parsePush(id, kind string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		Project  *named `json:"project"`
		Ref      string `json:"ref"`
		Before   string `json:"before"`
		After    string `json:"after"`
		Checkout string `json:"checkout_sha"`
		UserID   int64  `json:"user_id"`
		UserName string `json:"user_username"`
		Commits  []struct {
			ID      string `json:"id"`
			Message string `json:"message"`
		} `json:"commits"`
	}
	err := hook.Decode(payload, &body)
	repo := body.Project.id()
	if err != nil || repo.ID == "" {
		return hook.Ignore(id, vcs.ReasonUnsupported, kind), err
	}
	if body.Before == body.After {
		return hook.Ignore(id, vcs.ReasonTest, body.Ref), nil
	}
	// Never the author of a commit, whose name anyone can write.
	sender := (&user{ID: body.UserID, UserName: body.UserName}).account()
	event, ok := hook.Push(repo, body.Ref, body.Before, body.After, sender)
	if !ok {
		return hook.Ignore(id, vcs.ReasonUnsupported, body.Ref), nil
	}
	if event.Kind == vcs.KindTag {
		event.Before = "" // it can be the object of an annotated tag
	}
	if !event.Deleted {
		event.After = hook.Commit(body.Checkout)
	}
	for _, commit := range body.Commits {
		if event.After != "" && hook.Commit(commit.ID) == event.After {
			event.Message = commit.Message
		}
	}
	return hook.Events(id, event), nil
}

func parseMerge(id, action string, payload []byte) (vcs.Parsed, error) {
	switch action {
	case "open", "reopen", "close", "merge":
	case "update":
		if matters, err := changes(payload); err != nil || !matters {
			return hook.Ignore(id, vcs.ReasonUnchanged, action), err
		}
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, "merge_request."+action), nil
	}
	var body struct {
		Project *named `json:"project"`
		User    *user  `json:"user"`
		Merge   struct {
			Number int `json:"iid"`
		} `json:"object_attributes"`
	}
	err := hook.Decode(payload, &body)
	return hook.Event(id, "merge_request."+action, vcs.Event{
		Kind: vcs.KindPull, Repo: body.Project.id(), Pull: body.Merge.Number, Sender: body.User.account(),
	}), err
}

// changes reports whether the update of a merge request can matter.
func changes(payload []byte) (bool, error) {
	var body struct {
		Merge struct {
			OldRev string `json:"oldrev"`
		} `json:"object_attributes"`
		Changes map[string]json.RawMessage `json:"changes"`
	}
	if err := hook.Decode(payload, &body); err != nil {
		return false, err
	}
	return body.Merge.OldRev != "" || slices.ContainsFunc(mergeChanges, func(name string) bool {
		_, changed := body.Changes[name]
		return changed
	}), nil
}
