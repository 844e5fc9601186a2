package api_test

import (
	"testing"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestOpenEnvironmentsOfSettings makes the call with which a runner opens the environments of its deployment's settings. It needs
// the rights of the job's own token, and ends with it.
func TestOpenEnvironmentsOfSettings(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		l.deploy(path, "update")
		_, without := l.start("a")
		_, err := without.OpenEnvironments(t.Context())
		wantCode(t, "settings without environments", err, 400)
		l.end(without, workflow.StatusFailed)

		l.do("POST", path+"/settings", `{"operationContext":{"environments":["app/prod"]}}`).want(200, nil)
		l.deploy(path, "update")
		claim, jc := l.start("a")
		_, err = jc.OpenEnvironments(t.Context())
		wantCode(t, "before the job's token exists", err, 410)
		if _, err := jc.Definition(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = jc.OpenEnvironments(t.Context())
		wantCode(t, "without the evaluator", err, 503)
		route := "/api/workflow/jobs/" + claim.JobID + "/environments"
		l.send(call{Method: "POST", Path: route, Auth: "token " + l.admin}).want(403, nil)
		other := l.issue(store.Token{Kind: store.RunnerToken, JobID: "j", DeploymentID: "d"})
		l.send(call{Method: "POST", Path: route, Auth: "token " + other}).want(401, nil)
		l.end(jc, workflow.StatusSucceeded)
		_, err = jc.OpenEnvironments(t.Context())
		wantCode(t, "after the job's end", err, 410)
	})
}
