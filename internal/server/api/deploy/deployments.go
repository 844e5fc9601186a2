// Package deploy serves the routes of deployments, their settings, schedules and drift runs, for users.
package deploy

import (
	"fmt"
	"net/http"
	"slices"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/state"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/workflow"
)

type deploymentRoutes struct {
	deployments *deployments.Service
	stacks      *stacks.Service
	triggers    *triggers.Service
	drift       *drift.Service
	console     links.Console
}

// Register adds the routes of deployments, their settings, schedules and drift runs.
func Register(rt *web.Router, d *deployments.Service, s *stacks.Service, t *triggers.Service, dr *drift.Service, console links.Console) {
	(&settingsRoutes{d}).register(rt)
	(&scheduleRoutes{t}).register(rt)
	(&deploymentRoutes{d, s, t, dr, console}).register(rt)
	(&driftRoutes{dr}).register(rt)
}

func (d *deploymentRoutes) register(rt *web.Router) {
	const base = web.StackPath + "/deployments"
	rt.Stack(http.MethodGet, base, identity.StateRead, d.listStack)
	rt.Stack(http.MethodPost, base, identity.Operate, d.create)
	rt.Stack(http.MethodGet, web.StackPath+"/activity", identity.StateRead, d.activity)
	rt.Stack(http.MethodGet, base+"/metadata", identity.StateRead, d.stackMetadata)
	rt.Stack(http.MethodPost, base+"/pause", identity.Operate, d.pauseStack(true))
	rt.Stack(http.MethodPost, base+"/resume", identity.Operate, d.pauseStack(false))
	rt.Stack(http.MethodGet, base+"/version/{version}", identity.StateRead, d.getVersion)
	rt.Stack(http.MethodGet, base+"/{deploymentID}", identity.StateRead, d.get)
	rt.Stack(http.MethodPost, base+"/{deploymentID}/cancel", identity.Operate, d.cancel)
	rt.Stack(http.MethodPost, base+"/{deploymentID}/again", identity.Operate, d.again)
	rt.Stack(http.MethodDelete, base+"/cache", identity.Operate, d.clearCache)
	rt.Stack(http.MethodGet, base+"/{deploymentID}/updates", identity.StateRead, d.updates)
	rt.Stack(http.MethodGet, base+"/{deploymentID}/logs", identity.StateRead, d.logs)

	const org = "/api/orgs/{org}/deployments"
	rt.Org(http.MethodGet, org, web.NeedMember, d.listOrg)
	rt.Org(http.MethodGet, org+"/metadata", web.NeedMember, d.orgMetadata)
	rt.Org(http.MethodPost, org+"/pause", web.NeedAdmin, d.pauseOrg(true))
	rt.Org(http.MethodPost, org+"/resume", web.NeedAdmin, d.pauseOrg(false))
}

// clients are the initiators as which clients of the API can identify themselves.
var clients = []string{"automation-api", "cli", "console"}

func (d *deploymentRoutes) create(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	body, err := jsonBody(w, r)
	if err != nil {
		return err
	}
	if web.Older(r) {
		body = fromOlder(body)
	}
	asked, err := deployments.ParseRequest(body)
	if err != nil {
		return err
	}
	repeat := deployments.Repeat{Key: r.Header.Get("Idempotency-Key"), Body: body}
	dep, err := d.deployments.CreateOnce(r.Context(), web.Principal(r), st, asked, initiator(r), repeat)
	if err != nil {
		return err
	}
	answer := d.createdBody(st, dep)
	if len(asked.Ignored) > 0 {
		answer["warnings"] = asked.Ignored
	}
	return web.WriteJSON(w, r, http.StatusAccepted, answer)
}

// initiator returns the kind of client that requests a deployment. The other initiators belong to the
// server's own triggers. Identity tokens name the initiator, so a client must not claim to be one of them.
func initiator(r *http.Request) string {
	if name := r.Header.Get("X-Pulumi-Deployment-Initiator"); slices.Contains(clients, name) {
		return name
	}
	return "api"
}

func (d *deploymentRoutes) createdBody(st store.Stack, dep store.Deployment) map[string]any {
	return map[string]any{
		"id": dep.ID, "version": dep.Version,
		"consoleUrl": d.console.Deployment(st.OrgName, st.Project, st.Name, dep.Version), // which clients print
	}
}

