package api_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// TestRolesLimitJobs starts deployments with each role. Of the stacks of other users, a job must
// reach those that the role and its requester may read.
func TestRolesLimitJobs(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	ann := l.person("ann", "acme", "admin")
	collaborator := l.person("cal", "acme", "stack-collaborator")
	const foreign = "/api/stacks/acme/proj/foreign"
	l.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Auth: ann, Body: map[string]string{"stackName": "foreign"}}).want(200, nil)
	mine := l.deployable("mine")
	own := "/api/stacks/acme/proj/mine"
	l.do("PUT", own+"/collaborators/cal", map[string]any{"permission": 102}).want(204, nil)

	for _, role := range []string{"nope", "Member", "@member"} {
		body := map[string]any{"operationContext": map[string]any{"role": map[string]any{"id": role}}}
		l.do("PUT", mine+"/settings", body).want(400, nil).says("no role")
		body["operation"] = "preview"
		l.do("POST", mine, body).want(400, nil).says("no role")
	}
	for _, member := range []string{"name", "defaultIdentifier"} { // ignored, it would leave the job unlimited
		body := map[string]any{"operation": "preview", "operationContext": map[string]any{"role": map[string]any{member: "stack-collaborator"}}}
		l.do("POST", mine, body).want(400, nil).says("operationContext.role: has no id")
	}
	for _, tt := range []struct {
		name, requester, role string
		want                  int
	}{
		{"administrator", "", "", 200},
		{"administrator as administrator", "", "admin", 200},
		{"administrator as member", "", "member", 200}, // by the organization's default permission
		{"administrator as collaborator", "", "stack-collaborator", 403},
		{"administrator as billing manager", "", "billing-manager", 403},
		{"collaborator", collaborator, "", 403},
		{"collaborator as administrator", collaborator, "admin", 403},
	} {
		body := map[string]any{"operation": "preview"}
		if tt.role != "" {
			body["operationContext"] = map[string]any{"role": map[string]any{"id": tt.role, "name": "any"}}
		}
		l.send(call{Method: "POST", Path: mine, Auth: tt.requester, Body: body}).want(202, nil)
		_, jc := l.start("agent of " + tt.name)
		definition, err := jc.Definition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		job := "token " + definition.Env["PULUMI_ACCESS_TOKEN"]
		l.send(call{Method: "GET", Path: own, Auth: job}).want(200, nil)
		if a := l.send(call{Method: "GET", Path: foreign, Auth: job}); a.Status != tt.want {
			t.Errorf("%s: status %d, want %d: %s", tt.name, a.Status, tt.want, a.Body)
		}
		l.end(jc, workflow.StatusFailed)
	}
}

// TestInputsOfJobs requests submodules, files of Git LFS, tags and a cache.
func TestInputsOfJobs(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	path := l.deployable("dev")
	l.do("POST", path+"/settings", map[string]any{
		"cacheOptions":     map[string]any{"enable": true},
		"operationContext": map[string]any{"environmentVariables": map[string]any{"PULUMI_DEPLOY_GIT_SUBMODULES": "true", "PULUMI_DEPLOY_GIT_LFS": "0", "PULUMI_DEPLOY_GIT_TAGS": "true"}},
	}).want(200, nil)
	id := l.deploy(path, "update")
	_, jc := l.start("agent")
	for range 2 { // an agent can request a definition again
		definition, err := jc.Definition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if git := definition.Deployment.Source.Git; !git.Submodules || git.LFS || !git.Tags || git.Depth != workflow.WholeHistory {
			t.Errorf("the definition requests %+v", git)
		}
		if w := definition.Deployment.Workspace; !w.Valid() || w.Key == "" {
			t.Errorf("the job keeps the workspace %+v", w)
		}
	}
	if notes := l.details(path, id).Notes; len(notes) != 0 {
		t.Errorf("the log contains %q", notes)
	}
	l.do("DELETE", path+"/cache", nil).want(200, nil)
	l.do("DELETE", strings.Replace(path, "/dev/", "/none/", 1)+"/cache", nil).want(404, nil)
	l.end(jc, workflow.StatusFailed)
	for _, tt := range []struct {
		body  any
		keeps bool
	}{{nil, true}, {map[string]any{}, true}, {map[string]any{"cacheOptions": map[string]any{"enable": false}}, false}} {
		var made struct{ ID string }
		l.do("POST", path+"/"+id+"/again", tt.body).want(202, &made)
		_, jc := l.start("agent")
		definition, err := jc.Definition(t.Context())
		if err != nil || made.ID == "" || definition.Deployment.ID != made.ID || definition.Deployment.Workspace.Valid() != tt.keeps {
			t.Errorf("a repetition with the body %v is %+v, %v with the workspace %v", tt.body, made, err, definition.Deployment.Workspace)
		}
		l.end(jc, workflow.StatusFailed)
	}
	l.do("POST", path+"/"+id+"/again", "text").want(400, nil)
	l.do("POST", path+"/999/again", nil).want(404, nil)
	var first, second struct{ ID string }
	for _, made := range []*struct{ ID string }{&first, &second} {
		l.send(call{Method: "POST", Path: path + "/" + id + "/again", Header: map[string]string{"Idempotency-Key": "k"}}).want(202, made)
	}
	if first != second {
		t.Errorf("a repeated request made the deployments %v and %v", first, second)
	}
	l.send(call{Method: "POST", Path: path + "/" + first.ID + "/again", Header: map[string]string{"Idempotency-Key": "k"}}).want(409, nil)
	for _, value := range []any{"-1", "many", "2000000", map[string]any{"secret": "1"}} {
		l.do("POST", path+"/settings", map[string]any{
			"operationContext": map[string]any{"environmentVariables": map[string]any{"PULUMI_DEPLOY_GIT_DEPTH": value}},
		}).want(400, nil).says("PULUMI_DEPLOY_GIT_DEPTH must be a number of commits")
	}
	for _, value := range []any{"yes please", "", map[string]any{"secret": "true"}} {
		l.do("POST", path+"/settings", map[string]any{
			"operationContext": map[string]any{"environmentVariables": map[string]any{"PULUMI_DEPLOY_GIT_LFS": value}},
		}).want(400, nil).says("PULUMI_DEPLOY_GIT_LFS must be true or false")
	}
}
