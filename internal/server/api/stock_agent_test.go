package api_test

import (
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// TestStockAgentCalls makes the calls that Pulumi's own agent makes besides the poll.
func TestStockAgentCalls(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	pool := func(method, path string, body any) answer {
		t.Helper()
		return l.send(call{Method: method, Path: path, Body: body, Auth: "token " + l.poolToken})
	}
	l.send(call{Method: "GET", Path: "/api/background-activities/token", Auth: "token pul-none"}).want(401, nil)
	var worker struct{ Token, Expiration string }
	pool("GET", "/api/background-activities/token", nil).want(200, &worker)
	if worker.Token != l.poolToken || worker.Expiration == "" {
		t.Errorf("the worker's token = %+v", worker)
	}
	var kinds []struct {
		Kind       string
		Interval   int
		Enabled    bool
		AgentPools []struct{ ID string }
	}
	pool("POST", "/api/background-activities/configuration", map[string]any{}).want(200, &kinds)
	if len(kinds) != 1 || kinds[0].Kind != "deployment" || kinds[0].Interval <= 0 || !kinds[0].Enabled || len(kinds[0].AgentPools) != 1 || kinds[0].AgentPools[0].ID != l.pool {
		t.Errorf("the configuration = %+v", kinds)
	}
	pool("POST", "/api/background-activities/worker/lease/acquire", map[string]any{}).want(204, nil)

	path := l.deployable("dev")
	dep := l.deploy(path, "update")
	_, job := l.start("a")
	pool("POST", "/api/agent-workflows/deployment", map[string]any{}).want(200, nil)
	check := func(status string, complete bool) {
		t.Helper()
		var got struct {
			ID, Status string
			Complete   bool
		}
		pool("POST", "/api/agent-workflows/deployment:"+dep+"/check", nil).want(200, &got)
		if got.ID != dep || got.Status != status || got.Complete != complete {
			t.Errorf("the check = %+v, want %s", got, status)
		}
	}
	check("running", false)
	l.end(job, workflow.StatusSucceeded)
	check("succeeded", true)
	pool("POST", "/api/agent-workflows/deployment:none/check", nil).want(404, nil)
	pool("POST", "/api/agent-workflows/insights-scan:"+dep+"/check", nil).want(404, nil)
}
