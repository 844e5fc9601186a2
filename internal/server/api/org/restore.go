package org

import (
	"net/http"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
)

type restoreRoutes struct{ recovery *recovery.Service }

// RegisterRestore adds the routes of organizations of a restored server.
func RegisterRestore(rt *web.Router, r *recovery.Service) {
	routes := &restoreRoutes{r}
	const base = "/api/orgs/{org}/restore"
	rt.Org(http.MethodGet, base, web.NeedAdmin, routes.status)
	rt.Org(http.MethodPost, base+"/release", web.NeedGrant, routes.release)
}

// restoreBody is the state of an organization after a restore. If the server was not restored, only restored is set.
type restoreBody struct {
	Restored    bool                 `json:"restored"`
	Backup      *time.Time           `json:"backup,omitempty"`
	At          *time.Time           `json:"restoredAt,omitempty"`
	Paused      bool                 `json:"paused"`
	Deployments []restoredDeployment `json:"deployments"`
}

// restoredDeployment is a deployment that had not ended at the time of the backup.
type restoredDeployment struct {
	ID      string `json:"id"`
	Project string `json:"projectName"`
	Stack   string `json:"stackName"`
	Version int64  `json:"version"`
	Was     string `json:"statusInBackup"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
}

func (h *restoreRoutes) status(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	state, err := h.recovery.Read(r.Context())
	if err != nil {
		return err
	}
	body := restoreBody{Deployments: []restoredDeployment{}}
	if state == nil || !state.Has(o.ID) {
		return web.Answer(w, r, body, nil)
	}
	body.Restored, body.Backup, body.At, body.Paused = true, &state.Backup, &state.Restored, state.Waits(o.ID)
	list, _, err := h.recovery.Unfinished(r.Context(), o.ID)
	for _, d := range list {
		body.Deployments = append(body.Deployments, restoredDeployment{
			ID: d.ID, Project: d.Project, Stack: d.Stack, Version: d.Version, Was: string(d.Was), Status: string(d.Job.Status), Reason: string(d.Job.Reason),
		})
	}
	return web.Answer(w, r, body, err)
}

func (h *restoreRoutes) release(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	_, _, err := h.recovery.Release(r.Context(), o.Name)
	return web.Answer(w, r, struct{}{}, err)
}
