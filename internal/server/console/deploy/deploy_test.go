package deploy_test

import (
	"crypto/rand"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
)

// TestDeployForm starts each operation by the form, which says first what the deployment waits for.
func TestDeployForm(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.Stack("box", "other")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/settings", map[string]any{"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://git.invalid/box.git", "branch": "main"}}}, nil)
	b := s.SignIn()
	sees := func(when string, wants ...string) {
		t.Helper()
		p := b.Get("/acme/box/dev/deploy")
		for _, want := range wants {
			if text := html.UnescapeString(p.Body); !strings.Contains(text, want) {
				t.Errorf("%s, the form does not say %q", when, want)
			}
		}
	}
	sees("without a pool", "Waits:</strong> until a pool is chosen.", "No default pool: choose one")
	token := s.Pool()
	sees("without an agent", "Waits:</strong> no agent of pool pool is online.", "pool (no agent online)")
	agent := s.StartJob(token, "box", "other").AgentID
	sees("with a busy agent", "Waits:</strong> all agents of pool pool are busy.", "The default pool: pool (1 agent, 0 free)")
	client, err := protocol.NewClient(protocol.Options{BaseURL: s.URL, HTTPClient: &http.Client{Timeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	for capacity, text := range []string{"Waits:</strong> no agent of pool pool can start deployments.", "Waits:</strong> all agents of pool pool are busy."} {
		if _, err := client.Poll(t.Context(), token, protocol.PollRequest{AgentID: agent, SessionID: agent, PollID: rand.Text(), Capacity: capacity}); err != nil {
			t.Fatal(err)
		}
		sees(fmt.Sprint("with an agent with the capacity ", capacity), text)
	}
	group := func(stack, name string) {
		s.API(http.MethodPost, "/api/stacks/acme/box/"+stack+"/deployments/settings", map[string]any{"concurrencyGroup": name}, nil)
	}
	group("dev", "network")
	group("other", "network")
	sees("while another stack of the group runs", `Waits:</strong> for a deployment of another stack: of the stacks in the concurrency group "network"`)
	group("dev", "")

	for i, operation := range []string{"update", "preview", "refresh", "detect-drift", "destroy", "remediate-drift"} {
		form := url.Values{"operation": {operation}}
		if operation == "destroy" || operation == "remediate-drift" {
			if p := b.Get("/acme/box/dev/deploy?confirm=dev&operation=" + operation); p.Contains(`value="dev"`) {
				t.Errorf("%s: a link confirms: %s", operation, p.Body)
			}
			if p := b.Post("/acme/box/dev/deploy", form); p.Status != http.StatusUnprocessableEntity || !p.Contains("Type dev to confirm") {
				t.Errorf("%s without the stack's name: status %d", operation, p.Status)
			}
			form.Set("confirm", "dev")
		}
		p := b.Post("/acme/box/dev/deploy", form)
		if want := fmt.Sprintf("/acme/box/dev/deployments/%d", i+1); p.Status != http.StatusSeeOther || p.Location() != want {
			t.Errorf("%s: status %d to %q, want %s", operation, p.Status, p.Location(), want)
			continue
		}
		names := []string{"Update", "Preview", "Refresh", "Drift detection", "Destroy", "Put back drift"}
		if shown := b.Get(p.Location()); !shown.Contains(names[i]+", waiting for", ">AD</span> Administrator", "#click\"></use></svg>console") {
			t.Errorf("the page of the deployment does not show the operation %s and who started it", operation)
		}
	}
	sees("behind another deployment", " is before it, and is queued.")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/settings", map[string]any{}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/pause", nil, nil)
	sees("with a paused stack", "Waits:</strong> deployments of the stack are paused.")
}

// hostile is text that must stay text, with a control that changes the order of what follows.
const hostile = "<img src=x onerror=alert(1)>\u202egnp"

// TestDestroy shows what a destroy deletes before it asks for the name, and who may see it.
func TestDestroy(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	resource := func(kind, name string, more map[string]any) map[string]any {
		r := map[string]any{"urn": "urn:pulumi:dev::box::" + kind + "::" + name, "type": kind, "custom": true, "id": name}
		maps.Copy(r, more)
		return r
	}
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/import", map[string]any{"version": 3, "deployment": map[string]any{
		"manifest": map[string]any{"time": "2026-01-02T03:04:05Z", "magic": "x", "version": "v3.0.0"},
		"resources": []any{
			map[string]any{"urn": "urn:pulumi:dev::box::pulumi:pulumi:Stack::box-dev", "type": "pulumi:pulumi:Stack"},
			resource("pulumi:providers:aws", "default", nil),
			resource("aws:iam/role:Role", "role", nil),
			resource("aws:s3/bucket:Bucket", hostile, nil),
			resource("aws:sns/topic:Topic", "topic", map[string]any{"protect": true}),
			resource("aws:kms/key:Key", "kept", map[string]any{"retainOnDelete": true}),
		},
	}}, nil)
	b := s.SignIn()
	p := b.Get("/acme/box/dev/deploy?operation=destroy")
	text := html.UnescapeString(p.Body)
	for _, want := range []string{
		"Destroy 3 resources", "<strong>1 of them holds data</strong>", "(aws:s3:Bucket)", "1 resource is only forgotten", "<strong>1 is protected</strong>",
		"No other stack that you can see reads from this one.", "Type <code>dev</code> to confirm", `autofocus>Keep the stack`, "onerror=alert(1)>\ufffdgnp",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the form does not say %q", want)
		}
	}
	if p.Contains("<img src=x") || strings.Contains(text, "\u202e") {
		t.Errorf("the page contains the name of a resource as it is")
	}
	if p := b.Get("/acme/box/dev/deploy"); p.Contains("holds data", "Keep the stack") {
		t.Error("the form of an update says what a destroy deletes")
	}
	if p := b.Get("/acme/box/dev/deploy?operation=up"); p.Status != http.StatusBadRequest {
		t.Errorf("an unknown operation: status %d", p.Status)
	}

	// Of the stacks that read from this one, a visitor learns only those that the visitor sees.
	s.Stack("web", "prod")
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/import", map[string]any{"version": 3, "deployment": map[string]any{
		"manifest": map[string]any{"time": "2026-01-02T03:04:05Z", "magic": "x", "version": "v3.0.0"},
		"resources": []any{map[string]any{
			"urn": "urn:pulumi:prod::web::pulumi:pulumi:StackReference::acme/box/dev", "type": "pulumi:pulumi:StackReference", "custom": true, "id": "x",
			"inputs": map[string]any{"name": "acme/box/dev"},
		}},
	}}, nil)
	b.Get("/acme/web/prod") // reads the references
	if p := b.Get("/acme/box/dev/deploy?operation=destroy"); !p.Contains("<strong>1 stack</strong> reads from this one: web/prod.") {
		t.Errorf("the form does not name the stack that reads from it: %s", p.Body)
	}
	token := s.AddUser("ann", "member")
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
	s.API(http.MethodPut, "/api/stacks/acme/box/dev/collaborators/ann", map[string]any{"permission": 103}, nil)
	if p := s.SignInWith(token).Get("/acme/box/dev/deploy?operation=destroy"); p.Status != http.StatusOK || p.Contains("web/prod") || !p.Contains("No other stack that you can see") {
		t.Errorf("a visitor who does not see web/prod: status %d: %s", p.Status, p.Body)
	}
}

