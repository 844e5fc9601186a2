package stacksettings_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	pending    = regexp.MustCompile(`name="pending" value="([^"]*)"`)
	version    = regexp.MustCompile(`name="version" value="(\d+)"`)
)

// store fills in the form of the deployment settings, and saves what the review shows.
func store(t *testing.T, b *consoletest.Browser, form url.Values) (review consoletest.Page) {
	t.Helper()
	return storeAt(t, b, "", form)
}

// storeAt fills in the form of one of the pages, and saves what the review shows.
func storeAt(t *testing.T, b *consoletest.Browser, part string, form url.Values) (review consoletest.Page) {
	t.Helper()
	at := strings.TrimSuffix(base+"/"+part, "/")
	review = check(t, at, b.Post(at, form))
	if review.Status != http.StatusOK || !review.Contains("<dialog") {
		t.Fatalf("review: status %d: %s", review.Status, review.Body)
	}
	p := b.Post(base+"/save", saved(review, part))
	if p.Status != http.StatusSeeOther || !strings.HasPrefix(p.Location(), at+"?saved=") {
		t.Fatalf("save: status %d, %s: %s", p.Status, p.Location(), p.Body)
	}
	if !b.Get(p.Location()).Contains("Saved.", "data-dialog autofocus", "Deploy now") || b.Get(at+"?saved=0").Contains("Deploy now") {
		t.Error("the page offers to deploy not after saving, or always")
	}
	return review
}

// saved returns the form that stores what a review shows.
func saved(review consoletest.Page, part string) url.Values {
	find := func(re *regexp.Regexp) string {
		m := re.FindStringSubmatch(review.Body)
		if m == nil {
			return ""
		}
		return html.UnescapeString(m[1])
	}
	return url.Values{"part": {part}, "patch": {find(patchField)}, "pending": {find(pending)}, "version": {find(version)}}
}

var reviewRow = regexp.MustCompile(`(?s)<span role="rowheader">(.*?)</span>\s*<span role="cell"><span class="hide">was</span><del>(.*?)</del><span class="hide">becomes</span><ins>(.*?)</ins>\s*(?:<span class="badge">(.*?)</span>)?`)

// reviewed compares the changes that a review lists.
func reviewed(t *testing.T, review consoletest.Page, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, row := range reviewRow.FindAllStringSubmatch(review.Body, -1) {
		change := row[2] + " → " + row[3]
		if row[4] != "" {
			change += " (" + row[4] + ")"
		}
		got[row[1]] = html.UnescapeString(change)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the review (-want +got):\n%s", diff)
	}
}

