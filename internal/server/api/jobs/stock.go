package jobs

import (
	"net/http"
	"strings"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/workflow"
)

// These calls are those that Pulumi's own agent makes besides the poll, as observed by third parties.
// Our agent does not need them.
func (a *agentRoutes) registerStock(rt *web.Router) {
	rt.Authed(http.MethodGet, "/api/background-activities/token", web.Agents, a.workerToken)
	rt.Authed(http.MethodPost, "/api/background-activities/configuration", web.Agents, a.activities)
	rt.Authed(http.MethodPost, "/api/background-activities/worker/lease/acquire", web.Agents, a.noActivity)
	rt.Authed(http.MethodPost, "/api/agent-workflows/deployment", web.Agents, a.workflowClaimed)
	rt.Authed(http.MethodPost, "/api/agent-workflows/{workflow}/check", web.Agents, a.checkWorkflow)
}

// workerTokenLife is the time after which an agent asks for its worker token again.
const workerTokenLife = time.Hour

// workerToken returns the token of the caller: it already has exactly the rights of a worker.
func (a *agentRoutes) workerToken(w http.ResponseWriter, r *http.Request) error {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{
		"token": token, "expiration": time.Now().Add(workerTokenLife).UTC().Format(time.RFC3339),
	})
}

// activity configures one kind of work of an agent.
type activity struct {
	Kind                string         `json:"kind"`
	Interval            int            `json:"interval"` // seconds between polls
	CanChangeInterval   bool           `json:"canChangeInterval"`
	Concurrency         int            `json:"concurrency"`
	Enabled             bool           `json:"enabled"`
	RegistrationEnabled bool           `json:"agentPoolRegistrationEnabled"`
	Pools               []activityPool `json:"agentPools"`
}

type activityPool struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

func (a *agentRoutes) activities(w http.ResponseWriter, r *http.Request) error {
	p := web.Principal(r)
	pool, err := a.deployments.PoolOf(r.Context(), p)
	return web.Answer(w, r, []activity{{
		Kind: string(workflow.TypeDeployment), Interval: int(idleRetry / time.Second), CanChangeInterval: true, Concurrency: 1, Enabled: true,
		Pools: []activityPool{{pool.ID, pool.Name, pool.Description}},
	}}, err)
}

// noActivity reports that there is no work besides deployments.
func (a *agentRoutes) noActivity(w http.ResponseWriter, _ *http.Request) error {
	return web.Done(w, nil)
}

func (a *agentRoutes) workflowClaimed(w http.ResponseWriter, r *http.Request) error {
	return web.WriteJSON(w, r, http.StatusOK, struct{}{})
}

// checkWorkflow returns the status of a workflow, which the path names as TYPE:ID.
func (a *agentRoutes) checkWorkflow(w http.ResponseWriter, r *http.Request) error {
	kind, id, _ := strings.Cut(web.Param(r, "workflow"), ":")
	if kind != string(workflow.TypeDeployment) && kind != string(workflow.TypePolicyEvaluation) {
		return fault.NotFound("this server runs no workflows of type %q", kind)
	}
	status, err := a.deployments.StatusForAgent(r.Context(), web.Principal(r), id)
	return web.Answer(w, r, map[string]any{"id": id, "status": status, "complete": status.Final()}, err)
}
