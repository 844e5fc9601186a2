package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	gitlab "workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

const sourcePath = "/api/orgs/acme/environment-source"

// changeEnvironmentSource makes all changes of the source of environments.
func (a *auditor) changeEnvironmentSource() {
	var made integration
	a.change("POST", integrationsPath+"/custom", map[string]any{
		"name": "definitions", "baseUrl": "https://git.example/definitions", "repositories": []map[string]string{{"name": "envs"}},
		"credentials": map[string]any{"username": "git", "password": "secret"},
	}, &made)
	a.change("PUT", sourcePath, map[string]any{"integration": made.ID, "repository": "envs", "branch": "main"}, nil)
	a.change("POST", sourcePath+"/sync", nil, nil)
	a.change("DELETE", sourcePath, nil, nil)
}

// TestEnvironmentSource synchronizes environments with a plain git server, whose hook reports a push.
func TestEnvironmentSource(t *testing.T) {
	f := newFixture(t, options{})
	server := must.Get(gitlab.StartGitServer(t.Context(), t.TempDir(), gitlab.GitOptions{Password: "secret"}))(t)
	t.Cleanup(func() { _ = server.Close() })
	repo, first, err := server.NewRepo(t.Context(), "envs", map[string]string{"prod/app/web.yaml": "values:\n  a: 1\n"})
	must.OK(t, err)
	var made integration
	f.do("POST", integrationsPath+"/custom", map[string]any{
		"name": "git", "baseUrl": server.URL, "repositories": []map[string]string{{"name": "envs"}}, "credentials": map[string]any{"username": "git", "password": "secret"},
	}).want(http.StatusCreated, &made)
	f.do("GET", sourcePath, nil).want(404, nil)
	f.do("POST", sourcePath+"/sync", nil).want(404, nil)
	set := map[string]any{"integration": made.ID, "repository": "envs", "branch": "main", "folder": "prod"}
	f.do("PUT", sourcePath, map[string]any{"integration": made.ID, "repository": "other", "branch": "main"}).want(400, nil)
	f.do("PUT", sourcePath+"?dryRun=true", set).want(200, nil).says(first).says(`"difference":["+values:","+  a: 1"]`).says(`"environment":"app/web"`)
	f.do("PUT", sourcePath+"?dryRun=true", map[string]any{"integration": made.ID, "repository": "envs", "branch": "missing"}).want(404, nil)
	f.do("GET", sourcePath, nil).want(404, nil)

	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- f.sources.Run(ctx) }()
	defer func() {
		stop()
		must.OK(t, <-stopped)
	}()
	f.do("PUT", sourcePath, set).want(200, nil).says(`"checkPullRequests":true`)
	// applied waits for the synchronization of a commit.
	applied := func(commit string) {
		t.Helper()
		for {
			var src struct{ AppliedCommit, Problem string }
			f.do("GET", sourcePath, nil).want(200, &src)
			if src.AppliedCommit == commit {
				return
			}
			if src.Problem != "" {
				t.Fatal(src.Problem)
			}
			select {
			case <-t.Context().Done():
				t.Fatal("the commit was not applied")
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	applied(first)
	web := "/api/esc/environments/acme/app/web"
	f.do("GET", web, nil).want(200, nil).says("a: 1")
	f.do("GET", web+"/versions", nil).want(200, nil).says(`"git envs@` + first[:12] + `"`)
	// After the first delivery, the server polls only at long intervals, so the second one must make the poll due.
	hooked := &gitSite{fixture: f, repo: repo, made: made}
	push := func(branch, commit string) answer {
		t.Helper()
		return hooked.deliver(made.WebhookSecret, map[string]any{"event": "push", "commit": commit, "branch": branch, "repoUrl": repo.URL})
	}
	push("other", first).want(http.StatusAccepted, nil).says(`"ignored":"no-stack-watches"`)
	push(gitlab.MainBranch, first).want(http.StatusAccepted, nil).says(`"accepted":1`)
	second := must.Get(repo.Commit(t.Context(), gitlab.MainBranch, "Second", map[string]string{"prod/app/web.yaml": "values:\n  a: 2\n"}))(t)
	push(gitlab.MainBranch, second).want(http.StatusAccepted, nil).says(`"accepted":1`)
	applied(second)
	f.do("POST", sourcePath+"/sync?dryRun=true", nil).want(200, nil).says(`"action":"keep"`)
	f.do("POST", sourcePath+"/sync", nil).want(204, nil)
	if log := f.do("GET", "/api/orgs/acme/auditlogs/v2", nil).want(200, nil); !strings.Contains(string(log.Body), "git envs@"+second[:12]) {
		t.Errorf("the audit log does not name the commit: %s", log.Body)
	}
	f.do("DELETE", sourcePath, nil).want(204, nil)
	f.do("GET", web, nil).want(200, nil).says("a: 2")
}
