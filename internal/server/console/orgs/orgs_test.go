package orgs_test

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// newSite returns a server with the organizations acme, of the first administrator and of ann, and rival, of bob and ann,
// who is a member there. It returns the access tokens of ann and bob.
func newSite(t *testing.T) (s *consoletest.Server, ann, bob string) {
	t.Helper()
	s = consoletest.New(t)
	s.API(http.MethodPost, "/api/stacks/acme/proj", map[string]any{"stackName": "dev"}, nil)
	bob = must.Get(identity.New(s.DB(), storetest.Log()).CreateUser(t.Context(), identity.NewUser{Login: "bob"}))(t)
	s.API(http.MethodPost, "/api/orgs", map[string]any{"name": "rival", "admin": "bob"}, nil)
	ann = s.AddUser("ann", identity.RoleAdmin)
	if status, body := s.APIAs(bob, http.MethodPost, "/api/orgs/rival/members/ann", map[string]any{"role": "member"}, nil); status != http.StatusOK {
		t.Fatalf("adding ann: %d %s", status, body)
	}
	return s, ann, bob
}

// switcher returns the targets of the links that switch the organization on a page.
func switcher(p consoletest.Page) string {
	menu := regexp.MustCompile(`(?s)Switch the organization.*?</details>`).FindString(p.Body)
	var hrefs []string
	for _, m := range regexp.MustCompile(`<a href="([^"]+)"`).FindAllStringSubmatch(menu, -1) {
		hrefs = append(hrefs, m[1])
	}
	return strings.Join(hrefs, " ")
}

func TestSwitch(t *testing.T) {
	s, ann, bob := newSite(t)
	b := s.SignInWith(ann)
	for path, want := range map[string]string{
		"/acme":                      "/acme /rival",
		"/acme/-/deployments":        "/acme/-/deployments /rival/-/deployments",
		"/rival/-/stacks":            "/acme/-/stacks /rival/-/stacks",
		"/acme/proj/dev":             "/acme/-/stacks /rival/-/stacks",
		"/acme/-/settings":           "/acme/-/settings /rival/-/settings",
		"/acme/-/activity":           "/acme/-/activity /rival/-/activity",
		"/user/settings":             "/acme /rival",
		"/acme/-/pools":              "/acme/-/pools /rival/-/pools",
		"/rival/-/activity/calendar": "/acme/-/activity /rival/-/activity",
		"/acme/-/settings/api":       "", // no page
	} {
		p := b.Get(path)
		if got := switcher(p); got != want && want != "" {
			t.Errorf("%s switches to %q, want %q", path, got, want)
		}
		if strings.HasPrefix(path, "/rival") && !strings.Contains(p.Body, `<a href="`+strings.Fields(want)[1]+`" aria-current="true"><span class="cut">rival</span></a>`) {
			t.Errorf("%s does not mark the current organization", path)
		}
	}
	if got := switcher(s.SignInWith(bob).Get("/rival")); got != "" {
		t.Errorf("a user with one organization switches to %q", got)
	}
	// The default organization is the one in which a user begins.
	if p := b.Get("/"); p.Location() != "/acme" {
		t.Errorf("ann begins at %q", p.Location())
	}
	if status, body := s.APIAs(ann, http.MethodPost, "/api/user/organizations/rival/default", nil, nil); status != http.StatusNoContent {
		t.Fatalf("setting the default organization: %d %s", status, body)
	}
	if p := b.Get("/"); p.Location() != "/rival" {
		t.Errorf("ann begins at %q", p.Location())
	}
}

