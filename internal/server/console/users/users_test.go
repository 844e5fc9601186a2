package users_test

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const all = "/-/server/users"

type site struct {
	*consoletest.Server
	t    *testing.T
	boss *consoletest.Browser
}

func newSite(t *testing.T) site {
	t.Helper()
	s := consoletest.New(t)
	return site{s, t, s.SignIn()}
}

// page returns a page, which must contain all texts.
func (s site) page(path string, texts ...string) consoletest.Page {
	s.t.Helper()
	p := s.boss.Get(path)
	s.check(path, p, http.StatusOK, texts...)
	return p
}

// post sends a form. The response must have a status and contain all texts.
func (s site) post(path string, status int, form url.Values, texts ...string) {
	s.t.Helper()
	s.check(path, s.boss.Post(path, form), status, texts...)
}

func (s site) check(path string, p consoletest.Page, status int, texts ...string) {
	s.t.Helper()
	if p.Status != status {
		s.t.Fatalf("%s: status %d, want %d: %s", path, p.Status, status, p.Body)
	}
	for _, text := range texts {
		if !p.Contains(text) {
			s.t.Errorf("%s lacks %q: %s", path, text, p.Body)
		}
	}
}

func TestList(t *testing.T) {
	s := newSite(t)
	for _, login := range []string{"ann", "bob"} {
		s.AddUser(login, "member")
	}
	s.AddUser("stranger", "")
	s.page(all, "ann", "bob", "stranger", "no organization", `title="administers the server"`, `href="/-/server/audit"`)
	if p := s.page(all+"?q=AN", "ann", "stranger"); p.Contains(">bob<") {
		t.Errorf("the filter does not apply: %s", p.Body)
	}
	s.page(all+"?q=none", "No user matches")
	for i := range 50 {
		s.AddUser("usher"+strings.Repeat("x", i), "")
	}
	next := s.page(all, "Next page")
	if next.Contains("First page") {
		t.Error("the first page leads to itself")
	}
	s.page(all+"?after=usher", "First page")
}

func TestLeaver(t *testing.T) {
	s := newSite(t)
	ann := s.AddUser("ann", "member")
	s.AddUser("bob", "member")
	browser := s.SignInWith(ann)
	if status, body := s.APIAs(ann, http.MethodPost, "/api/stacks/acme/proj", map[string]any{"stackName": "own"}, nil); status != http.StatusOK {
		t.Fatalf("creating a stack: %d %s", status, body)
	}
	const one = all + "/ann"
	s.page(one, "Role in acme", "1 session", "ann owns 1 stack", "proj/own")
	s.page(all+"/bob", "bob owns no stack", "0 sessions")
	s.page(all+"/admin", "admin is the last administrator of acme")

	// The sessions end.
	s.post(one+"/end-sessions", http.StatusSeeOther, url.Values{})
	if p := browser.Get("/acme"); p.Status != http.StatusSeeOther {
		t.Errorf("a session that has ended: %d", p.Status)
	}

	// What the administrator can correct.
	s.post(all+"/admin/disable", http.StatusUnprocessableEntity, url.Values{"to": {"bob"}}, "last administrator of the server")
	s.post(one+"/disable", http.StatusUnprocessableEntity, url.Values{"to": {"none"}}, `&#34;none&#34; does not exist`, `value="none"`)
	s.post(one+"/delete", http.StatusUnprocessableEntity, url.Values{"confirm": {"bob"}}, "This is not the login of the user.")
	s.post(one+"/delete", http.StatusUnprocessableEntity, url.Values{"confirm": {"ann"}}, "ann owns 1 stack; name the user who takes over.")
	s.post(one+"/hand-over", http.StatusUnprocessableEntity, url.Values{}, "Name the user who takes over")

	s.post(one+"/disable", http.StatusSeeOther, url.Values{})
	s.page(one, "disabled", "Enable ann")
	s.page(all, "disabled")
	if status, _ := s.APIAs(ann, http.MethodGet, "/api/user", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("the token of a disabled user: %d", status)
	}
	s.post(one+"/enable", http.StatusSeeOther, url.Values{})
	s.page(one, "Disable ann")
	s.post(one+"/hand-over", http.StatusUnprocessableEntity, url.Values{"to": {"admin"}}, "You cannot take over")
	s.post(one+"/hand-over", http.StatusSeeOther, url.Values{"to": {" bob "}})
	s.page(all+"/bob", "bob owns 1 stack")
	s.post(one+"/delete", http.StatusSeeOther, url.Values{"confirm": {"ann"}})
	if p := s.boss.Get(one); p.Status != http.StatusNotFound {
		t.Errorf("a deleted user: %d", p.Status)
	}
}

// TestHostileNames shows a user whose name is markup.
func TestHostileNames(t *testing.T) {
	s := newSite(t)
	s.Command("user-create", `{"login":"eve","name":"\"><script>alert(1)</script>","email":"<script>alert(2)</script>"}`)
	for _, path := range []string{all, all + "/eve"} {
		if p := s.page(path, "&lt;script&gt;"); p.Contains("<script>alert") {
			t.Errorf("%s contains markup of a user", path)
		}
	}
}
