package deploy

import (
	"encoding/json"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type driftRoutes struct{ drift *drift.Service }

func (d *driftRoutes) register(rt *web.Router) {
	const base = web.StackPath + "/drift"
	rt.Stack(http.MethodGet, base+"/runs", identity.StateRead, d.list)
	rt.Stack(http.MethodGet, base+"/runs/{driftRunId}", identity.StateRead, d.get)
	rt.Stack(http.MethodGet, base+"/status", identity.StateRead, d.status)
}

type driftUpdate struct {
	UpdateID        string          `json:"updateId"`
	ResourceChanges json.RawMessage `json:"resourceChanges,omitempty"`
	Modified        string          `json:"modified"`
	Status          workflow.Status `json:"status"`
}

type driftRun struct {
	ID                string          `json:"id"`
	DriftDetected     bool            `json:"driftDetected"`
	Created           string          `json:"created"`
	Status            workflow.Status `json:"status"`
	DeploymentID      string          `json:"deploymentId,omitempty"`
	DeploymentVersion int64           `json:"deploymentVersion,omitempty"`
	DetectUpdate      *driftUpdate    `json:"detectUpdate,omitempty"`
	RemediateUpdate   *driftUpdate    `json:"remediateUpdate,omitempty"`
}

func driftRunOf(r drift.Run) driftRun {
	return driftRun{
		ID: r.ID, DriftDetected: r.Detected, Created: web.RFC3339(r.CreatedAt), Status: r.Status,
		DeploymentID: r.DeploymentID, DeploymentVersion: r.Version,
		DetectUpdate: driftUpdateOf(r.Detect), RemediateUpdate: driftUpdateOf(r.Remediate),
	}
}

func driftUpdateOf(u *store.Update) *driftUpdate {
	if u == nil {
		return nil
	}
	modified := u.FinishedAt
	if modified.IsZero() {
		modified = u.StartedAt
	}
	// The domain encoded the changes.
	return &driftUpdate{u.ID, json.RawMessage(u.ResourceChanges), web.RFC3339(modified), drift.UpdateStatus(*u)}
}

func (d *driftRoutes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	page, size := 1, 10
	for name, v := range map[string]*int{"page": &page, "pageSize": &size} {
		if err := request.QueryInt(r, name, v); err != nil {
			return err
		}
	}
	list, total, err := d.drift.List(r.Context(), st, page, size)
	return web.Answer(w, r, map[string]any{"driftRuns": web.Each(list, driftRunOf), "itemsPerPage": size, "total": total}, err)
}

func (d *driftRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	run, err := d.drift.Get(r.Context(), st, web.Param(r, "driftRunId"))
	return web.Answer(w, r, driftRunOf(run), err)
}

type driftStatus struct {
	DriftDetected  bool   `json:"driftDetected"`
	LatestDriftRun string `json:"latestDriftRun"`
	RunInProgress  bool   `json:"runInProgress"`
}

func (d *driftRoutes) status(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	s, err := d.drift.Status(r.Context(), st)
	return web.Answer(w, r, driftStatus{s.Detected, s.Latest, s.Running}, err)
}