func TestDeploymentSettings(t *testing.T) {
	s, b := newServer(t)
	if p := get(t, b, base); !p.Contains("no deployment settings yet") {
		t.Error("the page does not say that settings are missing")
	}
	form := url.Values{
		"repository": {"https://git.example.com/web.git"}, "branch": {"main"}, "folder": {"infra"}, "commands": {"echo " + hostile + "\n\nmake"},
		"auth": {"token"}, "git-secret": {"tok-123"}, "name": {"PLAIN"}, "value": {hostile}, "do": {"add"},
		"skipInstallDependencies": {"on"}, "cache": {"on"}, "group": {"network"}, "after-failure": {"notify"}, "image": {"pulumi/pulumi:3"},
	}
	// A variable is added, and kept in the form until the settings are stored; so is the token, without its text.
	added := check(t, base, b.Post(base, form))
	if added.Contains("<dialog", "tok-123") || !added.Contains(`name="remove" value="PLAIN"`, `<option value="keep" selected>the new access token</option>`, `value="infra"`, `class="field changed"`) {
		t.Fatalf("after adding a variable: status %d: %s", added.Status, added.Body)
	}
	for name, value := range map[string]string{"pending": saved(added, "").Get("pending"), "auth": "keep", "git-secret": "", "name": "HIDDEN", "value": "hunter2", "secret": "on", "do": ""} {
		form.Set(name, value)
	}
	review := store(t, b, form)
	reviewed(t, review, map[string]string{
		"Repository": "none → https://git.example.com/web.git", "Branch": "none → main", "Folder": "the root of the repository → infra",
		"Credentials: access token": "none → [secret, new value]", "Commands before the operation": "none → echo " + hostile + "\nmake",
		"Variable PLAIN": "none → " + hostile, "Variable HIDDEN": "none → [secret, new value]",
		"Skip installing dependencies": "no → yes", "Keep the workspace for the next deployment": "no → yes", "Concurrency group": "none → network", "Commands after the operation": "none → notify (failure)", "Image": "the agent's default → pulumi/pulumi:3",
	})
	if review.Contains("hunter2") || review.Contains("tok-123") {
		t.Errorf("the review shows a secret: %s", review.Body)
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
	if p := b.Post(base+"/clear-cache", nil); p.Status != http.StatusSeeOther {
		t.Errorf("discarding the workspaces: status %d", p.Status)
	}
	page := get(t, b, base)
	if !page.Contains("Discard the workspaces", "https://git.example.com/web.git", "keep the stored access token", "HIDDEN", "by Administrator", "pulumi:deploy:org:acme:project:web:stack:prod") || page.Contains("hunter2") {
		t.Errorf("page: %s", page.Body)
	}

	// The second change keeps the credentials and the secret variable, and removes the other.
	form = url.Values{
		"repository": form["repository"], "commit": {strings.Repeat("a", 40)}, "auth": {"keep"}, "remove": {"PLAIN"}, "image": {"pulumi/pulumi:3"},
	}
	removed := b.Post(base, form)
	if removed.Contains("<dialog") || removed.Contains(`value="PLAIN"`) || !removed.Contains(`value="HIDDEN"`) {
		t.Errorf("after removing a variable: %s", removed.Body)
	}
	form.Del("remove")
	form.Set("pending", saved(removed, "").Get("pending"))
	reviewed(t, store(t, b, form), map[string]string{
		"Branch": "main → none", "Commit": "none → " + form.Get("commit"), "Folder": "infra → the root of the repository (default)",
		"Commands before the operation": "echo " + hostile + "\nmake → none", "Variable PLAIN": hostile + " → none",
		"Skip installing dependencies": "yes → no", "Keep the workspace for the next deployment": "yes → no", "Concurrency group": "network → none", "Commands after the operation": "notify (failure) → none",
	})
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

// TestPostRunCommandsAsStored checks that the form keeps post-run commands that it cannot edit, and cache options
// that it does not change.
func TestPostRunCommandsAsStored(t *testing.T) {
	s, b := newServer(t)
	const path = "/api/stacks/acme/web/prod/deployments/settings"
	for name, commands := range map[string][]m{
		"several lines":  {{"command": "if true\nthen echo a; fi", "when": "always"}},
		"equal commands": {{"command": "echo a", "when": "failure"}, {"command": "echo a", "when": "always"}},
		"mixed order":    {{"command": "echo a", "when": "failure"}, {"command": "echo b", "when": "always"}},
	} {
		s.API(http.MethodPost, path, m{"operationContext": m{"postRunCommands": commands}}, nil)
		page := get(t, b, base)
		if !page.Contains("cannot be changed here", "echo a") || page.Contains(`name="after-always"`) {
			t.Errorf("%s: the page offers to change the commands", name)
		}
		store(t, b, url.Values{"after-always": {"echo other"}, "group": {name}})
		var set struct {
			CacheOptions     any
			OperationContext struct{ PostRunCommands []m }
		}
		s.API(http.MethodGet, path, nil, &set)
		if diff := cmp.Diff(commands, set.OperationContext.PostRunCommands); diff != "" {
			t.Errorf("%s: the stored commands (-want +got):\n%s", name, diff)
		}
		if set.CacheOptions != nil {
			t.Errorf("%s: the form has added the cache options %v", name, set.CacheOptions)
		}
	}
}

// TestBranchAsStored checks that the page shows a branch without the prefix of refs, and that a save keeps it as stored
// unless the branch changes.
func TestBranchAsStored(t *testing.T) {
	s, b := newServer(t)
	settings := "/api/stacks/acme/web/prod/deployments/settings"
	s.API(http.MethodPost, settings, m{"sourceContext": m{"git": m{"repoUrl": "https://git.example.com/web.git", "branch": "refs/heads/main"}}}, nil)
	form := url.Values{"repository": {"https://git.example.com/web.git"}, "folder": {"infra"}}
	for _, step := range []struct{ shown, sent, want string }{{"main", "main", "refs/heads/main"}, {"main", "release", "release"}} {
		if p := get(t, b, base); !p.Contains(`name="branch" type="text" value="` + step.shown + `"`) {
			t.Errorf("the page does not show the branch as %s", step.shown)
		}
		form.Set("branch", step.sent)
		store(t, b, form)
		var set struct {
			SourceContext struct{ Git struct{ Branch string } }
		}
		s.API(http.MethodGet, settings, nil, &set)
		if got := set.SourceContext.Git.Branch; got != step.want {
			t.Errorf("after a save with %s the branch is %q, want %q", step.sent, got, step.want)
		}
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
	for wrong, form := range map[string]url.Values{"cron": {"kind": {"drift"}, "cron": {hostile}}, "once": {"kind": {"ttl"}, "once": {"soon"}}, "operation": {"kind": {"schedule"}, "operation": {hostile}}, "": {"kind": {hostile}}} {
		p := check(t, path, b.Post(path, form))
		if p.Status != http.StatusUnprocessableEntity || (wrong != "") != p.Contains(`aria-describedby="`+wrong+`-problem`) {
			t.Errorf("%v: status %d: %s", form, p.Status, p.Body)
		}
	}
	page := get(t, b, path)
	if !page.Contains("detect drift and remediate", "0 2 * * 1", "destroy", "once, 2 Jan 2099 03:04", "on Monday at 02:00", "never ran") {
		t.Errorf("the page lacks a schedule: %s", page.Body)
	}
	id := regexp.MustCompile(`/settings/schedules/([^/"]+)/pause`).FindStringSubmatch(page.Body)[1]
	for _, step := range []struct{ action, want string }{{"pause", "#s-paused"}, {"resume", "/pause"}, {"delete", "schedules"}} {
		p := b.Post(path+"/"+id+"/"+step.action, nil)
		if p.Status != http.StatusSeeOther {
			t.Fatalf("%s: status %d", step.action, p.Status)
		}
		undo := `action="` + path + "/" + id + `/resume" class="inline"><button class="btn small">Undo`
		if got := b.Get(p.Location()).Contains("Paused: detect drift and remediate.", undo); got != (step.action == "pause") {
			t.Errorf("%s: Undo is offered: %v", step.action, got)
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
	if p := check(t, path, b.Post(path, url.Values{"name": {hostile}, "format": {"raw"}, "url": {hostile}})); p.Status != http.StatusUnprocessableEntity || !p.Contains(`aria-describedby="name-problem`) {
		t.Errorf("an invalid webhook: status %d", p.Status)
	}
	if p := check(t, path, b.Post(path, url.Values{"name": {"x"}, "format": {"raw"}, "url": {"ftp://x"}, "filters": {"update_failed"}})); p.Status != http.StatusUnprocessableEntity || !p.Contains(`aria-describedby="url-problem`, `value="ftp://x"`, `value="update_failed"`) {
		t.Errorf("a webhook with another address: status %d: %s", p.Status, p.Body)
	}
	if p := get(t, b, path); !p.Contains("https://hooks.example.com/x", "no delivery") || p.Contains("hunter2") {
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
	if p := get(t, ada, path); !p.Contains("ada", "admin", "Remove the permission of ada", "direct", "role in acme", "default of acme for every stack", "created the stack") {
		t.Errorf("access: %s", p.Body)
	}
	s.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", m{"name": "core"}, nil)
	if p := get(t, b, path); !p.Contains(`<option value="team/core">`, `<option value="ada">`) {
		t.Errorf("the suggestions: %s", p.Body)
	}
	for name, want := range map[string]int{"team/core": http.StatusSeeOther, "core": http.StatusUnprocessableEntity, "team/none": http.StatusUnprocessableEntity} {
		p := b.Post(path, url.Values{"who": {name}, "permission": {"102"}})
		if p.Status != want || want != http.StatusSeeOther && !p.Contains(`value="`+name+`"`, `<option value="102" selected>`, `aria-describedby="who-problem`) {
			t.Errorf("giving a permission to %s: status %d: %s", name, p.Status, p.Body)
		}
	}
	if p := get(t, b, path); !p.Contains(`/acme/-/settings/teams/core"`, "Remove the permission of core") {
		t.Errorf("with a team: %s", p.Body)
	}
	reader := s.SignInWith(s.AddUser("bob", "member"))
	if p := get(t, reader, path); p.Contains("<datalist") || p.Contains("Remove the permission") || !p.Contains("ada") {
		t.Errorf("a reader sees %s", p.Body)
	}
	for _, form := range []url.Values{{"user": {hostile}, "permission": {"101"}}, {"user": {"ada"}, "permission": {"x"}}, {"permission": {"101"}}} {
		if p := check(t, path, b.Post(path, form)); p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%v: status %d", form, p.Status)
		}
	}
	p := b.Post(path, url.Values{"user": {"ada"}, "permission": {"0"}, "was": {"101"}}) // the page that sent it was old
	if p = get(t, b, p.Location()); !p.Contains("Removed the permission admin of ada.", `name="user" value="ada"`, `name="permission" value="103"`, "Undo") {
		t.Errorf("revoking: %d %s", p.Status, p.Body)
	}
	for _, made := range []string{"", "?user=ada&was=103", "?team=core&was=102", "?user=" + url.QueryEscape(hostile), "?was=102"} {
		if p := get(t, b, path+made); p.Contains("Undo") {
			t.Errorf("%s offers to undo what was not done", made)
		}
	}
}

func TestOptions(t *testing.T) {
	s, b := newServer(t)
	s.Stack("net", "eu")
	s.API(http.MethodPost, "/api/stacks/acme/net/eu/import", m{"version": 3, "deployment": m{"manifest": m{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"}, "resources": []any{
		m{"urn": "urn:pulumi:eu::net::pulumi:pulumi:StackReference::web", "custom": true, "type": "pulumi:pulumi:StackReference", "id": "acme/web/prod", "inputs": m{"name": "acme/web/prod"}},
	}}}, nil)
	get(t, b, "/acme/net/eu") // reads its references
	if p := get(t, b, base+"/options"); !p.Contains("Rename", "Delete", "1 stack reads from it.", `href="/acme/net/eu"`) {
		t.Errorf("options: %s", p.Body)
	}
	if p := check(t, base, b.Post(base+"/options/rename", url.Values{"name": {hostile}, "project": {"mine"}})); p.Status != http.StatusUnprocessableEntity || !p.Contains(`aria-describedby="name-problem"`, `value="mine"`) {
		t.Errorf("an invalid name: status %d: %s", p.Status, p.Body)
	}
	writer := s.SignInWith(s.AddUser("writer", "member"))
	if p := get(t, writer, base+"/options"); !p.Contains("Only administrators of the stack") || p.Contains("confirm") {
		t.Errorf("a member sees %s", p.Body)
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
		if p := b.Post(renamed+"/delete", url.Values{"confirm": {confirm}}); p.Status != http.StatusUnprocessableEntity || status() != http.StatusOK || !p.Contains(`aria-describedby="confirm-delete-problem"`, `value="`+confirm+`"`) {
			t.Errorf("deleting with the confirmation %q: status %d", confirm, p.Status)
		}
	}
	const form = `action="/acme/web/live/settings/options/delete"`
	s.AgeSessions(16 * time.Minute)
	if p := get(t, b, renamed); p.Contains(form) || !p.Contains("older than 15 minutes", `href="/-/login?next=`+url.QueryEscape(renamed)+`"`) {
		t.Errorf("with an old sign-in, the page does not ask for another one: %s", p.Body)
	}
	if p := b.Post(renamed+"/delete", url.Values{"confirm": {"web/live"}}); p.Status != http.StatusForbidden || status() != http.StatusOK || !p.Contains(form, `name="confirm" value="web/live"`, "Send it again") {
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

// TestFormsKeepTheirValues checks that what a visitor has entered is still there after an error, a change by others in the
// meantime, and a sign-in again.
func TestFormsKeepTheirValues(t *testing.T) {
	s, b := newServer(t)
	form := url.Values{
		"repository": {"https://git.example.com/web.git"}, "branch": {"release"}, "folder": {"../x"}, "image": {hostile}, "group": {hostile},
		"auth": {"basic"}, "git-user": {"ada"}, "name": {"TOKEN"}, "value": {"hunter2"}, "secret": {"on"}, "version": {"0"},
	}
	wrong := check(t, base, b.Post(base, form))
	if wrong.Status != http.StatusUnprocessableEntity || wrong.Contains("hunter2") || wrong.Contains("<dialog") {
		t.Errorf("a wrong form: status %d: %s", wrong.Status, wrong.Body)
	}
	for _, want := range []string{
		`value="release"`, `value="../x"`, `value="ada"`, `<option value="basic" selected>`, "Enter the user name and the password.", "2 to correct", `name="remove" value="TOKEN"`,
		`aria-describedby="folder-problem`, `aria-describedby="git-secret-problem`, `value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"`,
	} {
		if !wrong.Contains(want) {
			t.Errorf("the wrong form lacks %s: %s", want, wrong.Body)
		}
	}
	for name, value := range map[string]string{"folder": "", "image": "", "auth": "token", "git-secret": "tok", "name": "", "value": "", "pending": saved(wrong, "").Get("pending")} {
		form.Set(name, value)
	}
	review := b.Post(base, form)
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{"concurrencyGroup": "other"}, nil)
	if p := b.Post(base+"/save", saved(review, "")); p.Status != http.StatusUnprocessableEntity || !p.Contains("have changed since", `value="release"`, `name="remove" value="TOKEN"`, "the new access token") {
		t.Errorf("saving after a change by others: status %d: %s", p.Status, p.Body)
	}
	form.Set("group", "mine")
	if again := b.Post(base, form); !again.Contains("compared with the new ones", "<dialog", "<del>other</del>", "<ins>mine</ins>") {
		t.Errorf("the review after a change by others: %s", again.Body)
	}
	form.Set("value", "hunter2")
	if p := check(t, base, s.Browser().Post(base, form)); p.Status != http.StatusUnauthorized || p.Contains("hunter2") || p.Contains("Send it again") {
		t.Errorf("a secret without a session: status %d: %s", p.Status, p.Body)
	}
	form.Del("value")
	form.Del("git-secret")
	if p := check(t, base, s.Browser().Post(base, form)); p.Status != http.StatusUnauthorized || !p.Contains(`action="`+base+`"`, `name="branch" value="release"`, "Send it again") {
		t.Errorf("without a session: status %d: %s", p.Status, p.Body)
	}
	if p := s.Browser().Get(base); p.Status != http.StatusSeeOther {
		t.Errorf("reading without a session: status %d", p.Status)
	}
}

// TestReviewOmitsDefaults checks that the first review lists only what the user has set.
func TestReviewOmitsDefaults(t *testing.T) {
	s, b := newServer(t)
	var pool struct{ ID string }
	s.API(http.MethodPost, "/api/orgs/acme/agent-pools", m{"name": "eu"}, &pool)
	review := store(t, b, url.Values{"repository": {"https://git.example.com/web.git"}, "branch": {"main"}, "pool": {pool.ID}})
	reviewed(t, review, map[string]string{"Repository": "none → https://git.example.com/web.git", "Branch": "none → main", "Pool": "the organization's default → eu"})
}

// TestActivityNamesWhatChanged adds a variable by the form, which also sends all other fields.
func TestActivityNamesWhatChanged(t *testing.T) {
	s, b := newServer(t)
	s.API(http.MethodPut, "/api/stacks/acme/web/prod/deployments/settings", map[string]any{"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://git.example.com/web.git"}}}, nil)
	store(t, b, url.Values{"repository": {"https://git.example.com/web.git"}, "name": {"A"}, "value": {"b"}})
	p := get(t, b, "/acme/-/activity")
	if !p.Contains("changed deploy settings 1 variable, version 2, from console") {
		t.Errorf("the activity does not name the changes of the settings: %s", p.Body)
	}
}
