package deploy

import (
	"context"
	"fmt"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/state"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
)

// deploymentActivity is a deployment with the updates that it ran.
type deploymentActivity struct {
	deploymentBody
	LatestVersion int64                  `json:"latestVersion"`
	Jobs          []jobBody              `json:"jobs,omitempty"`
	Updates       []state.UpdateInfoBody `json:"updates"`
}

type activityBody struct {
	Deployment *deploymentActivity   `json:"deployment,omitempty"`
	Update     *state.UpdateInfoBody `json:"update,omitempty"`
}

// activity responds with a stack's deployments and with the updates that no deployment ran, newest
// first.
func (d *deploymentRoutes) activity(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	limit, offset, err := request.Page(r)
	if err != nil {
		return err
	}
	total, newest, err := d.deployments.CountActivity(r.Context(), st)
	if err != nil {
		return err
	}
	memory := int64(deployments.ActivityMemory) + state.LongestProgram
	return web.StreamList(w, r, memory, `{"activity":[`, func(add web.Add) error {
		return d.deployments.EachActivity(r.Context(), st, newest, limit, offset, func(a deployments.Activity) error {
			return d.addActivity(r.Context(), st, a, add)
		})
	}, func(n int) string {
		if limit > 0 {
			n = limit
		}
		return fmt.Sprintf(`],"itemsPerPage":%d,"total":%d}`, n, total)
	})
}

func (d *deploymentRoutes) addActivity(ctx context.Context, st store.Stack, a deployments.Activity, add web.Add) error {
	var updates []store.Update
	if a.Update != nil {
		updates = []store.Update{*a.Update}
	} else {
		updates = a.Deployment.Updates
	}
	entries, err := d.stacks.Entries(ctx, updates)
	if err != nil {
		return err
	}
	// The memory for one long program is reserved.
	share, more := budget.Of(ctx), -int64(state.LongestProgram)
	for _, u := range updates {
		more += state.ProgramMemory(u)
	}
	more = max(more, 0)
	if err := share.Take(ctx, more); err != nil {
		return err
	}
	defer share.Give(more)
	infos := []state.UpdateInfoBody{}
	for _, e := range entries {
		info, err := state.UpdateInfoOf(ctx, d.stacks, st, e)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	if a.Update != nil {
		return add(activityBody{Update: &infos[0]}, nil)
	}
	return add(activityBody{Deployment: &deploymentActivity{
		deploymentBodyOf(*a.Deployment), a.Deployment.LatestVersion, jobsOf(*a.Deployment), infos,
	}}, nil)
}
