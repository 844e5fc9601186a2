package stacksettings_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

var usedField = regexp.MustCompile(`(?s)name="environments" value="([^"]*)"`)

// TestUseEnvironments chooses environments for the jobs of a stack, as browsers without scripts do.
func TestUseEnvironments(t *testing.T) {
	s, b := newServer(t)
	for _, name := range []string{"base", "prod", "staging"} {
		s.API(http.MethodPost, "/api/esc/environments/acme", m{"project": "app", "name": name}, nil)
	}
	if p := get(t, b, base); !p.Contains(`<option value="app/prod">`, `list="environment-names"`) {
		t.Error("the page suggests no environments")
	}
	used := func(p consoletest.Page) string { return usedField.FindStringSubmatch(p.Body)[1] }
	send := func(p *consoletest.Page, form url.Values) {
		t.Helper()
		if p.Body != "" {
			form.Set("environments", used(*p))
		}
		form.Set("repository", "https://git.example.com/web.git")
		if *p = check(t, base, b.Post(base, form)); p.Status != http.StatusOK || p.Contains("<dialog") {
			t.Fatalf("status %d: %s", p.Status, p.Body)
		}
	}
	var p consoletest.Page
	send(&p, url.Values{"environment": {"app/base"}, "do": {"use"}})
	if used(p) != "app/base" || !p.Contains(`href="/acme/-/environments/app/base"`, `aria-label="Do not use app/base"`) {
		t.Fatalf("after a whole name, the form has %q", used(p))
	}
	send(&p, url.Values{"environment": {"prod"}, "do": {"use"}}) // one match
	send(&p, url.Values{"environment": {"APP @3"}, "do": {"use"}})
	if used(p) != "app/base\napp/prod" || !p.Contains("Several environments match", `name="use" value="app/staging@3"`, `value="APP @3"`) {
		t.Fatalf("after a search, the form has %q", used(p))
	}
	send(&p, url.Values{"environment": {"app"}, "use": {"app/staging@stable"}})
	if send(&p, url.Values{"environment": {"app/absent"}, "do": {"use"}}); !p.Contains("matches app/absent.") || strings.Contains(used(p), "absent") {
		t.Errorf("after the name of no environment, the form has %q", used(p))
	}
	send(&p, url.Values{"environment": {"absent " + hostile}, "do": {"use"}})
	if used(p) != "app/base\napp/prod\napp/staging@stable" || !p.Contains("No environment that you may see matches absent") {
		t.Fatalf("after a search without a match, the form has %q", used(p))
	}
	send(&p, url.Values{"unuse": {"app/prod"}})
	review := store(t, b, url.Values{"repository": {"https://git.example.com/web.git"}, "environments": {used(p)}, "environment": {"prod"}})
	reviewed(t, review, map[string]string{
		"Repository": "none → https://git.example.com/web.git", "Environments": "none → app/base\napp/staging@stable\napp/prod",
	})
	var got struct {
		OperationContext struct{ Environments []string }
	}
	s.API(http.MethodGet, "/api/stacks/acme/web/prod/deployments/settings", nil, &got)
	if names := got.OperationContext.Environments; len(names) != 3 || names[1] != "app/staging@stable" {
		t.Errorf("the stored environments are %q", names)
	}
	// What does not exist is not lost, and another field that is wrong keeps what was chosen.
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{"operationContext": m{"environments": []string{"app/gone"}}}, nil)
	if p := get(t, b, base); used(p) != "app/gone" || !p.Contains("does not exist, or you may not see it") {
		t.Errorf("a missing environment is shown as %q", used(p))
	}
	reader := s.SignInWith(s.AddUser("ann", "member"))
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 101}, nil)
	if p := get(t, reader, base); !p.Contains("<dt>Environments</dt>", "app/gone") || p.Contains(`name="environment"`) {
		t.Error("a reader sees no environments, or may choose some")
	}
	reviewed(t, store(t, b, url.Values{"repository": {"https://git.example.com/web.git"}, "environments": {""}}), map[string]string{"Environments": "app/gone → none"})
}
