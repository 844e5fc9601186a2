package estate_test

import (
	"bytes"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const hostile = `<script>alert(1)</script>"'&<img src=x onerror=alert(2)>` + "\u202egnp.exe"

type m = map[string]any

type fixture struct {
	*consoletest.Server
	t       *testing.T
	browser *consoletest.Browser
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := consoletest.New(t)
	return &fixture{s, t, s.SignIn()}
}

// stack creates a stack with tags.
func (f *fixture) stack(name string, tags m) {
	f.t.Helper()
	project, stack, _ := strings.Cut(name, "/")
	f.API(http.MethodPost, "/api/stacks/acme/"+project, m{"stackName": stack, "tags": tags}, nil)
}

// update runs an update, which ends with a status unless it is "".
func (f *fixture) update(token, name, kind, message, status string) (id string) {
	f.t.Helper()
	path := "/api/stacks/acme/" + name + "/" + kind
	var made struct{ UpdateID string }
	call := func(path string, body m, out any) {
		f.t.Helper()
		if code, answer := f.APIAs(token, http.MethodPost, path, body, out); code >= http.StatusMultipleChoices {
			f.t.Fatalf("POST %s: status %d: %s", path, code, answer)
		}
	}
	call(path, m{"name": "web", "runtime": "go", "metadata": m{"message": message}}, &made)
	call(path+"/"+made.UpdateID, m{}, nil)
	if status == "cancelled" {
		call(path+"/"+made.UpdateID+"/cancel", m{}, nil)
	}
	return path + "/" + made.UpdateID
}

var (
	listRow = regexp.MustCompile(`(?s)<div class="row(?: grp)?" role="row" id=.*?</div>`)
	chipRow = regexp.MustCompile(`(?s)<a class="chip".*?</a>`)
	values  = regexp.MustCompile(` value="[^"]*"`) // what forms send is not shown
	tag     = regexp.MustCompile(`(?s)<[^>]*>`)
)

func plain(markup string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tag.ReplaceAllString(markup, " "))), " ")
}

func (f *fixture) get(path string) consoletest.Page {
	f.t.Helper()
	p := f.browser.Get(path)
	if p.Status != http.StatusOK {
		f.t.Fatalf("GET %s: status %d: %s", path, p.Status, plain(p.Body))
	}
	for _, bad := range []string{"<script>alert", "<img", "\u202e"} {
		if strings.Contains(values.ReplaceAllString(p.Body, ""), bad) {
			f.t.Errorf("%s contains %q", path, bad)
		}
	}
	return p
}

// rows returns the rows of the list as text.
func (f *fixture) rows(path string) []string {
	f.t.Helper()
	var list []string
	for _, row := range listRow.FindAllString(f.get(path).Body, -1) {
		list = append(list, plain(row))
	}
	return list
}

func (f *fixture) check(when, path string, want ...string) {
	f.t.Helper()
	got := f.rows(path)
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		f.t.Errorf("%s, %s shows %q, want %q", when, path, got, want)
	}
}

const path = "/acme/-/stacks"

// TestStates follows a stack through an update of a client, a deployment and the detection of drift.
func TestStates(t *testing.T) {
	f := newFixture(t)
	if p := f.get(path); !p.Contains("No stack yet", "pulumi login "+f.URL) {
		t.Errorf("without stacks: %s", plain(p.Body))
	}
	f.Stack("web", "prod")
	f.check("before a run", path, "web 1 0", "never updated prod Not updated yet not checked never 0")
	ada := f.AddUser("ada", "admin")
	f.update(ada, "web/prod", "preview", "a preview", "")
	f.check("during a preview", path, "web 1 0", "never updated prod Not updated yet")
	f.update(ada, "web/prod", "update", "Add a queue", "cancelled")
	f.check("after a cancelled update", path, "web 1 failed 1 0", "failed prod Add a queue AD ada not checked")
	running := f.update(ada, "web/prod", "update", hostile, "")
	f.check("during an update", path, "web 1 running 1 0", "running prod "+strings.ReplaceAll(hostile, "\u202e", "")+" locked AD ada")
	f.API(http.MethodPost, running+"/cancel", m{}, nil)

	pool := f.Pool()
	job := f.StartOperation(pool, "web", "prod", workflow.OperationUpdate)
	f.check("during a deployment", path, "running 1", "running prod Deployment #1: update")
	job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	f.check("after a deployment", path, "web 1 0", "as declared prod Deployment #1: update")
	if p := f.get(path); !p.Contains(`aria-label="last 3 runs: 1 succeeded, 0 failed, 2 cancelled"`, `<rect class="c" x="85"`) {
		t.Errorf("the last runs are missing: %s", p.Body)
	}
	f.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{"sourceContext": m{"git": m{"repoUrl": "https://git.example.com/web.git", "branch": "main"}}}, nil)
	f.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/pause", m{}, nil)
	f.check("while paused", path, "web 1 0", "paused prod Deployment #1: update paused")
}

