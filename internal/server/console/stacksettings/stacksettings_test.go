package stacksettings_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
)

const hostile = `"><script>alert(1)</script>`

type m = map[string]any

const base = "/acme/web/prod/settings"

func newServer(t *testing.T) (*consoletest.Server, *consoletest.Browser) {
	t.Helper()
	s := consoletest.New(t)
	s.API(http.MethodPost, "/api/stacks/acme/web", m{"stackName": "prod"}, nil)
	return s, s.SignIn()
}

func get(t *testing.T, b *consoletest.Browser, path string) consoletest.Page {
	t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", path, p.Status, p.Body)
	}
	return check(t, path, p)
}

func check(t *testing.T, path string, p consoletest.Page) consoletest.Page {
	t.Helper()
	if strings.Contains(p.Body, "<script>alert") {
		t.Errorf("%s contains markup of a user", path)
	}
	return p
}

var (
	patchField = regexp.MustCompile(`name="patch" value="([^"]*)"`)
	version    = regexp.MustCompile(`name="version" value="(\d+)"`)
)

// store fills in the form of the deployment settings, and saves what the review shows.
func store(t *testing.T, b *consoletest.Browser, form url.Values) (review consoletest.Page) {
	t.Helper()
	review = check(t, base, b.Post(base, form))
	if review.Status != http.StatusOK {
		t.Fatalf("review: status %d: %s", review.Status, review.Body)
	}
	patch := html.UnescapeString(patchField.FindStringSubmatch(review.Body)[1])
	if p := b.Post(base+"/save", url.Values{"patch": {patch}, "version": {version.FindStringSubmatch(review.Body)[1]}}); p.Status != http.StatusSeeOther {
		t.Fatalf("save: status %d: %s", p.Status, p.Body)
	}
	return review
}

func TestDeploymentSettings(t *testing.T) {
	s, b := newServer(t)
	if p := get(t, b, base); !p.Contains("no deployment settings yet") {
		t.Error("the page does not say that settings are missing")
	}
	form := url.Values{
		"repository": {"https://git.example.com/web.git"}, "branch": {"main"}, "folder": {"infra"}, "commands": {"echo " + hostile + "\n\nmake"},
		"auth": {"token"}, "git-secret": {"tok-123"}, "name0": {"PLAIN"}, "value0": {hostile}, "name1": {"HIDDEN"}, "value1": {"hunter2"}, "secret1": {"on"},
		"skipInstallDependencies": {"on"}, "image": {"pulumi/pulumi:3"},
	}
	review := store(t, b, form)
	if !review.Contains("sourceContext", "[secret", "PLAIN", "preRunCommands") || review.Contains("hunter2") || review.Contains("tok-123") {
		t.Errorf("review: %s", review.Body)
	}
	type settings struct {
		Source        string
		Version       int
		SourceContext struct {
			Git struct {
				RepoURL, Branch, RepoDir string
				GitAuth                  map[string]any
			}
		}
		OperationContext struct {
			PreRunCommands       []string
			EnvironmentVariables map[string]any
			Options              map[string]any
		}
	}
	read := func() (set settings) {
		s.API(http.MethodGet, "/api/stacks/acme/web/prod/deployments/settings", nil, &set)
		return set
	}
	set := read()
	git := set.SourceContext.Git
	if git.RepoURL != form.Get("repository") || git.Branch != "main" || git.RepoDir != "infra" || git.GitAuth["accessToken"] == nil {
		t.Errorf("source: %+v", git)
	}
	operation := set.OperationContext
	if set.Source != "console" || len(operation.PreRunCommands) != 2 || operation.EnvironmentVariables["PLAIN"] != hostile || operation.Options["skipInstallDependencies"] != true {
		t.Errorf("settings: %+v", set)
	}
	if _, plain := operation.EnvironmentVariables["HIDDEN"].(string); plain {
		t.Error("the API returns the secret variable as text")
	}
	page := get(t, b, base)
	if !page.Contains("https://git.example.com/web.git", "keep the stored access token", "HIDDEN", "[secret]", "pulumi:deploy:org:acme:project:web:stack:prod") || page.Contains("hunter2") {
		t.Errorf("page: %s", page.Body)
	}

	// The second change keeps the credentials and the secret variable, and removes the other.
	form = url.Values{
		"repository": form["repository"], "commit": {strings.Repeat("a", 40)}, "auth": {"keep"}, "remove:PLAIN": {"on"}, "image": {"pulumi/pulumi:3"},
	}
	if review := store(t, b, form); !review.Contains("delete", "PLAIN") || review.Contains("new value") {
		t.Errorf("second review: %s", review.Body)
	}
	set = read()
	if set.Version != 2 || set.SourceContext.Git.GitAuth["accessToken"] == nil || set.SourceContext.Git.Branch != "" {
		t.Errorf("after the second change: %+v", set)
	}
	if env := set.OperationContext.EnvironmentVariables; len(env) != 1 || env["HIDDEN"] == nil || len(set.OperationContext.PreRunCommands) != 0 {
		t.Errorf("after the second change: %+v", set.OperationContext)
	}
	if p := b.Post(base+"/save", url.Values{"patch": {`{"agentPoolID":""}`}, "version": {"1"}}); p.Status != http.StatusUnprocessableEntity || read().Version != 2 {
		t.Errorf("saving a review of older settings: status %d", p.Status)
	}
	if p := check(t, base, b.Post(base, url.Values{"repository": {hostile}})); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("invalid settings: status %d", p.Status)
	}
}