func TestRename(t *testing.T) {
	s, ann, _ := newSite(t)
	b := s.SignInWith(ann)
	const page = "/acme/-/settings/organization"
	if p := b.Get(page); !p.Contains("identity tokens of deployments change at once", "Type acme to confirm", "1 stack", "2 members") {
		t.Errorf("the page is %s", p.Body)
	}
	for _, name := range []string{"", "api", "a/b", "-x", strings.Repeat("x", 41)} {
		if p := b.Post(page+"/rename", url.Values{"name": {name}}); p.Status != http.StatusUnprocessableEntity {
			t.Errorf("renaming to %q: status %d", name, p.Status)
		}
	}
	if p := b.Post(page+"/rename", url.Values{"name": {"Rival"}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("already exists") {
		t.Errorf("renaming to a name in use: status %d", p.Status)
	}
	if p := b.Post(page+"/rename", url.Values{"name": {"umbrella"}}); p.Location() != "/umbrella/-/settings/organization" {
		t.Fatalf("renaming leads to %q: %s", p.Location(), p.Body)
	}
	for path, want := range map[string]string{
		"/acme":                             "/umbrella",
		"/acme/-/stacks?q=a%2Fb":            "/umbrella/-/stacks?q=a%2Fb",
		"/acme/proj/dev/settings/options":   "/umbrella/proj/dev/settings/options",
		"/acme/-/settings/teams/a%20b":      "/umbrella/-/settings/teams/a%20b",
		"/umbrella/proj/dev":                "",
		"/acme/-/settings/integrations/new": "/umbrella/-/settings/integrations/new",
	} {
		if p := b.Get(path); p.Location() != want {
			t.Errorf("%s leads to %q (status %d), want %q", path, p.Location(), p.Status, want)
		}
	}
	// An open page, and the API, work under the former name.
	if p := b.Post("/acme/-/deployments/pause", nil); p.Status != http.StatusSeeOther {
		t.Errorf("a form with the former name: status %d", p.Status)
	}
	var st struct{ OrgName string }
	s.API(http.MethodGet, "/api/stacks/acme/proj/dev", nil, &st)
	if st.OrgName != "umbrella" {
		t.Errorf("the API calls the organization %q", st.OrgName)
	}
	// Collaborators, who do not see the organization itself, follow their links, too.
	if p := s.SignInWith(s.AddUser("helper", identity.RoleCollaborator)).Get("/acme/-/stacks"); p.Location() != "/umbrella/-/stacks" {
		t.Errorf("a collaborator comes to %q (status %d)", p.Location(), p.Status)
	}
}

func TestDelete(t *testing.T) {
	s, ann, _ := newSite(t)
	b := s.SignInWith(ann)
	const page = "/acme/-/settings/organization"
	if p := b.Post(page+"/delete", url.Values{"confirm": {"acm"}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("Nothing was deleted", "1 stack") {
		t.Errorf("a wrong name: status %d", p.Status)
	}
	if p := b.Post(page+"/delete", url.Values{"confirm": {"acme"}}); p.Location() != "/" {
		t.Fatalf("deleting leads to %q: %s", p.Location(), p.Body)
	}
	if p := b.Get("/"); p.Location() != "/rival" {
		t.Errorf("ann comes to %q", p.Location())
	}
	for _, path := range []string{"/acme", "/acme/proj/dev"} {
		if p := b.Get(path); p.Status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, p.Status)
		}
	}
	root := s.SignIn()
	if p := root.Get(root.Get("/-/server/audit").Location()); !p.Contains("organization.deleted", "acme") {
		t.Error("the audit log of the server does not contain the deletion")
	}
}

// TestServer uses the pages of administrators of the server, who are not members of the organization.
func TestServer(t *testing.T) {
	s, _, _ := newSite(t)
	b := s.SignIn()
	const list, rival = "/-/server/organizations", "/-/server/organizations/rival"
	if p := b.Get(list); !p.Contains("rival", "acme", "What is in an organization is only for its members") {
		t.Errorf("the list is %s", p.Body)
	}
	if p := b.Get("/rival"); p.Status != http.StatusNotFound {
		t.Errorf("the home of an organization without the administrator: status %d", p.Status)
	}
	for _, values := range [][2]string{{"much", ""}, {"0", ""}, {"", "0"}, {"", "x"}, {"-1", ""}} {
		p := b.Post(rival+"/quotas", url.Values{"storage": {values[0]}, "deployments": {values[1]}})
		if p.Status != http.StatusUnprocessableEntity || !p.Contains(`value="`+values[0]+`"`) {
			t.Errorf("the limits %q: status %d", values, p.Status)
		}
	}
	if p := b.Post(rival+"/quotas", url.Values{"storage": {"50g"}, "deployments": {"7"}}); p.Location() != rival {
		t.Fatalf("setting limits leads to %q: %s", p.Location(), p.Body)
	}
	if p := b.Get(rival); !p.Contains(`value="50g"`, `value="7"`, "0 B of 50 GiB", "0 deployments of at most 7") {
		t.Errorf("the page is %s", p.Body)
	}
	if p := b.Post(list, url.Values{"name": {"new"}, "admin": {"bob"}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("reserved") {
		t.Errorf("creating an organization with a reserved name: status %d", p.Status)
	}
	if p := b.Post(list, url.Values{"name": {"third"}, "admin": {"bob"}}); p.Location() != list+"/third" {
		t.Errorf("creating an organization leads to %q", p.Location())
	}
	if p := b.Post(rival+"/delete", url.Values{"confirm": {"rival"}}); p.Location() != list {
		t.Errorf("deleting leads to %q: %s", p.Location(), p.Body)
	}
	if p := b.Get(rival); p.Status != http.StatusNotFound {
		t.Errorf("the deleted organization: status %d", p.Status)
	}
}
