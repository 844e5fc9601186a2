package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
)

// house is a running server with the organizations first, in which an identity provider decides, and second.
type house struct {
	*consoletest.Server
	t        *testing.T
	h        *host
	settings []string // of commands
	provider *consoletest.Provider
}

const signInAtProvider = "/-/login/with/corp"

func newHouse(t *testing.T) house {
	t.Helper()
	storetest.OnSQLite(t)
	h := newHost(t)
	dir := h.dir("data", self)
	p := consoletest.NewProvider(t)
	file := p.File("    allow_groups: [engineers, guests]",
		"    roles: [{group: engineers, organization: first, role: member}]",
		"    teams: [{group: engineers, organization: first, team: core}]")
	address := "127.0.0.1:" + strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t))
	h.serve(self, "--data-dir", dir, "--listen", address, "--organization", "first", "--sign-in-file", file)
	p.Redirects = []string{"http://" + address + signInAtProvider + "/return"}
	token := strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(dir, "admin-token")))(t)))
	s := house{consoletest.At(t, "http://"+address, token), t, h, []string{"--data-dir", dir}, p}
	s.command("org", "create", "second", "--admin", "admin")
	s.API(http.MethodPost, "/api/orgs/first/teams/pulumi", map[string]string{"name": "core"}, nil)
	return s
}

func (s house) command(args ...string) string {
	s.t.Helper()
	return s.h.ok(self, append(args, s.settings...)...)
}

func (s house) refuses(code int, want string, args ...string) {
	s.t.Helper()
	s.h.refuses(self, code, want, append(args, s.settings...)...)
}

// answers fails the test unless a call has a status.
func (s house) answers(status int, token, method, path string, in, out any) {
	s.t.Helper()
	if got, body := s.APIAs(token, method, path, in, out); got != status {
		s.t.Errorf("%s %s: status %d, want %d: %s", method, path, got, status, body)
	}
}

// signIn signs a browser in as a user of the provider with groups.
func (s house) signIn(b *consoletest.Browser, groups ...string) consoletest.Page {
	s.t.Helper()
	s.provider.Claims["groups"] = groups
	return b.SignInAt(s.provider, signInAtProvider, nil)
}

