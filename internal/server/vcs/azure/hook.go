// Package azure connects Azure DevOps.
package azure

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/hook"
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
	Remote  string `json:"remoteUrl"`
	Project *struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"project"`
}

// id returns the id, with a name of the form organization/project/repository. The organization is
// in the address only.
func (r *repository) id() vcs.RepoID {
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
func (r *repository) organization() string {
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

type delivery struct {
	Subscription string `json:"subscriptionId"`
	Notification int64  `json:"notificationId"`
	Type         string `json:"eventType"`
	Resource     *struct {
		Repository *repository `json:"repository"`
		PushedBy   *user       `json:"pushedBy"`
		CreatedBy  *user       `json:"createdBy"`
		Updates    []*struct {
			Name string `json:"name"`
			Old  string `json:"oldObjectId"`
			New  string `json:"newObjectId"`
		} `json:"refUpdates"`
		Number int    `json:"pullRequestId"`
		Status string `json:"status"`
	} `json:"resource"`
}

// maxUpdates limits the refs of one delivery. A poll finds the others.
const maxUpdates = 1000

// members are the members that each kind of delivery uses. Other kinds are ignored.
var members = map[string][]string{
	"git.push":                {"subscriptionId", "notificationId", "resource"},
	"git.pullrequest.created": {"subscriptionId", "notificationId", "resource"},
	"git.pullrequest.updated": {"subscriptionId", "notificationId", "resource"},
	"git.pullrequest.merged":  {"subscriptionId", "notificationId", "resource"},
}

// Parse implements [vcs.Hooks]. No header contains the kind of an event.
func (Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	if err != nil {
		return vcs.Parsed{}, err
	}
	var body delivery
	if err := hook.Decode(payload, &body); err != nil {
		return vcs.Parsed{}, err
	}
	if err := hook.Require(payload, new(delivery), members[body.Type]); err != nil {
		return vcs.Parsed{}, err
	}
	sent := ""
	if body.Subscription != "" {
		sent = body.Subscription + "/" + strconv.FormatInt(body.Notification, 10)
	}
	id := hook.ID(sent, payload)
	resource := body.Resource
	switch {
	case strings.Contains(body.Type, "comment"):
		return hook.Ignore(id, vcs.ReasonComment, body.Type), nil
	case resource == nil || resource.Repository.id().ID == "":
		return hook.Ignore(id, vcs.ReasonUnsupported, body.Type), nil
	}
	repo := resource.Repository.id()
	switch body.Type {
	case "git.push":
		var events []vcs.Event
		for _, u := range resource.Updates[:min(len(resource.Updates), maxUpdates)] {
			if u == nil {
				continue
			}
			event, ok := hook.Push(repo, u.Name, u.Old, u.New, resource.PushedBy.account())
			if event.Kind == vcs.KindTag {
				event.Before, event.After = "", "" // these can be objects of annotated tags
			}
			if ok {
				events = append(events, event)
			}
		}
		return hook.Events(id, events...), nil
	case "git.pullrequest.created", "git.pullrequest.updated", "git.pullrequest.merged":
		if body.Type == "git.pullrequest.merged" && resource.Status == "active" {
			return hook.Ignore(id, vcs.ReasonMergeAttempt, body.Type), nil
		}
		if resource.Number <= 0 {
			return hook.Ignore(id, vcs.ReasonUnsupported, body.Type), nil
		}
		// The event does not say who caused it; the author of the pull request may be another.
		return hook.Events(id, vcs.Event{Kind: vcs.KindPull, Repo: repo, Pull: resource.Number, Sender: resource.CreatedBy.account()}), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, body.Type), nil
	}
}
