package deployments_test

import (
	"fmt"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// TestTrust checks the class of each origin of a deployment.
func TestTrust(t *testing.T) {
	const cached = `"cacheOptions":{"enable":true},`
	const watched = `{` + cached + `"vcs":{"provider":"github","repository":"o/r"},"sourceContext":{"git":{"branch":"main","repoDir":"infra"}},
		"executorContext":{"executorImage":"registry.example/a:1"},
		"operationContext":{"preRunCommands":["make"],"environmentVariables":{"A":"1","S":{"secret":"x"}}}}`
	push := func(ref string) deployments.Trigger {
		return deployments.Trigger{Operation: workflow.OperationUpdate, Initiator: vcs.InitiatorPush, Checkout: store.VCSCheckout{IntegrationID: "int", RepoID: "repo", CommitID: commit, Ref: ref}}
	}
	pull := func(ref string, fork bool) deployments.Trigger {
		p := push(ref)
		p.Operation, p.Checkout.Pull, p.Checkout.Fork = workflow.OperationPreview, 7, fork
		return p
	}
	base := push("refs/heads/main")
	base.Checkout.CommitID, base.Checkout.Pull = "", 7
	f := &forge{}
	p, _ := newForgePlant(t, storetest.SQLite(t), f, `{}`)
	for i, tt := range []struct {
		name, settings string
		request        string               // of a user, or ""
		trigger        *deployments.Trigger // of a forge
		want           string
	}{
		{"a user's update", watched, `{"operation":"update"}`, nil, "own"},
		{"a user's preview", watched, `{"operation":"preview"}`, nil, "own"},
		{"a destroy", watched, `{"operation":"destroy"}`, nil, "own"},
		{"a search for drift that is corrected", watched, `{"operation":"detect-drift","operationContext":{"options":{"remediateIfDriftDetected":true}}}`, nil, "own"},
		{"what the command line sends", watched, `{"operation":"update","inheritSettings":true,"executorContext":{"workingDirectory":""},"operationContext":{"preRunCommands":[],"operation":""}}`, nil, "own"},
		{"the same branch, named", watched, `{"operation":"update","sourceContext":{"git":{"branch":"refs/heads/main"}}}`, nil, "own"},
		{"the same source without inheritance", watched, `{"operation":"update","inheritSettings":false,` + cached + `"sourceContext":{"git":{"repoUrl":"https://git.example/o/r.git","branch":"main","repoDir":"infra"}},
			"executorContext":{"executorImage":"registry.example/a:1"},"operationContext":{"preRunCommands":["make"],"environmentVariables":{"A":"1"}}}`, nil, "branch"},
		{"another branch", watched, `{"operation":"update","sourceContext":{"git":{"branch":"feature"}}}`, nil, "branch"},
		{"another directory", watched, `{"operation":"update","sourceContext":{"git":{"repoDir":"other"}}}`, nil, "branch"},
		{"a tag", watched, `{"operation":"update","sourceContext":{"git":{"branch":"refs/tags/v1"}}}`, nil, "branch"},
		{"the ref of a pull request", watched, `{"operation":"update","sourceContext":{"git":{"branch":"refs/pull/7/head"}}}`, nil, ""},
		{"the ref of a change", watched, `{"operation":"update","sourceContext":{"git":{"branch":"refs/changes/1/2/3"}}}`, nil, ""},
		{"a commit", watched, `{"operation":"update","sourceContext":{"git":{"commit":"` + commit + `"}}}`, nil, ""},
		{"another repository", watched, `{"operation":"update","sourceContext":{"git":{"repoUrl":"https://github.com/mallory/r.git"}}}`, nil, ""},
		{"another server", watched, `{"operation":"update","sourceContext":{"git":{"repoUrl":"https://git.mallory.example/o/r.git"}}}`, nil, ""},
		{"the repository without encryption", watched, `{"operation":"update","sourceContext":{"git":{"repoUrl":"http://git.example/o/r.git"}}}`, nil, ""},
		{"triggers of another repository", watched, `{"operation":"update","vcs":{"provider":"github","repository":"mallory/r"},"sourceContext":{"git":{"repoUrl":"https://github.com/mallory/r.git"}}}`, nil, ""},
		{"another image", watched, `{"operation":"update","executorContext":{"executorImage":"mallory/a:1"}}`, nil, "branch"},
		{"another root", watched, `{"operation":"update","executorContext":{"executorRootPath":"/tmp"}}`, nil, "branch"},
		{"other commands", watched, `{"operation":"update","operationContext":{"preRunCommands":["curl mallory"]}}`, nil, "branch"},
		{"another shell", watched, `{"operation":"update","operationContext":{"options":{"shell":"/tmp/sh"}}}`, nil, "branch"},
		{"another variable", watched, `{"operation":"update","operationContext":{"environmentVariables":{"NODE_OPTIONS":"--require=/x"}}}`, nil, "branch"},
		{"another value", watched, `{"operation":"update","operationContext":{"environmentVariables":{"A":"2"}}}`, nil, "branch"},
		{"another secret value", watched, `{"operation":"update","operationContext":{"environmentVariables":{"S":{"secret":"y"}}}}`, nil, "branch"},
		{"other environments", watched, `{"operation":"update","operationContext":{"environments":["app/prod"]}}`, nil, "branch"},
		{"a push", watched, "", new(push("refs/heads/main")), "own"},
		{"a push to another branch", watched, "", new(push("refs/heads/feature")), "branch"},
		{"a pushed tag", watched, "", new(push("refs/tags/v1")), "branch"},
		{"a branch named like the ref", watched, "", new(push("refs/heads/refs/heads/main")), "branch"},
		{"a commit without a ref", watched, "", new(push("")), ""},
		{"a pull request", watched, "", new(pull("refs/pull/7/head", false)), "branch"},
		{"a pull request of the own branch", watched, "", new(pull("refs/heads/main", false)), "branch"},
		{"an approved fork", watched, "", new(pull("refs/pull/7/head", true)), ""},
		{"an approved fork whose branch has the name", watched, "", new(pull("refs/heads/main", true)), ""},
		{"the base of a pull request", watched, "", &base, "branch"},

		{"a public repository", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"main"}}}`, `{"operation":"update"}`, nil, "own"},
		{"the same repository in another form", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"main"}}}`, `{"operation":"update","sourceContext":{"git":{"repoUrl":"https://github.com/o/r.git"}}}`, nil, "own"},
		{"a repository over SSH", `{` + cached + `"sourceContext":{"git":{"repoUrl":"git@git.example:infra.git","branch":"main"}}}`, `{"operation":"update","sourceContext":{"git":{"repoUrl":"git@git.example:infra"}}}`, nil, "own"},
		{"the home of another user over SSH", `{` + cached + `"sourceContext":{"git":{"repoUrl":"git@git.example:infra.git","branch":"main"}}}`, `{"operation":"update","sourceContext":{"git":{"repoUrl":"mallory@git.example:infra.git"}}}`, nil, ""},
		{"another path over SSH", `{` + cached + `"sourceContext":{"git":{"repoUrl":"git@git.example:infra.git","branch":"main"}}}`, `{"operation":"update","sourceContext":{"git":{"repoUrl":"ssh://git@git.example/infra.git"}}}`, nil, ""},
		{"a push to a repository that the settings do not name", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/other","branch":"main"}}}`, "", new(push("refs/heads/main")), ""},
		{"the default branch", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r"}}}`, `{"operation":"update"}`, nil, "own"},
		{"a branch instead of the default", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r"}}}`, `{"operation":"update","sourceContext":{"git":{"branch":"main"}}}`, nil, "branch"},
		{"settings with a commit", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","commit":"` + commit + `"}}}`, `{"operation":"update"}`, nil, "own"},
		{"a branch instead of the commit", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","commit":"` + commit + `"}}}`, `{"operation":"update","sourceContext":{"git":{"branch":"main"}}}`, nil, "branch"},
		{"settings with the ref of a pull request", `{` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"refs/pull/7/head"}}}`, `{"operation":"update"}`, nil, ""},
		{"a program in the image", `{` + cached + `"executorContext":{"executorImage":"a:1"}}`, `{"operation":"update"}`, nil, "own"},
		{"a program in another image", `{` + cached + `"executorContext":{"executorImage":"a:1"}}`, `{"operation":"update","executorContext":{"executorImage":"b:1"}}`, nil, ""},
		{"a program in the image with other commands", `{` + cached + `"executorContext":{"executorImage":"a:1"}}`, `{"operation":"update","operationContext":{"preRunCommands":["x"]}}`, nil, ""},
		{"a repository instead of the image", `{` + cached + `"executorContext":{"executorImage":"a:1"}}`, `{"operation":"update","sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"main"}}}`, nil, ""},
		{"no settings", "", `{"operation":"update",` + cached + `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"main"}}}`, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.t, f.unwatched = t, tt.settings != watched
			st := p.stack(fmt.Sprintf("row-%d", i))
			if tt.settings != "" {
				p.must(p.put(st, tt.settings))
			}
			var d store.Deployment
			if tt.trigger != nil {
				if f.unwatched {
					tt.trigger.Checkout.IntegrationID, tt.trigger.Checkout.RepoID = "", ""
				}
				d = p.createFor(st, *tt.trigger)
			} else {
				var err error
				d, err = p.service.Create(t.Context(), p.user, st, asked(t, tt.request), "api")
				p.must(err)
			}
			if d.Trust != tt.want {
				t.Errorf("the class is %q, want %q", d.Trust, tt.want)
			}
			c := p.poll("a")
			p.must(p.heartbeat(c, "starting"))
			def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
			p.must(err)
			if w := def.Deployment.Workspace; w.Valid() != (tt.want != "") {
				t.Errorf("the job gets the workspace %+v", w)
			}
			p.must(p.result(c, workflow.StatusFailed))
		})
	}
}
