// Package evaluation serves the routes of policy evaluations.
package evaluation

import (
	"net/http"
	"strconv"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type routes struct{ evaluations *evaluations.Service }

// Register adds the routes of policy evaluations.
func Register(rt *web.Router, s *evaluations.Service) {
	e := &routes{s}
	rt.Stack(http.MethodPut, "/api/preview/insights/{org}/policy/stacks/{project}/{stack}/updates/{version}/results", identity.StateRead, e.report)
	const base = web.StackPath + "/policyevaluations"
	rt.Stack(http.MethodGet, base, identity.StateRead, e.list)
	rt.Stack(http.MethodPost, base, identity.Operate, e.evaluate)
	rt.Stack(http.MethodGet, base+"/{id}", identity.StateRead, e.get)
	rt.Stack(http.MethodGet, base+"/{id}/logs", identity.StateRead, e.log)
	rt.Stack(http.MethodPost, base+"/{id}/cancel", identity.Operate, e.cancel)
	const group = "/api/orgs/{org}/policygroups/{group}/evaluations"
	rt.Org(http.MethodGet, group, web.NeedMember, e.listGroup)
	rt.Org(http.MethodPost, group, web.NeedAdmin, e.evaluateGroup)
}

func (e *routes) report(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := strconv.ParseInt(web.Param(r, "version"), 10, 64)
	if err != nil {
		return fault.Invalid("the version in the path must be a number")
	}
	var report workflow.PolicyReport
	if err := request.DecodeDocument(w, r, &report); err != nil {
		return err
	}
	return web.Done(w, e.evaluations.Report(r.Context(), web.Principal(r), st, version, report))
}

// step is the state of one step.
type step struct {
	Name   string              `json:"name"`
	Status workflow.StepStatus `json:"status"`
}

// body is an evaluation. Times are Unix seconds; absent ones have not come yet.
type body struct {
	ID         string                `json:"id"`
	Project    string                `json:"project"`
	Stack      string                `json:"stack"`
	Group      string                `json:"policyGroup"`
	Cause      store.EvaluationCause `json:"cause"`
	By         string                `json:"requestedBy,omitempty"`
	Status     workflow.Status       `json:"status"`
	Reason     workflow.Reason       `json:"reason,omitempty"`
	Message    string                `json:"message,omitempty"`
	Version    int64                 `json:"version,omitempty"`
	Violations *int64                `json:"violations,omitempty"`
	Agent      string                `json:"agent,omitempty"`
	Epoch      int64                 `json:"epoch"`
	Created    int64                 `json:"created"`
	Started    int64                 `json:"started,omitempty"`
	Finished   int64                 `json:"finished,omitempty"`
	Packs      []pack                `json:"policyPacks,omitempty"`
	Steps      []step                `json:"steps,omitempty"`
}

type pack struct {
	Name       string `json:"name"`
	Version    int64  `json:"version"`
	VersionTag string `json:"versionTag,omitempty"`
}

func bodyOf(e store.ShownEvaluation) body {
	b := body{
		ID: e.ID, Project: e.Project, Stack: e.Stack, Group: e.Group, Cause: e.Cause, By: e.RequestedBy, Status: e.Status, Reason: e.Reason, Message: e.Message,
		Version: e.Version, Agent: e.AgentHostname, Epoch: e.Epoch, Created: e.QueuedAt.Unix(), Started: unix(e.StartedAt), Finished: unix(e.EndedAt),
	}
	if !e.ReportedAt.IsZero() {
		b.Violations = &e.Violations
	}
	for _, p := range e.Packs {
		b.Packs = append(b.Packs, pack{p.Name, p.Number, p.Tag})
	}
	for _, s := range e.Steps {
		b.Steps = append(b.Steps, step{s.Name, s.Status})
	}
	return b
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

type listBody struct {
	Evaluations []body `json:"evaluations"`
}

func listOf(list []store.ShownEvaluation) listBody {
	return listBody{web.Each(list, func(e store.ShownEvaluation) body {
		b := bodyOf(e)
		b.Packs, b.Steps = nil, nil
		return b
	})}
}

func (e *routes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	list, err := e.evaluations.List(r.Context(), web.Principal(r), st)
	return web.Answer(w, r, listOf(list), err)
}

func (e *routes) listGroup(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	list, err := e.evaluations.ListGroup(r.Context(), web.Principal(r), o.ID, web.Param(r, "group"))
	return web.Answer(w, r, listOf(list), err)
}

// queuedBody is the answer to a request for evaluations.
type queuedBody struct {
	// Queued is the number of added evaluations. Stacks and groups for which one waits already get no other one.
	Queued int64 `json:"queued"`
}

func (e *routes) evaluate(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	n, err := e.evaluations.EvaluateStack(r.Context(), web.Principal(r), st)
	return web.Answer(w, r, queuedBody{n}, err)
}

func (e *routes) evaluateGroup(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	n, err := e.evaluations.EvaluateGroup(r.Context(), web.Principal(r), o.ID, web.Param(r, "group"))
	return web.Answer(w, r, queuedBody{n}, err)
}

func (e *routes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	found, err := e.evaluations.Get(r.Context(), st, web.Param(r, "id"))
	return web.Answer(w, r, bodyOf(found), err)
}

func (e *routes) cancel(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.Done(w, e.evaluations.Cancel(r.Context(), st, web.Param(r, "id"), web.Principal(r).Name()))
}

// logLine is a line of a log, as in logs of deployments. A header has no text.
type logLine struct {
	Header    string    `json:"header,omitempty"`
	Timestamp time.Time `json:"timestamp"`
	Line      *string   `json:"line,omitempty"`
}

type logBody struct {
	Lines     []logLine `json:"lines"`
	NextToken string    `json:"nextToken,omitempty"`
}

func (e *routes) log(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	page, err := e.evaluations.Log(r.Context(), st, web.Param(r, "id"), r.URL.Query().Get("continuationToken"))
	return web.Answer(w, r, logBody{NextToken: page.Next, Lines: web.Each(page.Lines, func(l joblog.Line) logLine {
		if l.Header != "" {
			return logLine{Header: l.Header}
		}
		return logLine{Timestamp: l.Time.UTC(), Line: &l.Text}
	})}, err)
}
