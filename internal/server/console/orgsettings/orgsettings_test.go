package orgsettings_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	base    = "/acme/-/settings"
	hostile = `"><script>alert(1)</script>`
)

// long is the longest name that tokens have.
var long = strings.Repeat("n", 100)

type settings struct {
	t *testing.T
	*consoletest.Server
	admin *consoletest.Browser
}

func newSettings(t *testing.T) *settings {
	t.Helper()
	s := consoletest.New(t)
	return &settings{t, s, s.SignIn()}
}

// get returns a page, which must exist and contain no markup of users.
func (s *settings) get(b *consoletest.Browser, path string) consoletest.Page {
	s.t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		s.t.Fatalf("GET %s: status %d: %s", path, p.Status, plain(p.Body))
	}
	return s.checked(path, p)
}

func (s *settings) checked(path string, p consoletest.Page) consoletest.Page {
	s.t.Helper()
	if strings.Contains(p.Body, "<script>alert") {
		s.t.Errorf("%s contains markup of a user", path)
	}
	return p
}

// post sends a form, which must have the expected status.
func (s *settings) post(b *consoletest.Browser, path string, want int, fields ...string) consoletest.Page {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	p := b.Post(path, form)
	if p.Status != want {
		s.t.Fatalf("POST %s %v: status %d, want %d: %s", path, fields, p.Status, want, plain(p.Body))
	}
	return s.checked(path, p)
}

// shows fails the test unless a page contains all texts.
func (s *settings) shows(p consoletest.Page, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if !p.Contains(text) {
			s.t.Errorf("the page lacks %q: %s", text, plain(p.Body))
		}
	}
}

var tags = regexp.MustCompile(`(?s)^.*<main|<[^>]*>`)

// plain returns the text of a page without its tags.
func plain(body string) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(body, " ")), " ")
}

func (s *settings) hides(p consoletest.Page, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if p.Contains(text) {
			s.t.Errorf("the page contains %q: %s", text, plain(p.Body))
		}
	}
}

func TestGeneral(t *testing.T) {
	s := newSettings(t)
	member := s.SignInWith(s.AddUser("ada", "member"))
	s.shows(s.get(s.admin, base), "2 members", "0 stacks", "0 of at most 150", "Choose a pool", "Pause all deployments", `value="102" checked`)
	s.post(s.admin, base+"/permission", http.StatusSeeOther, "permission", "101")
	var org struct{ DefaultStackPermission int }
	if s.API(http.MethodGet, "/api/orgs/acme/metadata", nil, &org); org.DefaultStackPermission != 101 {
		t.Errorf("the permission is %d, want 101", org.DefaultStackPermission)
	}
	s.shows(s.post(s.admin, base+"/permission", http.StatusUnprocessableEntity, "permission", "7"), "permission 7 is unknown")
	s.shows(s.get(member, base), "the pulumi of their image or host")
	s.post(s.admin, base+"/pulumi-version", http.StatusSeeOther, "version", " >=3.255 <4 ")
	s.shows(s.get(s.admin, base), `name="version"`, `value="&gt;=3.255 &lt;4"`)
	s.shows(s.get(member, base), "run pulumi &gt;=3.255 &lt;4.")
	s.shows(s.post(s.admin, base+"/pulumi-version", http.StatusUnprocessableEntity, "version", "newest"), "is not a version", `value="newest"`)
	s.post(s.admin, "/acme/-/deployments/pause", http.StatusSeeOther)
	s.shows(s.get(s.admin, base), "by admin", "Resume all deployments")

	p := s.get(member, base)
	s.shows(p, `permission "read" on every stack`, base+"/members", base+"/teams")
	s.hides(p, "Resume all", base+"/tokens", base+"/issuers", base+"/webhooks", base+"/permission", base+"/pulumi-version")
}

func TestMembers(t *testing.T) {
	s := newSettings(t)
	login := strings.Repeat("u", 100)
	ada, guest := s.SignInWith(s.AddUser("ada", "member")), s.AddUser(login, "")
	s.post(s.admin, base+"/members", http.StatusSeeOther, "login", login, "role", "stack-collaborator")
	s.shows(s.get(s.admin, base+"/members"), "ada", login, "Stack collaborator", "admin, you", base+"/members/ada/remove")
	s.shows(s.post(s.admin, base+"/members", http.StatusUnprocessableEntity, "login", hostile, "role", "member"), "does not exist", "workflow-server user create")
	s.shows(s.post(s.admin, base+"/members", http.StatusUnprocessableEntity, "login", "ada", "role", "member"), "already a member")
	if p := s.SignInWith(guest).Get(base); p.Status != http.StatusNotFound {
		t.Errorf("a stack collaborator gets status %d, want 404", p.Status)
	}
	s.hides(s.get(ada, base+"/members"), "remove", "Add a member")

	s.shows(s.post(s.admin, base+"/members/admin/role", http.StatusUnprocessableEntity, "role", "member"), "last administrator")
	s.post(s.admin, base+"/members/ada/role", http.StatusSeeOther, "role", "admin")
	s.shows(s.get(ada, base+"/members"), "Add a member")
	if p := s.post(ada, base+"/members/ada/remove", http.StatusSeeOther); p.Location() != "/" {
		t.Errorf("who leaves is sent to %s", p.Location())
	}
	s.hides(s.get(s.admin, base+"/members"), "Remove ada")

	for i := range 50 {
		s.AddUser(fmt.Sprintf("v%02d", i), "member")
	}
	first := s.get(s.admin, base+"/members")
	s.shows(first, "v00", "after=")
	s.shows(s.get(s.admin, base+"/members?after=v40"), "v41", "v49", "First page")
}