func TestSchedules(t *testing.T) {
	s, b := newServer(t)
	path := base + "/schedules"
	if p := b.Post(path, url.Values{"kind": {"drift"}, "cron": {"0 3 * * *"}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("deployment settings") {
		t.Errorf("a schedule without settings: status %d", p.Status)
	}
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{"sourceContext": m{"git": m{"repoUrl": "https://git.example.com/web.git", "branch": "main"}}}, nil)
	for _, form := range []url.Values{
		{"kind": {"drift"}, "cron": {"0 3 * * *"}, "option": {"on"}},
		{"kind": {"schedule"}, "cron": {"0 2 * * 1"}, "operation": {"update"}},
		{"kind": {"ttl"}, "once": {"2099-01-02T03:04"}},
	} {
		if p := b.Post(path, form); p.Status != http.StatusSeeOther {
			t.Errorf("%v: status %d: %s", form, p.Status, p.Body)
		}
	}
	if p := get(t, b, "/acme/web/prod"); !p.Contains("The time to live of the stack ends", "2099-01-02", "time to live: destroy") {
		t.Error("the page of the stack does not show its time to live")
	}
	if p := get(t, b, "/acme/-/schedules"); !p.Contains("time to live: destroy", "once, 2099-01-02 03:04") {
		t.Error("the schedules of the organization do not show the time to live")
	}
	for _, form := range []url.Values{{"kind": {"drift"}, "cron": {hostile}}, {"kind": {"ttl"}, "once": {"soon"}}, {"kind": {hostile}}} {
		if p := check(t, path, b.Post(path, form)); p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%v: status %d", form, p.Status)
		}
	}
	page := get(t, b, path)
	if !page.Contains("detect-drift and remediate", "0 2 * * 1", "destroy", "once, 2099-01-02 03:04") {
		t.Errorf("the page lacks a schedule: %s", page.Body)
	}
	id := regexp.MustCompile(`/settings/schedules/([^/"]+)/pause`).FindStringSubmatch(page.Body)[1]
	for _, step := range []struct{ action, want string }{{"pause", "is-paused"}, {"resume", "/pause"}, {"delete", "schedules"}} {
		if p := b.Post(path+"/"+id+"/"+step.action, nil); p.Status != http.StatusSeeOther {
			t.Fatalf("%s: status %d", step.action, p.Status)
		}
		if p := get(t, b, path); !p.Contains(step.want) || step.action == "delete" && p.Contains(id) {
			t.Errorf("after %s: %s", step.action, p.Body)
		}
	}
}

func TestWebhooks(t *testing.T) {
	s, b := newServer(t)
	path := base + "/webhooks"
	form := url.Values{"name": {"hook"}, "format": {"raw"}, "url": {"https://hooks.example.com/x"}, "filters": {"update_failed"}, "secret": {"hunter2"}}
	if p := b.Post(path, form); p.Status != http.StatusSeeOther {
		t.Fatalf("creating: status %d: %s", p.Status, p.Body)
	}
	if p := check(t, path, b.Post(path, url.Values{"name": {hostile}, "format": {"raw"}, "url": {hostile}})); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("an invalid webhook: status %d", p.Status)
	}
	if p := get(t, b, path); !p.Contains("https://hooks.example.com/x") || p.Contains("hunter2") {
		t.Errorf("list: %s", p.Body)
	}
	if p := get(t, b, path+"/hook"); !p.Contains("update_failed", "[secret]", "Nothing has been delivered") {
		t.Errorf("webhook: %s", p.Body)
	}
	if p := b.Post(path+"/hook/disable", nil); p.Status != http.StatusSeeOther {
		t.Errorf("disabling: status %d", p.Status)
	}
	var list []struct{ Active bool }
	if s.API(http.MethodGet, "/api/stacks/acme/web/prod/hooks", nil, &list); len(list) != 1 || list[0].Active {
		t.Errorf("API: %+v", list)
	}
	if p := b.Post(path+"/hook/delete", nil); p.Status != http.StatusSeeOther || b.Get(path+"/hook").Status != http.StatusNotFound {
		t.Errorf("deleting: status %d", p.Status)
	}
}

