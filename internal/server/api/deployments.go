package api

import (
	"fmt"
	"net/http"
	"strconv"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// deploymentRoutes create deployments and tell about them.
type deploymentRoutes struct {
	deployments *deployments.Service
	stacks      *stacks.Service
}

// registerDeploy adds the routes of deployments and their settings.
func registerDeploy(rt *Router, d *deployments.Service, s *stacks.Service) {
	(&settingsRoutes{d}).register(rt)
	(&deploymentRoutes{d, s}).register(rt)
}

func (d *deploymentRoutes) register(rt *Router) {
	const base = stackPath + "/deployments"
	rt.stack(http.MethodGet, base, identity.StateRead, d.listStack)
	rt.stack(http.MethodPost, base, identity.Manage, d.create)
	rt.stack(http.MethodGet, base+"/metadata", identity.StateRead, d.stackMetadata)
	rt.stack(http.MethodPost, base+"/pause", identity.Manage, d.pauseStack(true))
	rt.stack(http.MethodPost, base+"/resume", identity.Manage, d.pauseStack(false))
	rt.stack(http.MethodDelete, base+"/cache", identity.Manage, d.clearCache)
	rt.stack(http.MethodGet, base+"/version/{version}", identity.StateRead, d.getVersion)
	rt.stack(http.MethodGet, base+"/{deploymentID}", identity.StateRead, d.get)
	rt.stack(http.MethodPost, base+"/{deploymentID}/cancel", identity.Manage, d.cancel)
	rt.stack(http.MethodGet, base+"/{deploymentID}/updates", identity.StateRead, d.updates)
	rt.stack(http.MethodGet, base+"/{deploymentID}/logs", identity.StateRead, d.logs)

	const org = "/api/orgs/{org}/deployments"
	rt.org(http.MethodGet, org, needMember, d.listOrg)
	rt.org(http.MethodGet, org+"/metadata", needMember, d.orgMetadata)
	rt.org(http.MethodPost, org+"/pause", needAdmin, d.pauseOrg(true))
	rt.org(http.MethodPost, org+"/resume", needAdmin, d.pauseOrg(false))

	for _, path := range []string{"/schedules", "/schedules/{scheduleID}", "/drift/schedules", "/drift/schedules/{scheduleID}", "/ttl/schedules", "/ttl/schedules/{scheduleID}"} {
		rt.stack(http.MethodGet, base+path, identity.StateRead, notBuilt)
		rt.stack(http.MethodPost, base+path, identity.Manage, notBuilt)
		rt.stack(http.MethodDelete, base+path, identity.Manage, notBuilt)
	}
}

// notBuilt answers calls of the public API that this version does not have.
func notBuilt(http.ResponseWriter, *http.Request, store.Stack) error {
	return &Error{Status: http.StatusNotImplemented, Message: "Not Implemented: schedules are not built in this version of the server"}
}

func (d *deploymentRoutes) create(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	body, err := jsonBody(w, r)
	if err != nil {
		return err
	}
	initiator := plainText(r.Header.Get("X-Pulumi-Deployment-Initiator"))
	if initiator == "" {
		initiator = "api"
	}
	dep, err := d.deployments.Create(r.Context(), principal(r), st, body, initiator)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusAccepted, map[string]any{
		"id": dep.ID, "version": dep.Version,
		"consoleUrl": "", // there is no console yet; clients print nothing for an empty URL
	})
}

func (d *deploymentRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	det, err := d.deployments.Get(r.Context(), st, param(r, "deploymentID"))
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, detailsBodyOf(det))
}

func (d *deploymentRoutes) getVersion(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := strconv.ParseInt(param(r, "version"), 10, 64)
	if err != nil {
		return fault.NotFound("Not Found: Deployment '#%s' not found", plainText(param(r, "version")))
	}
	det, err := d.deployments.GetVersion(r.Context(), st, version)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, detailsBodyOf(det))
}

func (d *deploymentRoutes) listStack(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return d.list(w, r, st.OrgID, st.ID)
}

func (d *deploymentRoutes) listOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return d.list(w, r, o.ID, "")
}

func (d *deploymentRoutes) list(w http.ResponseWriter, r *http.Request, orgID, stackID string) error {
	f := deployments.Filter{Page: 1, PageSize: 10, Sort: r.URL.Query().Get("sort")}
	for name, p := range map[string]*int{"page": &f.Page, "pageSize": &f.PageSize} {
		v := r.URL.Query().Get(name)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			return fault.Invalid("Bad Request: Invalid query parameter: %s must be a whole number", name)
		}
		*p = n
	}
	var err error
	if f.Asc, err = queryFlag(r, "asc"); err != nil {
		return err
	}
	list, total, err := d.deployments.List(r.Context(), orgID, stackID, f)
	if err != nil {
		return err
	}
	var memory int64
	for _, det := range list {
		memory = max(memory, programMemory(det.Updates...))
	}
	return stream(w, r, memory, func(s *streamed) error {
		out := s.list(`{"deployments":[`)
		var err error
		for _, det := range list {
			var body snapshotBody
			if body, err = d.snapshot(r.Context(), det); err != nil {
				break
			}
			if err = out.add(body); err != nil {
				break
			}
		}
		return out.end(err, fmt.Sprintf(`],"itemsPerPage":%d,"total":%d}`+"\n", f.PageSize, total))
	})
}

func (d *deploymentRoutes) updates(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	list, err := d.deployments.Updates(r.Context(), st, param(r, "deploymentID"))
	if err != nil {
		return err
	}
	entries, err := d.stacks.Entries(r.Context(), list)
	if err != nil {
		return err
	}
	return stream(w, r, programMemory(list...), func(s *streamed) error {
		out := s.list("[")
		var err error
		for _, e := range entries {
			var b updateInfoBody
			if b, err = updateInfoOf(r.Context(), d.stacks, st, e); err != nil {
				break
			}
			if err = out.add(b); err != nil {
				break
			}
		}
		return out.end(err, "]\n")
	})
}

func (d *deploymentRoutes) cancel(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	force, err := queryFlag(r, "force")
	if err != nil {
		return err
	}
	if err := d.deployments.Cancel(r.Context(), st, param(r, "deploymentID"), principal(r).Name(), force); err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, struct{}{})
}

func (d *deploymentRoutes) pauseStack(paused bool) func(http.ResponseWriter, *http.Request, store.Stack) error {
	return func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
		if err := d.deployments.PauseStack(r.Context(), st, paused); err != nil {
			return err
		}
		return writeJSON(w, r, http.StatusOK, struct{}{})
	}
}

func (d *deploymentRoutes) pauseOrg(paused bool) func(http.ResponseWriter, *http.Request, store.Organization) error {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		if err := d.deployments.PauseOrg(r.Context(), o.ID, paused); err != nil {
			return err
		}
		return writeJSON(w, r, http.StatusOK, struct{}{})
	}
}

// clearCache has nothing to clear: dependencies are not cached.
func (d *deploymentRoutes) clearCache(w http.ResponseWriter, r *http.Request, _ store.Stack) error {
	return writeJSON(w, r, http.StatusOK, struct{}{})
}