func TestTeams(t *testing.T) {
	s := newSettings(t)
	ada, bob := s.SignInWith(s.AddUser("ada", "member")), s.SignInWith(s.AddUser("bob", "member"))
	s.API(http.MethodPost, "/api/stacks/acme/web", map[string]string{"stackName": "prod"}, nil)
	s.shows(s.get(s.admin, base+"/teams"), "no team", "Create a team")
	s.hides(s.get(ada, base+"/teams"), "Create a team")
	s.shows(s.post(s.admin, base+"/teams", http.StatusUnprocessableEntity, "name", hostile), "is not valid")
	s.post(s.admin, base+"/teams", http.StatusSeeOther, "name", "core", "displayName", hostile, "description", long)
	s.shows(s.get(s.admin, base+"/teams"), "alert(1)", long)
	const team = base + "/teams/core"
	s.shows(s.get(s.admin, team), "no member", "no permission on a stack")

	s.post(s.admin, team+"/members", http.StatusSeeOther, "member", "ada", "action", "add")
	s.post(s.admin, team+"/members", http.StatusSeeOther, "member", "ada", "action", "promote")
	s.shows(s.post(s.admin, team+"/members", http.StatusUnprocessableEntity, "member", "nobody", "action", "add"), "not a member of acme")
	// The administrator of a team changes its members, and nothing else.
	p := s.get(ada, team)
	s.shows(p, "administrator of the team", team+"/members", team+"/edit")
	s.hides(p, team+"/stacks", team+"/tokens", team+"/delete")
	s.post(ada, team+"/members", http.StatusSeeOther, "member", "bob", "action", "add")
	s.hides(s.get(bob, team), team+"/members", team+"/edit")
	s.shows(s.post(bob, team+"/members", http.StatusUnprocessableEntity, "member", "bob", "action", "promote"), "Only administrators")
	s.shows(s.post(bob, team+"/stacks", http.StatusUnprocessableEntity, "stack", "web/prod", "permission", "103"), "needs the permission")

	s.post(s.admin, team+"/stacks", http.StatusSeeOther, "stack", "web/prod", "permission", "103")
	s.shows(s.get(s.admin, team), "/acme/web/prod", ">admin<")
	s.shows(s.post(s.admin, team+"/stacks", http.StatusUnprocessableEntity, "stack", "web/none", "permission", "103"), "does not exist")
	s.post(s.admin, team+"/stacks", http.StatusSeeOther, "stack", "web/prod", "permission", "0")
	s.shows(s.get(s.admin, team), "no permission on a stack")

	made := s.post(s.admin, team+"/tokens", http.StatusOK, "name", long, "expires", "30")
	if token := tokenText.FindString(made.Body); token == "" {
		t.Errorf("the page of the new token lacks it: %s", made.Body)
	}
	s.shows(s.get(s.admin, team), long, "/revoke")
	s.post(s.admin, team+"/delete", http.StatusSeeOther)
	if p := s.admin.Get(team); p.Status != http.StatusNotFound {
		t.Errorf("a deleted team: status %d", p.Status)
	}
}

var (
	tokenText  = regexp.MustCompile(`pul-[0-9a-f]{64}`)
	revokePath = regexp.MustCompile(base + `/tokens/[^"]*/revoke`)
)

