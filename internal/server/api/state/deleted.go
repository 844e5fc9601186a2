package state

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

type deletedRoutes struct{ stacks *stacks.Service }

func (d *deletedRoutes) register(rt *web.Router) {
	const base = "/api/orgs/{org}/restore-stack"
	rt.Org(http.MethodGet, base, web.NeedMember, d.list)
	rt.Org(http.MethodPost, base+"/{stackID}", web.NeedMember, d.restore)
	rt.Org(http.MethodDelete, base+"/{stackID}", web.NeedAdmin, d.purge)
}

type deletedStack struct {
	ID          string        `json:"id"`
	ProgramID   string        `json:"programId"` // the same
	ProjectName string        `json:"projectName"`
	StackName   string        `json:"stackName"`
	Version     int64         `json:"version"`
	DeletedAt   int64         `json:"deletedAt"`
	LastUpdate  updateSummary `json:"lastUpdate"`
	DeletedBy   string        `json:"deletedBy"`
	PurgedAfter int64         `json:"purgedAfter"`
}

func newDeletedStack(d stacks.Deleted) deletedStack {
	return deletedStack{
		ID: d.StackID, ProgramID: d.StackID, ProjectName: d.Project, StackName: d.Name, Version: d.Version,
		DeletedAt: web.Unix(d.DeletedAt), DeletedBy: d.DeletedBy, PurgedAfter: web.Unix(d.PurgedAfter),
		LastUpdate: updateSummary{web.Unix(d.LastUpdateAt), web.Unix(d.UpdateFinishedAt), resultOf(d.UpdateStatus), d.ResourceCount},
	}
}

func (d *deletedRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	list, err := d.stacks.ListDeleted(r.Context(), web.Principal(r), o.ID)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{"deletedStacks": web.Each(list, newDeletedStack)})
}

func (d *deletedRoutes) restore(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		StackName string `json:"stackName"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	_, err := d.stacks.Restore(r.Context(), web.Principal(r), o.ID, web.Param(r, "stackID"), body.StackName)
	return web.Done(w, err)
}

func (d *deletedRoutes) purge(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, d.stacks.Purge(r.Context(), web.Principal(r), o.ID, web.Param(r, "stackID")))
}