// TestFirstDeployment saves where the program is with the first deployment, and keeps what was entered if that fails.
func TestFirstDeployment(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/tags", map[string]string{"name": "vcs:kind", "value": "github.com"}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/tags", map[string]string{"name": "vcs:owner", "value": "acme"}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/tags", map[string]string{"name": "vcs:repo", "value": "web"}, nil)
	b := s.SignIn()
	const path = "/acme/box/dev/deploy"
	if p := b.Get(path); !p.Contains("Deploy box/dev for the first time", `value="https://github.com/acme/web"`, "Save and preview", "Save and update") {
		t.Errorf("the first form: %s", p.Body)
	}
	form := url.Values{"operation": {"preview"}, "repository": {"https://git.invalid/web.git"}, "branch": {"-x"}, "folder": {"infra/"}}
	if p := b.Post(path, form); p.Status != http.StatusUnprocessableEntity || !p.Contains(`&#34;-x&#34; cannot be a branch: it starts with a dash.`, `id="deploy-branch-problem"`, `value="https://git.invalid/web.git"`, `value="infra/"`) {
		t.Errorf("with a wrong branch: status %d: %s", p.Status, p.Body)
	}
	form.Set("branch", "")
	form.Set("repository", "")
	if p := b.Post(path, form); p.Status != http.StatusUnprocessableEntity || !p.Contains("Name the repository that contains the program.") {
		t.Errorf("without a repository: status %d: %s", p.Status, p.Body)
	}
	form.Set("repository", "https://git.invalid/web.git")
	form.Set("branch", "main")
	if p := b.Post(path, form); p.Status != http.StatusSeeOther || p.Location() != "/acme/box/dev/deployments/1" {
		t.Fatalf("saving and deploying: status %d to %q: %s", p.Status, p.Location(), p.Body)
	}
	var set struct {
		SourceContext struct {
			Git struct{ RepoURL, Branch, RepoDir string }
		}
	}
	s.API(http.MethodGet, "/api/stacks/acme/box/dev/deployments/settings", nil, &set)
	if g := set.SourceContext.Git; g.RepoURL != "https://git.invalid/web.git" || g.Branch != "main" || g.RepoDir != "infra" {
		t.Errorf("the settings are %+v", set)
	}
	p := b.Get(path)
	if !p.Contains("Update from main", `id="deploy-ref"`, `value="main"`, "Preview first") {
		t.Errorf("the next form: %s", p.Body)
	}
	if p := b.Post(path, form); p.Status != http.StatusUnprocessableEntity || !p.Contains("name a repository by now") {
		t.Errorf("saving again from an old form: status %d", p.Status)
	}

	// A commit and options change one deployment, and what was entered stays when another operation is chosen.
	query := url.Values{"operation": {"refresh"}, "ref": {"7be10c4"}, "asked": {"1"}, "option": {"skip-install"}}
	if p := b.Get(path + "?" + query.Encode()); !p.Contains(`value="7be10c4"`, `1 set`, `value="skip-install" checked`) {
		t.Errorf("after choosing another operation: %s", p.Body)
	}
	if p := b.Post(path, query); p.Status != http.StatusSeeOther {
		t.Fatalf("deploying a commit: status %d: %s", p.Status, p.Body)
	}
	for ref, says := range map[string]string{"a..b": "it contains &#34;..&#34;", "a b": "it contains a space", "HEAD": "git has another meaning for it", "a.lock": "a part of it begins with a dot, or ends with .lock"} {
		query.Set("ref", ref)
		if p := b.Post(path, query); p.Status != http.StatusUnprocessableEntity || !p.Contains(`id="deploy-ref-problem"`, "cannot be a branch: "+says, `aria-describedby="deploy-ref-problem deploy-ref-hint"`) {
			t.Errorf("deploying %s: status %d: %s", ref, p.Status, p.Body)
		}
		status, body := s.APIAs(s.Token, http.MethodPost, "/api/stacks/acme/box/dev/deployments", map[string]any{"operation": "update", "sourceContext": map[string]any{"git": map[string]any{"branch": ref}}}, nil)
		if status != http.StatusBadRequest || !strings.Contains(body, "cannot be a branch") {
			t.Errorf("deploying %s by the API: status %d: %s", ref, status, body)
		}
	}
	if p := b.Get("/acme/box/dev/deployments/2?view=settings"); !p.Contains("7be10c4", "skipInstallDependencies&#34;: true") {
		t.Errorf("the settings of the deployment: %s", p.Body)
	}
}