// again repeats a deployment. Of a deployment's settings, the body can only contain cacheOptions.
func (d *deploymentRoutes) again(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var asked struct {
		CacheOptions *workflow.CacheOptions `json:"cacheOptions"`
	}
	if err := request.DecodeOptional(w, r, &asked); err != nil {
		return err
	}
	o := deployments.Repetition{Initiator: initiator(r), WithoutCache: asked.CacheOptions != nil && !asked.CacheOptions.Enable}
	repeat := deployments.Repeat{Key: r.Header.Get("Idempotency-Key"), Body: fmt.Appendf(nil, "%s again, without cache: %t", web.Param(r, "deploymentID"), o.WithoutCache)}
	dep, err := d.deployments.Again(r.Context(), web.Principal(r), st, web.Param(r, "deploymentID"), o, repeat)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, r, http.StatusAccepted, d.createdBody(st, dep))
}

func (d *deploymentRoutes) clearCache(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.Answer(w, r, struct{}{}, d.deployments.ClearCache(r.Context(), web.Principal(r), st))
}

func (d *deploymentRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return d.details(w, r, st, web.Param(r, "deploymentID"))
}

func (d *deploymentRoutes) getVersion(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return d.details(w, r, st, "#"+web.Param(r, "version"))
}

func (d *deploymentRoutes) details(w http.ResponseWriter, r *http.Request, st store.Stack, id string) error {
	det, err := d.deployments.Get(r.Context(), st, id)
	if err != nil {
		return err
	}
	if err := budget.Of(r.Context()).Take(r.Context(), state.ProgramMemory(det.Updates...)); err != nil {
		return err
	}
	updates, err := d.nestedUpdates(r.Context(), det.Updates)
	if err != nil {
		return err
	}
	body := detailsBodyOf(det, updates)
	if body.Queued = det.Waiting; det.Waiting != nil && !web.Principal(r).CanReadPools(det.OrgID) {
		body.Queued.Pools, body.Queued.Agents = nil, nil
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

func (d *deploymentRoutes) listStack(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return d.list(w, r, deployments.Filter{OrgID: st.OrgID, StackID: st.ID})
}

func (d *deploymentRoutes) listOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return d.list(w, r, deployments.Filter{OrgID: o.ID, Reach: web.Principal(r).Reach(o.ID)})
}

func (d *deploymentRoutes) list(w http.ResponseWriter, r *http.Request, f deployments.Filter) error {
	f.Page, f.PageSize, f.Sort = 1, 10, r.URL.Query().Get("sort")
	for name, p := range map[string]*int{"page": &f.Page, "pageSize": &f.PageSize} {
		if err := request.QueryInt(r, name, p); err != nil {
			return err
		}
	}
	var err error
	if f.Asc, err = request.QueryFlag(r, "asc"); err != nil {
		return err
	}
	older := web.Older(r)
	f.Asc = f.Asc || older && !r.URL.Query().Has("asc")
	list, total, err := d.deployments.List(r.Context(), f)
	if err != nil {
		return err
	}
	before, after := `{"deployments":[`, fmt.Sprintf(`],"itemsPerPage":%d,"total":%d}`, f.PageSize, total)
	if older {
		before, after = "[", "]"
	}
	var memory int64
	for _, det := range list {
		memory = max(memory, state.ProgramMemory(det.Updates...))
	}
	return web.StreamList(w, r, memory, before, func(add web.Add) error {
		for _, det := range list {
			if err := add(d.snapshot(r.Context(), det)); err != nil {
				return err
			}
		}
		return nil
	}, func(int) string { return after })
}

func (d *deploymentRoutes) updates(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	list, err := d.deployments.Updates(r.Context(), st, web.Param(r, "deploymentID"))
	if err != nil {
		return err
	}
	entries, err := d.stacks.Entries(r.Context(), list)
	if err != nil {
		return err
	}
	return web.StreamList(w, r, state.ProgramMemory(list...), "[", func(add web.Add) error {
		for _, e := range entries {
			if err := add(state.UpdateInfoOf(r.Context(), d.stacks, st, e)); err != nil {
				return err
			}
		}
		return nil
	}, func(int) string { return "]" })
}

func (d *deploymentRoutes) cancel(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	force, err := request.QueryFlag(r, "force")
	if err != nil {
		return err
	}
	return web.Answer(w, r, struct{}{}, d.deployments.Cancel(r.Context(), st, web.Param(r, "deploymentID"), web.Principal(r).Name(), force))
}

func (d *deploymentRoutes) pauseStack(paused bool) func(http.ResponseWriter, *http.Request, store.Stack) error {
	return func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
		return web.Answer(w, r, struct{}{}, d.deployments.PauseStack(r.Context(), web.Principal(r), st, paused))
	}
}

func (d *deploymentRoutes) pauseOrg(paused bool) func(http.ResponseWriter, *http.Request, store.Organization) error {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		return web.Answer(w, r, struct{}{}, d.deployments.PauseOrg(r.Context(), web.Principal(r), o.ID, paused))
	}
}
