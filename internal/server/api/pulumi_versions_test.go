package api_test

import (
	"encoding/json"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// TestPulumiVersions checks that a job gets the range of versions of its stack or else of its
// organization, and that the version that its steps ran is recorded with the deployment.
func TestPulumiVersions(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		variable := func(value any) map[string]any {
			return map[string]any{"operationContext": map[string]any{"environmentVariables": map[string]any{workflow.PulumiVersionVariable: value}}}
		}
		run := func(want, reported, recorded string) {
			t.Helper()
			id := l.deploy(path, "update")
			_, jc := l.start("a1")
			def, err := jc.Definition(t.Context())
			if err != nil || def.Deployment.PulumiVersion != want || !def.Deployment.SkipCheckpoints {
				t.Errorf("the job's deployment is %+v, %v; want the version %q", def.Deployment, err, want)
			}
			now := time.Now()
			last := len(def.Steps) - 1
			if err := jc.StepStatus(t.Context(), last, protocol.StepStatusRequest{Status: workflow.StepRunning, StartedAt: &now, PulumiVersion: reported}); err != nil {
				t.Error(err)
			}
			if err := jc.StepStatus(t.Context(), last, protocol.StepStatusRequest{Status: workflow.StepSucceeded, FinishedAt: &now}); err != nil {
				t.Error(err)
			}
			l.end(jc, workflow.StatusSucceeded)
			l.becomes(path, id, "succeeded")
			var d struct{ PulumiVersion json.RawMessage }
			l.do("GET", path+"/"+id, nil).want(200, &d)
			if string(d.PulumiVersion) != recorded {
				t.Errorf("the deployment's version is %s, want %s", d.PulumiVersion, recorded)
			}
		}
		run("", "", "")
		org := func(version any, status int, says string) {
			t.Helper()
			l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultPulumiVersion": version}).want(status, nil).says(says)
		}
		org(" >=3.270 <4 ", 200, `"defaultPulumiVersion":">=3.270 <4"`)
		run(">=3.270 <4", "3.276.0", `"3.276.0"`)
		run(">=3.270 <4", "a hostile\nvalue", "")
		l.do("POST", path+"/settings", variable("3.255.0")).want(200, nil)
		run("3.255.0", "3.255.0", `"3.255.0"`)
		l.do("POST", path+"/settings", variable("newest")).want(400, nil).says("is not a version")
		l.do("POST", path+"/settings", variable(map[string]string{"secret": "3.255.0"})).want(400, nil).says("must not be a secret")
		org("newest", 400, "is not a version")
		org("", 200, `"defaultPulumiVersion":""`)
		run("3.255.0", "", "")
	})
}