// belongs fails the test unless a user has roles in the organizations and is a member of the teams of the first one.
func (s house) belongs(login string, roles map[string]string, teams string) {
	s.t.Helper()
	var users []struct {
		Login string
		Roles map[string]string
	}
	must.OK(s.t, json.Unmarshal([]byte(s.command("user", "list", "--json")), &users))
	got := map[string]string{}
	for _, u := range users {
		if u.Login == login {
			got = u.Roles
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(roles) {
		s.t.Errorf("%s has the roles %v, want %v", login, got, roles)
	}
	var in struct {
		Members []struct{ GithubLogin string }
	}
	s.API(http.MethodGet, "/api/orgs/first/teams/core", nil, &in)
	if members := fmt.Sprint(in.Members); members != teams {
		s.t.Errorf("the team has the members %s, want %s", members, teams)
	}
}

// TestLeaver runs two organizations with the program alone. A user of an identity provider joins both and leaves, while
// the user's CLI runs.
func TestLeaver(t *testing.T) {
	s := newHouse(t)
	var bob struct{ Token string }
	must.OK(t, json.Unmarshal([]byte(s.command("user", "create", "bob", "--member-of", "first", "--json")), &bob))

	// The groups decide in the first organization, and the invitation in the second one.
	grace := s.Browser()
	if p := s.signIn(grace, "engineers"); p.Status != http.StatusSeeOther {
		t.Fatalf("the first sign-in: %d %s", p.Status, p.Body)
	}
	s.belongs("grace", map[string]string{"first": "member"}, "[{grace}]")
	var made struct{ AcceptInviteURL string }
	s.API(http.MethodPost, "/api/orgs/second/invites/link", map[string]string{"role": "member"}, &made)
	link := must.Get(url.Parse(made.AcceptInviteURL))(t)
	if p := grace.Get(link.RequestURI()); p.Status != http.StatusSeeOther {
		t.Fatalf("the invitation: %d %s", p.Status, p.Body)
	}
	form := url.Values{"role": {"admin"}}
	form.Set(consoletest.SeenInvitation(made.AcceptInviteURL))
	if p := grace.Post("/-/invitation/accept", form); p.Location() != "/second" {
		t.Fatalf("joining: %d %s", p.Status, p.Body)
	}
	both := map[string]string{"first": "member", "second": "member"}
	s.belongs("grace", both, "[{grace}]")
	s.signIn(grace, "guests")
	s.belongs("grace", map[string]string{"second": "member"}, "[]")
	s.signIn(grace, "engineers")
	s.belongs("grace", both, "[{grace}]")

	// Members of one organization see nothing of the other one.
	token := s.command("token", "create", "--user", "grace")
	const stack = "/api/stacks/second/proj/dev"
	s.answers(http.StatusOK, token, http.MethodPost, "/api/stacks/second/proj", map[string]string{"stackName": "dev"}, nil)
	for _, path := range []string{stack, "/api/orgs/second/members", "/api/orgs/second/invites"} {
		s.answers(http.StatusNotFound, bob.Token, http.MethodGet, path, nil, nil)
	}
	s.answers(http.StatusOK, token, http.MethodGet, stack, nil, nil)

	// The CLI runs, and the browser is signed in.
	var created struct{ UpdateID string }
	s.answers(http.StatusOK, token, http.MethodPost, stack+"/update", map[string]any{"name": "proj", "runtime": "yaml", "options": map[string]any{}}, &created)
	run := stack + "/update/" + created.UpdateID
	var started struct{ Token string }
	s.answers(http.StatusOK, token, http.MethodPost, run, map[string]any{}, &started)
	lease := func(status int) {
		t.Helper()
		s.answers(status, "update-token "+started.Token, http.MethodPost, run+"/renew_lease", map[string]int{"duration": 60}, nil)
	}
	lease(http.StatusOK)
	if p := grace.Get("/second"); p.Status != http.StatusOK {
		t.Errorf("the console: %d", p.Status)
	}

	// The leaver.
	if got := s.command("user", "owned", "grace"); !strings.Contains(got, "proj/dev") {
		t.Errorf("grace owns %s", got)
	}
	s.refuses(program.ExitFailed, "grace owns 1 stack; name the user who takes over", "user", "delete", "grace")
	s.refuses(program.ExitFailed, "bob does not belong to second", "user", "disable", "grace", "--to", "bob")
	lease(http.StatusOK)
	if got := s.command("user", "disable", "grace", "--to", "admin"); !strings.Contains(got, "and 1 access token.") {
		t.Errorf("disabling: %s", got)
	}
	lease(http.StatusForbidden)
	s.answers(http.StatusUnauthorized, token, http.MethodGet, stack, nil, nil)
	if p := grace.Get("/second"); p.Status != http.StatusSeeOther || !strings.HasPrefix(p.Location(), "/-/login") {
		t.Errorf("the session continues: %d %s", p.Status, p.Location())
	}
	if p := s.signIn(s.Browser(), "engineers"); p.Status == http.StatusSeeOther || !p.Contains("is disabled") {
		t.Errorf("the provider lets a disabled user in: %d %s", p.Status, p.Body)
	}
	s.command("user", "delete", "grace")
	s.belongs("grace", map[string]string{}, "[]")
	s.API(http.MethodGet, stack, nil, nil)
}

// TestNoSecretInLogs checks that a server logs the secret of no invitation, whether it works or not.
func TestNoSecretInLogs(t *testing.T) {
	h := newHost(t)
	storetest.OnSQLite(t)
	dir, address := h.dir("data", self), "127.0.0.1:"+strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t))
	var log strings.Builder
	stop := h.serveTo(&log, self, "--data-dir", dir, "--listen", address, "--log-level", "debug")
	token := strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(dir, "admin-token")))(t)))
	s := consoletest.At(t, "http://"+address, token)
	var made struct{ AcceptInviteURL string }
	s.API(http.MethodPost, "/api/orgs/organization/invites/link", map[string]string{"role": "member"}, &made)
	link := must.Get(url.Parse(made.AcceptInviteURL))(t)
	for _, login := range []string{"carl", "dora"} { // the second one is too late
		b := s.Browser()
		b.Get(link.RequestURI())
		b.Get(link.Path)
		form := url.Values{"login": {login}}
		form.Set(consoletest.SeenInvitation(made.AcceptInviteURL))
		b.Post(link.Path+"/sign-up", form)
	}
	stop(syscall.SIGTERM)
	if key := link.Query().Get("key"); key == "" || strings.Contains(log.String(), key) || !strings.Contains(log.String(), "way=invitation") {
		t.Errorf("the log contains the secret %s, or lacks the requests:\n%s", key, log.String())
	}
}
