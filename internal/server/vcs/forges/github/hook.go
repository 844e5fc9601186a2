// Package github connects GitHub and GitHub Enterprise Server, as a GitHub App or with an access
// token. It calls the API through the core that all forges share, so that one place bounds,
// retries and explains requests.
package github

import (
	"cmp"
	"strconv"
	"sync"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/githublike"
	"workflowagent/internal/server/vcs/forges/hook"
)

// Forge is the kind of GitHub's servers. The zero value is ready to use; it caches the tokens of
// installations.
type Forge struct {
	mu     sync.Mutex
	tokens map[string]token
}

var _ vcs.Forge = (*Forge)(nil)

// Verify implements [vcs.Hooks].
func (*Forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	return hook.Signed(d.Header["x-hub-signature-256"], "sha256=", d.Body, secrets)
}

type numbered struct {
	Number int `json:"number"`
}

type check struct {
	HeadSHA      string     `json:"head_sha"`
	PullRequests []numbered `json:"pull_requests"`
}

// pullActions are the changes of pull requests that can cause or end deployments.
var pullActions = map[string]bool{
	"opened": true, "synchronize": true, "reopened": true, "closed": true, "edited": true,
	"labeled": true, "unlabeled": true, "ready_for_review": true, "converted_to_draft": true,
}

// used are the kinds of deliveries that can cause something. The others are ignored, whatever they contain.
var used = map[string]bool{
	"push": true, "pull_request": true, "check_run": true, "check_suite": true, "merge_group": true,
	"repository": true, "installation": true, "installation_repositories": true,
}

// Parse implements [vcs.Hooks].
func (*Forge) Parse(d vcs.Delivery) (vcs.Parsed, error) {
	payload, err := hook.Payload(d)
	var sent struct {
		Action       string `json:"action"`
		Installation struct {
			ID int64 `json:"id"`
		} `json:"installation"`
	}
	wrong := hook.Peek(payload, &sent)
	if wrong != nil && used[d.Header["x-github-event"]] {
		return vcs.Parsed{}, cmp.Or(err, wrong)
	}
	parsed, err := parse(hook.ID(d.Header["x-github-delivery"], payload), d.Header["x-github-event"], sent.Action, payload)
	if err != nil {
		return vcs.Parsed{}, err
	}
	if sent.Installation.ID > 0 {
		parsed.Installation = strconv.FormatInt(sent.Installation.ID, 10)
	}
	return parsed, nil
}

func parse(id, kind, action string, payload []byte) (vcs.Parsed, error) {
	detail := kind
	if action != "" {
		detail += "." + action
	}
	switch {
	case kind == "push":
		return githublike.ParsePush(id, kind, payload)
	case kind == "pull_request" && pullActions[action]:
		return parsePull(id, detail, payload)
	case kind == "check_run" && action == "rerequested":
		return parseRun(id, detail, payload)
	case kind == "check_suite" && action == "rerequested":
		return parseSuite(id, detail, payload)
	case kind == "merge_group" && action == "checks_requested":
		return parseMergeGroup(id, detail, payload)
	case kind == "repository":
		return parseRepository(id, detail, payload)
	case kind == "installation", kind == "installation_repositories":
		var body struct {
			Sender *githublike.User `json:"sender"`
		}
		err := hook.Decode(payload, &body)
		return hook.Events(id, vcs.Event{Kind: vcs.KindAccess, Sender: body.Sender.Account()}), err
	case kind == "ping":
		return hook.Ignore(id, vcs.ReasonTest, kind), nil
	case kind == "issue_comment", kind == "pull_request_review_comment", kind == "commit_comment":
		return hook.Ignore(id, vcs.ReasonComment, detail), nil
	default:
		return hook.Ignore(id, vcs.ReasonUnsupported, detail), nil
	}
}

func parsePull(id, detail string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		githublike.Origin
		PullRequest numbered `json:"pull_request"`
	}
	err := hook.Decode(payload, &body)
	return body.Event(id, detail, vcs.Event{Kind: vcs.KindPull, Pull: body.PullRequest.Number}), err
}

func parseRun(id, detail string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		githublike.Origin
		Run struct {
			check
			Name string `json:"name"`
		} `json:"check_run"`
	}
	err := hook.Decode(payload, &body)
	return rerun(id, detail, body.Origin, body.Run.check, body.Run.Name), err
}

func parseSuite(id, detail string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		githublike.Origin
		Suite check `json:"check_suite"`
	}
	err := hook.Decode(payload, &body)
	return rerun(id, detail, body.Origin, body.Suite, ""), err
}

// rerun returns the events of a check that an account wants to repeat, or of all checks of a suite, one
// for each pull request. The forge lists none for those from forks.
func rerun(id, detail string, from githublike.Origin, c check, name string) vcs.Parsed {
	repo := from.Repository.RepoID()
	if repo.ID == "" {
		return hook.Ignore(id, vcs.ReasonUnsupported, detail)
	}
	var events []vcs.Event
	for _, p := range c.PullRequests {
		if p.Number > 0 && hook.Commit(c.HeadSHA) != "" {
			events = append(events, vcs.Event{Kind: vcs.KindRerun, Repo: repo, Pull: p.Number, After: hook.Commit(c.HeadSHA), Check: name, Sender: from.Sender.Account()})
		}
	}
	return hook.Events(id, events...)
}

func parseMergeGroup(id, detail string, payload []byte) (vcs.Parsed, error) {
	var body struct {
		githublike.Origin
		MergeGroup struct {
			HeadSHA string `json:"head_sha"`
			HeadRef string `json:"head_ref"`
		} `json:"merge_group"`
	}
	err := hook.Decode(payload, &body)
	commit := hook.Commit(body.MergeGroup.HeadSHA)
	if err != nil || commit == "" {
		return hook.Ignore(id, vcs.ReasonUnsupported, detail), err
	}
	return body.Event(id, detail, vcs.Event{Kind: vcs.KindMergeGroup, Ref: body.MergeGroup.HeadRef, After: commit}), nil
}

func parseRepository(id, detail string, payload []byte) (vcs.Parsed, error) {
	var body githublike.Origin
	err := hook.Decode(payload, &body)
	return body.Event(id, detail, vcs.Event{Kind: vcs.KindAccess}), err
}