// TestFoundDrift checks that found drift is a state of its own on all pages, and no failure.
func TestFoundDrift(t *testing.T) {
	f := newFixture(t)
	pool := f.Pool()
	f.Stack("web", "prod")
	job := f.StartOperation(pool, "web", "prod", workflow.OperationDetectDrift)
	var made struct{ UpdateID string }
	var started struct{ Token string }
	call := func(authorization, path string, body m, out any) {
		t.Helper()
		if status, answer := f.APIAs(authorization, http.MethodPost, path, body, out); status >= http.StatusMultipleChoices {
			t.Fatalf("POST %s: status %d: %s", path, status, answer)
		}
	}
	refresh := "/api/stacks/acme/web/prod/refresh"
	call(job.Token, refresh, m{"name": "web", "runtime": "go", "metadata": m{}, "options": m{"dryRun": true}}, &made)
	call(job.Token, refresh+"/"+made.UpdateID, m{}, &started)
	f.asUpdate(started.Token, refresh+"/"+made.UpdateID+"/events/batch", m{"events": []m{{"sequence": 0, "timestamp": 1, "summaryEvent": m{"resourceChanges": m{"update": 2, "delete": 1, "same": 4}}}}})
	f.asUpdate(started.Token, refresh+"/"+made.UpdateID+"/complete", m{"status": "succeeded"})
	exit := 7
	for step := range 3 {
		job.Step(step, workflow.StepRunning, nil)
	}
	job.Step(2, workflow.StepFailed, &exit)
	job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &exit})

	f.check("after the detection", path, "web 1 drift found 1", "drift found prod Not updated yet ~2 −1 never")
	for _, page := range []string{"/acme", "/acme/-/deployments", "/acme/-/deployments?status=drift", "/acme/web/prod/runs", "/acme/web/prod/deployments/1", path} {
		body, _, _ := strings.Cut(f.get(page).Body, `aria-labelledby="h-est"`) // the numbers of all states follow
		if _, rows, isList := strings.Cut(body, " data-held>"); isList {       // the filters name all states
			body = rows
		}
		if text := plain(body); !strings.Contains(strings.ToLower(text), "drift found") || strings.Contains(text, "exit code") || strings.Contains(body, "st-failed") {
			t.Errorf("%s does not say that drift was found: %s", page, text)
		}
	}
	if p := f.get("/acme/-/deployments?status=failed"); !p.Contains("No deployment found") {
		t.Error("a detection that found drift is listed as failed")
	}
	// Clients read what they always have.
	var deployment struct{ Status, Reason string }
	f.API(http.MethodGet, "/api/stacks/acme/web/prod/deployments/version/1", nil, &deployment)
	if deployment.Status != "failed" {
		t.Errorf("the API answers %+v", deployment)
	}
}

