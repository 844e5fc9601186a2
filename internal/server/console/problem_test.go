package console_test

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

// TestProblemPages opens pages that do not exist or that the visitor may not open: they have one title, name the nearest
// pages, and say who can give a missing right.
func TestProblemPages(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	admin, ada := s.SignIn(), s.SignInWith(s.AddUser("ada", "member"))
	for _, c := range []struct {
		browser *consoletest.Browser
		path    string
		status  int
		shows   []string
		hides   string
	}{
		{ada, "/acme/-/settings/tokens", http.StatusForbidden, []string{"To get the right, ask an administrator of acme: admin.", `href="/acme/-/stacks"`, `href="/acme"`}, "Start page"},
		{ada, "/-/server", http.StatusForbidden, []string{"To get the right, ask an administrator of the server.", "Start page"}, ": admin."},
		{ada, "/acme/web/none", http.StatusNotFound, []string{"does not exist", `href="/acme/web"`, "Stacks of web", "Request id"}, "can give you"},
		{ada, "/acme/web/prod/updates/99", http.StatusNotFound, []string{`href="/acme/web/prod"`, "Open web/prod"}, "can give you"},
		{ada, "/secret/web/none", http.StatusNotFound, []string{"Start page"}, `href="/secret`},
		{admin, "/acme/-/settings/teams/%3Cscript%3Ealert(1)", http.StatusNotFound, []string{"&lt;script&gt;alert(1)"}, "<script>alert"},
	} {
		p := c.browser.Get(c.path)
		if p.Status != c.status || strings.Count(p.Body, "<h1") != 1 || strings.Contains(p.Body, c.hides) {
			t.Errorf("%s: status %d with %d titles: %s", c.path, p.Status, strings.Count(p.Body, "<h1"), p.Body)
		}
		for _, text := range c.shows {
			if !p.Contains(text) {
				t.Errorf("%s lacks %q: %s", c.path, text, p.Body)
			}
		}
	}
}
