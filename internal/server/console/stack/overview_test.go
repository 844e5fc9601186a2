package stack_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestHead opens all pages of a stack, which have one head, one title and the right tab.
func TestHead(t *testing.T) {
	f := newFixture(t)
	f.run("update")
	f.API(http.MethodPost, "/api/stacks/acme/web/prod/tags", m{"name": "owner", "value": hostile}, nil)
	for path, tab := range map[string]string{
		"": "Overview", "/resources": "Resources", "/resources?view=tree&urn=" + url.QueryEscape(urnPrefix+"pulumi:pulumi:Stack::web-prod"): "Resources",
		"/changes": "Changes", "/runs": "Runs", "/runs?kind=preview": "Runs", "/drift": "Drift",
		"/settings": "Settings", "/settings/schedules": "Settings", "/settings/webhooks": "Settings", "/settings/access": "Settings", "/settings/options": "Settings", "/settings/triggers": "Settings",
	} {
		p := f.page(f.base + path)
		if n := strings.Count(p.Body, "<h1"); n != 1 {
			t.Errorf("%s has %d titles", path, n)
		}
		if n := strings.Count(p.Body, `id="page-object"`); n != 1 {
			t.Errorf("%s has %d heads", path, n)
		}
		_, tabs, _ := strings.Cut(p.Body, `<nav class="tabs" aria-label="Stack">`)
		tabs, _, _ = strings.Cut(tabs, "</nav>")
		_, current, _ := strings.Cut(tabs, `aria-current="page">`)
		if strings.Count(tabs, `aria-current="page"`) != 1 || !strings.HasPrefix(strings.TrimSpace(current), tab) {
			t.Errorf("%s: the tabs are %s", path, tabs)
		}
		if got := text(p.Body); !strings.Contains(got, "owner "+hostile) {
			t.Errorf("%s lacks the owner: %s", path, got)
		}
	}
	reader := f.SignInWith(f.AddUser("reader", "member"))
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 101}, nil)
	if p := reader.Get(f.base); p.Status != http.StatusOK || p.Contains(`/prod/deploy"`) || p.Contains("Change tags") {
		t.Errorf("a reader gets buttons: %s", text(p.Body))
	}
}

// TestNeighbours shows the stacks from which a stack reads to those who may see them.
func TestNeighbours(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("net", "eu")
	s.Stack("web", "prod")
	const urn = "urn:pulumi:prod::web::pulumi:pulumi:StackReference::net"
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/import", m{"version": 3, "deployment": m{"manifest": m{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"}, "resources": []any{
		m{"urn": urn, "custom": true, "type": "pulumi:pulumi:StackReference", "id": "acme/net/eu", "inputs": m{"name": "acme/net/eu"}},
	}}}, nil)
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 0}, nil)
	ann := s.AddUser("ann", "member")
	s.API(http.MethodPut, "/api/stacks/acme/web/prod/collaborators/ann", m{"permission": 101}, nil)
	if p := s.SignIn().Get("/acme/web/prod"); !p.Contains(`class="graph"`, `aria-label="web/prod reads from net/eu;"`, `aria-label="net/eu, never updated"`) {
		t.Errorf("the page lacks the neighbour: %s", text(p.Body))
	}
	if p := s.SignInWith(ann).Get("/acme/web/prod"); p.Status != http.StatusOK || p.Contains("graph") || p.Contains("net/eu,") {
		t.Errorf("a stranger to the neighbour sees it: %s", text(p.Body))
	}
}

// TestTitles checks that names with bidirectional controls do not reach the titles of elements, in which they can look
// like other names.
func TestTitles(t *testing.T) {
	const name = "a-long-name-of-\u202eexe.txt"
	f := newFixture(t)
	f.API(http.MethodPost, "/api/stacks/acme/web/prod/tags", m{"name": "owner", "value": name}, nil)
	version := f.run("update",
		step(1, "resourcePreEvent", "create", name, nil), step(2, "resOutputsEvent", "create", name, nil),
		m{"sequence": 2, "timestamp": 1700000005, "diagnosticEvent": m{"urn": urnPrefix + "pkg:index:Thing::" + name, "severity": "error", "message": name}},
	)
	must.OK(t, f.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE users SET name = ?", name)
		return err
	}))
	f.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{"operationContext": m{"environmentVariables": m{"NAME": name, "HIDDEN-" + name: m{"secret": "x"}}}}, nil)
	title := regexp.MustCompile(`title="[^"]*\x{202e}[^"]*"`)
	update := fmt.Sprintf("%s/updates/%d", f.base, version)
	for _, path := range []string{f.base, f.base + "/panel", "/acme", "/acme/-/activity", "/acme/-/activity?part=access", update + "?view=changes", update + "?view=messages", update + "?view=timeline", f.base + "/settings", f.base + "/settings/access"} {
		p := f.page(path)
		if !strings.Contains(text(p.Body), "a-long-name-of-") {
			t.Errorf("%s lacks the name: %s", path, text(p.Body))
		}
		for _, found := range title.FindAllString(p.Body, -1) {
			t.Errorf("%s contains %q", path, found)
		}
	}
}