// TestViews filters, sorts and groups the list by its URL, and stars stacks with the form.
func TestViews(t *testing.T) {
	f := newFixture(t)
	f.stack("payments/prod", m{"owner": "core", "env": "prod", "vcs:owner": "acme", "vcs:repo": "payments"})
	f.stack("payments/dev", m{"owner": "core", "env": "dev"})
	f.stack("web/prod", m{"env": "prod", "note": hostile})
	f.update(f.Token, "web/prod", "update", "x", "cancelled")
	const dev, prod, web = "payments/ dev", "payments/ prod", "web/ prod"
	f.check("by default", path, "web 1 failed 1", "failed prod", "payments 2", "dev", "prod")
	f.check("ungrouped", path+"?group=none", web, dev, prod)
	f.check("by name", path+"?group=none&sort=name", dev, prod, web)
	f.check("by owner", path+"?group=owner", "core 2", dev, prod, "No owner 1", web)
	f.check("never updated", path+"?state=never&group=none", dev, prod)
	f.check("by repository", path+"?group=repository", "acme/payments 1", prod, "No repository 2", web, dev)
	f.check("by tag", path+"?group=tag:env", "prod 2", web, prod, "dev 1", dev)
	f.check("by a hostile tag", path+"?group=tag:note", strings.ReplaceAll(hostile, "\u202e", "\ufffd")+" 1", web, "Without the tag note 2", dev, prod)
	f.check("words", path+"?q=PROD+pay", "payments 1", "prod")
	f.check("tag", path+"?tag=env:prod&group=none", web, prod)
	f.check("owner", path+"?owner=core&group=none", dev, prod)
	f.check("state", path+"?state=failed", "web 1", "prod")
	f.check("drift", path+"?drift=never&group=none", web, dev, prod)
	f.check("project", "/acme/web", "web 1", "prod")
	for _, wrong := range []string{"?state=x", "?drift=x", "?group=x", "?sort=x", "?q=" + strings.Repeat("a", 201)} {
		if p := f.browser.Get(path + wrong); p.Status != http.StatusBadRequest {
			t.Errorf("%s: status %d", wrong, p.Status)
		}
	}
	if p := f.get(path + "?q=none"); !p.Contains("No stack found", `href="/acme/-/stacks">Show all`) {
		t.Errorf("nothing found: %s", plain(p.Body))
	}
	var chips []string
	for _, c := range chipRow.FindAllString(f.get(path+"?owner=core").Body, -1) {
		chips = append(chips, plain(c))
	}
	if got := strings.Join(chips, ", "); got != "All 2, Starred 0" {
		t.Errorf("chips: %s", got)
	}

	star := func(name, stack string) {
		t.Helper()
		if p := f.browser.Post(path+"/star", url.Values{name: {stack}}); p.Status != http.StatusSeeOther {
			t.Fatalf("%s %s: status %d: %s", name, stack, p.Status, plain(p.Body))
		}
	}
	star("star", "web/prod")
	f.check("starred", path+"?star=on", "web 1", "prod")
	if p := f.get(path); !p.Contains(`name="unstar" aria-pressed="true" value="web/prod"`) {
		t.Error("the star is not shown")
	}
	if p := f.get("/acme"); !p.Contains(`href="/acme/web/prod" title="web/prod"`) {
		t.Error("the starred stack is not in the navigation")
	}
	star("unstar", "web/prod")
	f.check("after the star was removed", path+"?star=on")
	if p := f.browser.Post(path+"/star", url.Values{"star": {"web/none"}}); p.Status != http.StatusNotFound {
		t.Errorf("starring a stack that does not exist: status %d", p.Status)
	}
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 0}, nil)
	stranger := f.SignInWith(f.AddUser("eve", "member"))
	if p := stranger.Get(path); !p.Contains("You can see no stack") && !p.Contains("No stack yet") || p.Contains("web") {
		t.Errorf("a member without permissions sees %s", plain(p.Body))
	}
	if p := stranger.Post(path+"/star", url.Values{"star": {"web/prod"}}); p.Status != http.StatusNotFound {
		t.Errorf("a member without permissions stars a stack: status %d", p.Status)
	}
}

func (f *fixture) asUpdate(token, path string, body m) {
	f.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.URL+path, bytes.NewReader(encoded))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "update-token "+token)
	req.Header.Set("Content-Type", "application/json")
	if p := f.Browser().Do(req); p.Status >= http.StatusMultipleChoices {
		f.t.Fatalf("POST %s: status %d: %s", path, p.Status, p.Body)
	}
}
