// Package azure connects Azure DevOps.
package azure

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

// Forge is the kind of Azure DevOps.
type Forge struct{}

var _ vcs.Forge = Forge{}

// Verify implements [vcs.Hooks]. The forge signs nothing: it sends the secret as a password.
func (Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	encoded, found := strings.CutPrefix(d.Header["authorization"], "Basic ")
	login, err := base64.StdEncoding.DecodeString(encoded)
	_, password, isLogin := strings.Cut(string(login), ":")
	if !found || err != nil || !isLogin {
		return vcs.ErrUnverified
	}
	return hook.Equal(password, secrets)
}

type repository struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Branch  string `json:"defaultBranch"`
	Project *struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"project"`
}

// named identifies a repository in a delivery.
type named struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Remote  string `json:"remoteUrl"`
	Project *struct {
		Name string `json:"name"`
	} `json:"project"`
}

// id returns the id, with a name of the form organization/project/repository. The organization is
// in the address only.
func (r *named) id() vcs.RepoID {
	if r == nil || r.ID == "" {
		return vcs.RepoID{}
	}
	name := r.Name
	if r.Project != nil {
		name = r.Project.Name + "/" + name
	}
	if organization := r.organization(); organization != "" {
		name = organization + "/" + name
	}
	return vcs.RepoID{ID: r.ID, Name: name}
}

// organization returns the organization in the repository's address, or "". The address has one of the
// forms
//
//	https://ORGANIZATION@dev.azure.com/ORGANIZATION/PROJECT/_git/REPOSITORY
//	https://ORGANIZATION.visualstudio.com/DefaultCollection/PROJECT/_git/REPOSITORY
//	https://HOST/tfs/COLLECTION/PROJECT/_git/REPOSITORY
//
// without the project if the repository has its name, and the second one also without the collection.
func (r *named) organization() string {
	u, err := url.Parse(r.Remote)
	if err != nil {
		return ""
	}
	if label, found := strings.CutSuffix(strings.ToLower(u.Hostname()), ".visualstudio.com"); found {
		return label
	}
	before, _, found := strings.Cut(strings.Trim(u.Path, "/"), "/_git/")
	if !found {
		return ""
	}
	elements := strings.Split(before, "/")
	if last := len(elements) - 1; last > 0 && r.Project != nil && strings.EqualFold(elements[last], r.Project.Name) {
		elements = elements[:last]
	}
	return elements[len(elements)-1]
}

type user struct {
	ID   string `json:"id"`
	Name string `json:"uniqueName"`
}

func (u *user) account() vcs.Account {
	if u == nil || u.ID == "" {
		return vcs.Account{}
	}
	return vcs.Account{ID: u.ID, Name: u.Name}
}

// maxUpdates limits the refs of one delivery. A poll finds the others.
const maxUpdates = 1000

// Parse implements [vcs.Hooks]. No header contains the kind of an event.
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	if err != nil {
		return vcs.Parsed{}, err
	}
	var sent struct {
		Subscription string `json:"subscriptionId"`
		Notification int64  `json:"notificationId"`
		Type         string `json:"eventType"`
	}
	if err := hook.Peek(payload, &sent); err != nil {
		return vcs.Parsed{}, err
	}
	number := ""
	if sent.Subscription != "" {
		number = sent.Subscription + "/" + strconv.FormatInt(sent.Notification, 10)
	}
	id := hook.ID(number, payload)
	switch sent.Type {
	case "git.push":
		return parsePush(id, payload)
	case "git.pullrequest.merged":
		if attempt, err := isAttempt(payload); err != nil || attempt {
			return hook.Ignore(id, vcs.ReasonMergeAttempt, sent.Type), err
		}
		return parsePull(id, sent.Type, payload)
	case "git.pullrequest.created", "git.pullrequest.updated":
		return parsePull(id, sent.Type, payload)
	}
	if strings.Contains(sent.Type, "comment") {
		return hook.Ignore(id, vcs.ReasonComment, sent.Type), nil
	}
	return hook.Ignore(id, vcs.ReasonUnsupported, sent.Type), nil
}

func parsePush(id string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		Resource struct {
			Repository *named `json:"repository"`
			PushedBy   *user  `json:"pushedBy"`
			Updates    []*struct {
				Name string `json:"name"`
				Old  string `json:"oldObjectId"`
				New  string `json:"newObjectId"`
			} `json:"refUpdates"`
		} `json:"resource"`
	}
	err := hook.Decode(payload, &body)
	repo, updates := body.Resource.Repository.id(), body.Resource.Updates
	if err != nil || repo.ID == "" {
		return hook.Ignore(id, vcs.ReasonUnsupported, "git.push"), err
	}
	var events []vcs.Event
	for _, u := range updates[:min(len(updates), maxUpdates)] {
		if u == nil {
			continue
		}
		event, ok := hook.Push(repo, u.Name, u.Old, u.New, body.Resource.PushedBy.account())
		if event.Kind == vcs.KindTag {
			event.Before, event.After = "", "" // these can be objects of annotated tags
		}
		if ok {
			events = append(events, event)
		}
	}
	return hook.Events(id, events...), nil
}

// isAttempt reports whether a pull request that can be merged was not: the forge has only tried it.
func isAttempt(payload []byte) (bool, error) {
	var body struct {
		Resource struct {
			Status string `json:"status"`
		} `json:"resource"`
	}
	err := hook.Decode(payload, &body)
	return body.Resource.Status == "active", err
}

func parsePull(id, kind string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		Resource struct {
			Repository *named `json:"repository"`
			CreatedBy  *user  `json:"createdBy"`
			Number     int    `json:"pullRequestId"`
		} `json:"resource"`
	}
	err := hook.Decode(payload, &body)
	// The event does not say who caused it; the author of the pull request may be another.
	return hook.Event(id, kind, vcs.Event{
		Kind: vcs.KindPull, Repo: body.Resource.Repository.id(), Pull: body.Resource.Number, Sender: body.Resource.CreatedBy.account(),
	}), err
}
