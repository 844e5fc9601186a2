package forges

import (
	"net/http"
	"strconv"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

func (h *routes) registerEvents(rt *web.Router) {
	const at = web.StackPath + "/vcs"
	rt.Stack(http.MethodGet, at+"/events", identity.StateRead, h.stackEvents)
	rt.Stack(http.MethodGet, at+"/pulls", identity.StateRead, h.pulls)
	rt.StackLasting(http.MethodPost, at+"/pulls/{number}/approve", identity.Operate, h.approve)
}

type eventBody struct {
	ID         string         `json:"id"`
	Source     string         `json:"source"`
	Kind       string         `json:"kind"`
	Repository string         `json:"repository"`
	Subject    string         `json:"subject"`
	Before     string         `json:"before,omitempty"`
	After      string         `json:"after,omitempty"`
	Received   string         `json:"received"`
	Done       bool           `json:"done"`
	Reason     string         `json:"reason,omitempty"`
	Text       string         `json:"text,omitempty"`
	Detail     string         `json:"detail,omitempty"`
	Next       string         `json:"nextAttempt,omitempty"`
	Decisions  []decisionBody `json:"decisions"`
}

type decisionBody struct {
	Project      string `json:"project"`
	Stack        string `json:"stack"`
	Action       string `json:"action,omitempty"`
	Reason       string `json:"reason"`
	Text         string `json:"text"`
	Detail       string `json:"detail,omitempty"`
	Commit       string `json:"commit,omitempty"`
	DeploymentID string `json:"deploymentId,omitempty"`
	Version      int64  `json:"version,omitempty"`
}

func eventsOf(entries []dispatch.Entry) map[string]any {
	out := make([]eventBody, 0, len(entries))
	for _, e := range entries {
		b := eventBody{
			ID: e.ID, Source: e.Source, Kind: e.Kind, Repository: e.RepoName, Subject: e.Subject, Before: e.BeforeID, After: e.AfterID,
			Received: e.ReceivedAt.Format(time.RFC3339), Done: e.Done, Reason: e.Reason, Text: vcs.Reason(e.Reason).Text(), Detail: e.Detail,
			Decisions: []decisionBody{},
		}
		if !e.Done {
			b.Next = e.TryAt.Format(time.RFC3339)
		}
		for _, d := range e.Decisions {
			b.Decisions = append(b.Decisions, decisionBody{
				Project: d.Project, Stack: d.Stack, Action: d.Action, Reason: d.Reason, Text: vcs.Reason(d.Reason).Text(), Detail: d.Detail,
				Commit: d.CommitID, DeploymentID: d.DeploymentID, Version: d.Version,
			})
		}
		out = append(out, b)
	}
	return map[string]any{"events": out}
}

func (h *routes) events(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	entries, err := h.dispatch.OfIntegration(r.Context(), o, web.Param(r, "integration"))
	return web.Answer(w, r, eventsOf(entries), err)
}

func (h *routes) stackEvents(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	entries, err := h.dispatch.OfStack(r.Context(), st)
	return web.Answer(w, r, eventsOf(entries), err)
}

type pullBody struct {
	Number   int64  `json:"number"`
	Title    string `json:"title"`
	URL      string `json:"url,omitempty"`
	State    string `json:"state"`
	Head     string `json:"head"`
	Base     string `json:"base"`
	Author   string `json:"author,omitempty"`
	Draft    bool   `json:"draft"`
	Fork     bool   `json:"fork"`
	Approved bool   `json:"approved"`
	// NeedsApproval reports whether nothing runs until a member approves the commit Head. Reason and
	// Text say why nothing runs; they are missing if previews run.
	NeedsApproval bool   `json:"needsApproval"`
	Reason        string `json:"reason,omitempty"`
	Text          string `json:"text,omitempty"`
}

func pullOf(p dispatch.Pull) pullBody {
	return pullBody{
		Number: p.Number, Title: p.Title, URL: p.URL, State: p.State, Head: p.Head, Base: p.Base, Author: p.Author, Draft: p.Draft, Fork: p.Fork,
		Approved: p.Approved != "" && p.Approved == p.Head, NeedsApproval: p.Approvable, Reason: string(p.Held), Text: p.Held.Text(),
	}
}

func (h *routes) pulls(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	rows, err := h.dispatch.Pulls(r.Context(), st)
	return web.Answer(w, r, map[string]any{"pulls": web.Each(rows, pullOf)}, err)
}

func (h *routes) approve(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	n, err := strconv.ParseInt(web.Param(r, "number"), 10, 64)
	if err != nil || n <= 0 {
		return fault.Invalid("the number of the pull request is not a number")
	}
	var b struct {
		Commit string `json:"commit"`
	}
	if err := request.Decode(w, r, &b); err != nil {
		return err
	}
	p, err := h.dispatch.Approve(r.Context(), web.Principal(r), st, n, b.Commit)
	return web.Answer(w, r, pullOf(p), err)
}