func TestAccess(t *testing.T) {
	s, b := newServer(t)
	ada := s.SignInWith(s.AddUser("ada", "member"))
	path := base + "/access"
	if p := ada.Post(path, url.Values{"user": {"ada"}, "permission": {"103"}}); p.Status != http.StatusForbidden && p.Status != http.StatusNotFound {
		t.Errorf("a member grants himself a permission: status %d", p.Status)
	}
	if p := b.Post(path, url.Values{"user": {"ada"}, "permission": {"103"}}); p.Status != http.StatusSeeOther {
		t.Fatalf("granting: status %d: %s", p.Status, p.Body)
	}
	if p := get(t, ada, path); !p.Contains("ada", "admin", "Remove the permission of ada") {
		t.Errorf("access: %s", p.Body)
	}
	for _, form := range []url.Values{{"user": {hostile}, "permission": {"101"}}, {"user": {"ada"}, "permission": {"x"}}, {"permission": {"101"}}} {
		if p := check(t, path, b.Post(path, form)); p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%v: status %d", form, p.Status)
		}
	}
	if p := b.Post(path, url.Values{"user": {"ada"}, "permission": {"0"}}); p.Status != http.StatusSeeOther || get(t, b, path).Contains("Remove the permission of ada") {
		t.Errorf("revoking: status %d", p.Status)
	}
}

func TestOptions(t *testing.T) {
	s, b := newServer(t)
	if p := get(t, b, base+"/options"); !p.Contains("Rename", "Delete") {
		t.Errorf("options: %s", p.Body)
	}
	if p := check(t, base, b.Post(base+"/options/rename", url.Values{"name": {hostile}})); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("an invalid name: status %d", p.Status)
	}
	if p := b.Post(base+"/options/rename", url.Values{"name": {"live"}, "project": {"web"}}); p.Location() != "/acme/web/live/settings/options" {
		t.Fatalf("renaming: status %d, %s: %s", p.Status, p.Location(), p.Body)
	}
	renamed := "/acme/web/live/settings/options"
	status := func() int {
		code, _ := s.APIAs(s.Token, http.MethodGet, "/api/stacks/acme/web/live", nil, nil)
		return code
	}
	for _, confirm := range []string{"", "live", "web/prod", "WEB/live"} {
		if p := b.Post(renamed+"/delete", url.Values{"confirm": {confirm}}); p.Status != http.StatusUnprocessableEntity || status() != http.StatusOK {
			t.Errorf("deleting with the confirmation %q: status %d", confirm, p.Status)
		}
	}
	const form = `action="/acme/web/live/settings/options/delete"`
	s.AgeSessions(16 * time.Minute)
	if p := get(t, b, renamed); p.Contains(form) || !p.Contains("older than 15 minutes", `href="/-/login?next=`+url.QueryEscape(renamed)+`"`) {
		t.Errorf("with an old sign-in, the page does not ask for another one: %s", p.Body)
	}
	if p := b.Post(renamed+"/delete", url.Values{"confirm": {"web/live"}}); p.Status != http.StatusForbidden || status() != http.StatusOK {
		t.Errorf("deleting with an old sign-in: status %d: %s", p.Status, p.Body)
	}
	b = s.SignIn()
	if p := get(t, b, renamed); !p.Contains(form) {
		t.Errorf("after another sign-in: %s", p.Body)
	}
	if p := b.Post(renamed+"/delete", url.Values{"confirm": {"web/live"}}); p.Status != http.StatusSeeOther || status() != http.StatusNotFound {
		t.Errorf("deleting: %s", fmt.Sprint(p.Status, p.Body))
	}
}