func TestTokens(t *testing.T) {
	s := newSettings(t)
	s.shows(s.get(s.admin, base+"/tokens"), "No token")
	s.shows(s.post(s.admin, base+"/tokens", http.StatusUnprocessableEntity, "name", " "), "needs a name")
	s.shows(s.post(s.admin, base+"/tokens", http.StatusUnprocessableEntity, "name", long+"n"), "too long")
	made := s.post(s.admin, base+"/tokens", http.StatusOK, "name", hostile, "description", long, "admin", "on", "expires", "30")
	token := tokenText.FindString(made.Body)
	if made.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("a page with a token has Cache-Control %q", made.Header.Get("Cache-Control"))
	}
	if status, body := s.APIAs(token, http.MethodGet, "/api/orgs/acme/tokens", nil, nil); status != http.StatusOK {
		t.Fatalf("the new token: status %d: %s", status, body)
	}
	p := s.get(s.admin, base+"/tokens")
	s.shows(p, "alert(1)", long, "administers the organization, made by admin")
	s.hides(p, token, "expires in")

	// The list marks tokens that expire soon, and finds others.
	if err := s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		orgs, err := tx.Organizations()
		if err != nil {
			return err
		}
		for i := range 60 {
			if err := tx.InsertToken(store.Token{
				ID: fmt.Sprint("t", i), Hash: []byte{byte(i)}, Kind: store.OrgToken, OrgID: orgs[0].ID, Name: fmt.Sprintf("old-%02d", i),
				CreatedAt: time.Now().Add(-time.Hour), ExpiresAt: time.Now().Add(time.Duration(i-30) * 24 * time.Hour),
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p = s.get(s.admin, base+"/tokens")
	s.shows(p, "after=", "expires in ", "expired")
	next := regexp.MustCompile(`/acme/-/settings/tokens\?after=[^"]*`).FindString(p.Body)
	second := s.get(s.admin, next)
	s.shows(second, "First page")
	if n := strings.Count(p.Body, "<strong>old-") + strings.Count(second.Body, "<strong>old-"); n != 60 {
		t.Errorf("the pages show %d of 60 tokens", n)
	}
	p = s.get(s.admin, base+"/tokens?q=old-07")
	s.shows(p, "old-07")
	s.hides(p, "old-08")
	s.post(s.admin, revokePath.FindString(p.Body), http.StatusSeeOther)
	s.hides(s.get(s.admin, base+"/tokens?q=old-07"), "<strong>")
	if p := s.admin.Get(base + "/tokens?after=x-y"); p.Status != http.StatusBadRequest {
		t.Errorf("a damaged position: status %d", p.Status)
	}
}

func TestWebhooksOfOrganization(t *testing.T) {
	s := newSettings(t)
	s.hides(s.get(s.admin, base+"/webhooks"), "Start a deployment")
	s.post(s.admin, base+"/webhooks", http.StatusSeeOther, "name", "chat", "url", "https://hooks.invalid/x", "format", "raw", "secret", "hush-hush", "filters", "stack_created")
	s.shows(s.post(s.admin, base+"/webhooks", http.StatusUnprocessableEntity, "name", hostile, "url", "https://hooks.invalid/x", "format", "raw"), "name of a webhook has")
	p := s.get(s.admin, base+"/webhooks/chat")
	s.shows(p, "https://hooks.invalid/x", "stack_created", "[secret]")
	s.hides(p, "hush-hush")
	s.post(s.admin, base+"/webhooks/chat/disable", http.StatusSeeOther)
	s.shows(s.get(s.admin, base+"/webhooks"), "paused")
	s.post(s.admin, base+"/webhooks/chat/delete", http.StatusSeeOther)
	s.shows(s.get(s.admin, base+"/webhooks"), "no webhook")
}

// TestOldSignIn makes a session old: forms that grant access disappear, and their actions ask to sign
// in again.
func TestOldSignIn(t *testing.T) {
	s := newSettings(t)
	s.AgeSessions(time.Hour)
	for path, action := range map[string]string{
		"": "/permission", "/members": "/members", "/teams": "/teams", "/tokens": "/tokens", "/issuers": "/issuers",
		"/integrations/new?kind=github": "/integrations",
	} {
		p := s.get(s.admin, base+path)
		s.shows(p, "Sign in again", "/-/login?next="+url.QueryEscape(base+path))
		s.hides(p, `method="post" action="`+base+action+`"`)
		if p := s.admin.Post(base+action, nil); p.Status != http.StatusForbidden {
			t.Errorf("POST %s: status %d, want 403", base+action, p.Status)
		}
	}
}

// TestMembersFilter finds members by a part of the login or the name, in any case.
func TestMembersFilter(t *testing.T) {
	s := newSettings(t)
	s.AddUser("grace", "member")
	s.AddUser("under_score", "member")
	for words, want := range map[string][]string{"RAC": {"grace"}, "_": {"under_score"}, "%": nil} {
		p := s.get(s.admin, base+"/members?q="+url.QueryEscape(words))
		for _, login := range []string{"grace", "under_score"} {
			if shown := strings.Contains(p.Body, "<strong>"+login+"</strong>"); shown != slices.Contains(want, login) {
				t.Errorf("the filter %q shows %s: %t", words, login, shown)
			}
		}
		if want == nil {
			s.shows(p, "No login, name, email address or team contains")
		}
	}
}
