package activity

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Entry is a change, or an attempt at one.
type Entry struct{ store.FeedEntry }

// By returns the name of the user who made a change; "" if no user did.
func (e Entry) By() string {
	if e.Run != nil {
		return cmp.Or(e.Run.By, e.Run.ByLogin, e.Run.Requester)
	}
	if e.Audit.ActorKind == audit.ActorServer {
		return ""
	}
	return cmp.Or(e.Name, e.Audit.Actor)
}

// Login returns the login of the user who made a change; "" if no user did.
func (e Entry) Login() string {
	switch {
	case e.Run != nil:
		return e.Run.ByLogin
	case e.Audit.ActorKind == actorUser:
		return e.Audit.Actor
	default:
		return ""
	}
}

const actorUser = "user"

// Result returns how a run ended; "" while it waits in the queue or if it was skipped.
func (e Entry) Result() store.RunResult {
	switch status := workflow.Status(e.Run.Status); {
	case e.Kind == store.FeedDrift:
		return store.RunDrift
	case e.Kind == store.FeedUpdate:
		return resultOfUpdate(e.Run.Status)
	case status == workflow.StatusNotStarted || status == workflow.StatusSkipped:
		return ""
	case status == workflow.StatusSucceeded:
		return store.RunSucceeded
	case status == workflow.StatusFailed && e.Run.Reason == workflow.ReasonCancelled:
		return store.RunCancelled
	case status == workflow.StatusFailed:
		return store.RunFailed
	default:
		return store.RunRunning
	}
}

func resultOfUpdate(status string) store.RunResult {
	switch status {
	case "succeeded":
		return store.RunSucceeded
	case "cancelled":
		return store.RunCancelled
	case "running":
		return store.RunRunning
	default:
		return store.RunFailed
	}
}

// Changes returns the numbers of changed resources by operation of the engine; nil if they are unknown.
func (e Entry) Changes() map[string]int64 {
	var counts map[string]int64
	if e.Run == nil || json.Unmarshal([]byte(e.Run.Changes), &counts) != nil {
		return nil
	}
	return counts
}

// Deletes reports whether a run deleted or replaced resources.
func (e Entry) Deletes() bool {
	counts := e.Changes()
	return e.Kind != store.FeedDrift && counts["delete"]+counts["replace"] > 0
}

// Mine reports whether a user made a change.
func (e Entry) Mine(userID string) bool {
	if e.Run != nil {
		return userID != "" && e.Run.ByID == userID
	}
	return userID != "" && e.Audit.ActorKind == actorUser && e.Audit.ActorID == userID
}

// matcher selects entries by what no index finds.
type matcher struct {
	q       Query
	user    string
	words   []string
	project string // "" selects all
}

// ofProject reports whether an entry is about a project whose stacks are too many for an index.
func (m matcher) ofProject(e Entry) bool {
	switch {
	case m.project == "":
		return true
	case e.Run != nil:
		return e.Run.Project == m.project
	default:
		org, rest, _ := strings.Cut(e.Audit.Subject, "/")
		return e.Audit.SubjectKind == "stack" && org != "" && strings.HasPrefix(rest, m.project+"/")
	}
}

func (m matcher) matches(e Entry) bool {
	if m.q.Who != "" && e.Login() != m.q.Who && m.q.Part != Access {
		return false
	}
	switch m.q.Part {
	case Deletes:
		if !e.Deletes() {
			return false
		}
	case Production:
		if e.Run == nil || !e.Run.Production {
			return false
		}
	case Mine:
		if !e.Mine(m.user) {
			return false
		}
	}
	if m.q.What != Anything && !is(e, m.q.What) {
		return false
	}
	if len(m.words) == 0 {
		return true
	}
	text := e.text()
	return !slices.ContainsFunc(m.words, func(word string) bool { return !strings.Contains(text, word) })
}

func is(e Entry, what What) bool {
	switch {
	case e.Run == nil:
		return false
	case what == ByCLI:
		return e.Run.Number == 0
	case what == ByDeployment:
		return e.Run.Number > 0
	case what == FoundDrift:
		return e.Kind == store.FeedDrift || strings.HasSuffix(e.Run.Kind, string(FoundDrift))
	default:
		return e.Run.Kind == string(what)
	}
}

// text returns what a search compares, in lower case.
func (e Entry) text() string {
	var parts []string
	if r := e.Run; r != nil {
		parts = []string{r.Project + "/" + r.Stack, r.Kind, r.Message, r.Branch, r.Commit, r.By, r.ByLogin, r.Requester}
	} else {
		a := e.Audit
		parts = []string{e.Name, a.Actor, a.Action, a.Subject, a.Address, a.TokenName, a.Detail, a.Names}
	}
	return strings.ToLower(strings.Join(parts, "\n"))
}