// TestTriggers changes what pushes and pull requests deploy, and keeps what the form does not show.
func TestTriggers(t *testing.T) {
	s, b := newServer(t)
	if p := get(t, b, base); !p.Contains("Connect a git host") {
		t.Error("without an integration, the page does not say how to connect one")
	}
	var made struct{ ID string }
	s.API(http.MethodPost, "/api/console/orgs/acme/integrations/github", m{"name": "forge", "owner": "acme", "accessToken": "none"}, &made)
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{
		"sourceContext": m{"git": m{"branch": "main"}}, "gitHub": m{"repository": "acme/web", "deployPullRequest": 7},
	}, nil)
	type triggers struct {
		Provider, Repository, InstallationID, ReviewStackTTL                string
		DeployCommits, PreviewPullRequests, DeployTags, PullRequestTemplate bool
		DeployPullRequest                                                   int
		Paths, TagFilters, ReviewStackLabels                                []string
	}
	type settings struct {
		GitHub, VCS   *triggers
		SourceContext struct{ Git m }
	}
	read := func() (set settings) {
		t.Helper()
		s.API(http.MethodGet, "/api/stacks/acme/web/prod/deployments/settings", nil, &set)
		return set
	}
	if p := get(t, b, base); !p.Contains(`value="github/`+made.ID+`"`, `<option value="github/" selected>`, `value="acme/web"`) {
		t.Errorf("the form: %s", p.Body)
	}
	// What stays the same is not written.
	form := url.Values{"branch": {"main"}, "forge": {"github/"}, "forge-repository": {"acme/web"}, "folder": {"infra"}}
	if review := store(t, b, form); review.Contains("vcs") {
		t.Errorf("unchanged triggers: %s", review.Body)
	}
	if set := read(); set.GitHub == nil || set.GitHub.DeployPullRequest != 7 || set.VCS != nil {
		t.Errorf("after an unrelated change: %+v", set)
	}
	form = url.Values{
		"branch": {"main"}, "folder": {"infra"}, "forge": {"github/" + made.ID}, "forge-repository": {"acme/api.git"}, "deployTags": {"on"}, "deployCommits": {"on"},
		"pullRequestTemplate": {"on"}, "paths": {"infra/**\n\n!docs/**"}, "tagFilters": {"v*"}, "reviewStackLabels": {"review"}, "reviewStackTTL": {"72h"},
	}
	if review := store(t, b, form); !review.Contains("vcs", "acme/api") {
		t.Errorf("review: %s", review.Body)
	}
	want := triggers{
		Provider: "github", Repository: "acme/api", InstallationID: made.ID, ReviewStackTTL: "72h", DeployCommits: true, DeployTags: true, PullRequestTemplate: true,
		Paths: []string{"infra/**", "!docs/**"}, TagFilters: []string{"v*"}, ReviewStackLabels: []string{"review"},
	}
	if set := read(); set.GitHub != nil || set.VCS == nil || !reflect.DeepEqual(*set.VCS, want) || set.SourceContext.Git["branch"] != "main" || set.SourceContext.Git["repoDir"] != "infra" {
		t.Errorf("the settings are %+v, want the triggers %+v", set, want)
	}
	if review := b.Post(base, form); !review.Contains("Nothing changes.") {
		t.Errorf("the same form again: %s", review.Body)
	}
	for field, value := range map[string]string{"forge-repository": "", "reviewStackTTL": "soon"} {
		wrong := maps.Clone(form)
		wrong[field] = []string{value}
		if p := b.Post(base, wrong); p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s = %q: status %d", field, value, p.Status)
		}
	}
	delete(form, "forge")
	if store(t, b, form); read().VCS != nil {
		t.Errorf("without triggers: %+v", read())
	}
	// Another repository of the integration needs an administrator of the stack.
	writer := s.SignInWith(s.AddUser("writer", "member"))
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 102}, nil)
	review := writer.Post(base, url.Values{"branch": {"main"}, "forge": {"github/" + made.ID}, "forge-repository": {"acme/web"}, "deployCommits": {"on"}})
	patch, at := patchField.FindStringSubmatch(review.Body), version.FindStringSubmatch(review.Body)
	if patch == nil || at == nil {
		t.Fatalf("review: status %d: %s", review.Status, review.Body)
	}
	if p := writer.Post(base+"/save", url.Values{"patch": {html.UnescapeString(patch[1])}, "version": {at[1]}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("another repository of an integration") {
		t.Errorf("a user who may not choose the repository: status %d", p.Status)
	}
}

// TestReviewOmitsDefaults checks that the first review lists only what the user has set.
func TestReviewOmitsDefaults(t *testing.T) {
	_, b := newServer(t)
	review := store(t, b, url.Values{"repository": {"https://git.example.com/web.git"}, "branch": {"main"}})
	_, table, _ := strings.Cut(review.Body, "<table")
	table, _, _ = strings.Cut(table, "</table>")
	if !strings.Contains(table, "sourceContext") || strings.Contains(table, "operationContext") || strings.Contains(table, "agentPoolID") {
		t.Errorf("review: %s", table)
	}
}
