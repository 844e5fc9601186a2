package githubapp_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/forgetest"
)

const base = "/acme/-/settings/integrations/github-app"

type integration struct {
	ID, Name, AppID, Owner, Problem, Events, WebhookURL string
	Valid, HasCredentials                               bool
	InstallationID                                      int64
}

type flow struct {
	t     *testing.T
	s     *consoletest.Server
	forge *forgetest.GitHubSite
}

func newFlow(t *testing.T) *flow {
	t.Helper()
	return &flow{t, consoletest.New(t), forgetest.GitHubWithoutApp(t)}
}

func (f *flow) integrations() []integration {
	f.t.Helper()
	var list struct{ Integrations []integration }
	f.s.API("GET", "/api/console/orgs/acme/integrations/github-enterprise", nil, &list)
	return list.Integrations
}

var action = regexp.MustCompile(`<form method="post" action="([^"]*)"[^>]*><input type="hidden" name="manifest" value="([^"]*)"`)

// start sends the first form, and returns the form for the forge.
func (f *flow) start(b *consoletest.Browser, name string) (address, manifest string) {
	f.t.Helper()
	p := b.Post(base, url.Values{"name": {name}, "owner": {"team"}, "baseUrl": {f.forge.BaseURL()}, "hook": {"on"}})
	m := action.FindStringSubmatch(p.Body)
	if p.Status != http.StatusOK || m == nil {
		f.t.Fatalf("status %d: %s", p.Status, p.Body)
	}
	if policy := p.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self' "+f.forge.BaseURL()+";") {
		f.t.Errorf("the browser does not send the form: %s", policy)
	}
	return html.UnescapeString(m[1]), html.UnescapeString(m[2])
}

// confirm registers the app at the forge, and returns the page to which the forge sends the browser.
func (f *flow) confirm(address, manifest string) string {
	f.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, address, strings.NewReader(url.Values{"manifest": {manifest}}.Encode()))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	res.Body.Close()
	to, ok := strings.CutPrefix(res.Header.Get("Location"), f.s.URL)
	if !ok {
		f.t.Fatalf("the forge answered with status %d and leads to %s", res.StatusCode, res.Header.Get("Location"))
	}
	return to
}

// TestRegister registers and installs an app, as an administrator does.
func TestRegister(t *testing.T) {
	f := newFlow(t)
	b := f.s.SignIn()
	var answer struct{ InstallationURL string }
	f.s.API("POST", "/api/console/orgs/acme/integrations/github", map[string]any{}, &answer)
	if answer.InstallationURL != f.s.URL+base {
		t.Errorf("the API leads to %q", answer.InstallationURL)
	}
	if p := b.Get(base); p.Status != http.StatusOK || !p.Contains("pulumi-acme", "Continue") {
		t.Errorf("form: status %d: %s", p.Status, p.Body)
	}
	p := b.Get(f.confirm(f.start(b, "pulumi-acme")))
	if p.Status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", p.Status, p.Body)
	}
	made := f.integrations()
	if len(made) != 1 || made[0].Name != "pulumi-acme" || made[0].AppID != forgetest.AppID || made[0].Owner != "team" || !made[0].HasCredentials ||
		!strings.HasSuffix(made[0].WebhookURL, "/workflow/github") {
		t.Fatalf("integrations %+v", made)
	}
	app := p.Location()
	if p := b.Get(app); !p.Contains("not installed yet", f.forge.BaseURL()+"/github-apps/pulumi-app/installations/new") {
		t.Errorf("before the installation: %s", p.Body)
	}
	if made = f.integrations(); made[0].Valid || !strings.Contains(made[0].Problem, "not installed") {
		t.Errorf("before the installation: %+v", made)
	}
	f.forge.Install()
	// What the address says is not believed.
	if p := b.Get(base + "/installed?installation_id=666&setup_action=install"); p.Location() != app {
		t.Errorf("after the installation: status %d, location %q", p.Status, p.Location())
	}
	if p := b.Get(app); !p.Contains("is installed") {
		t.Errorf("after the installation: %s", p.Body)
	}
	if made = f.integrations(); made[0].InstallationID != 88 || !made[0].Valid {
		t.Errorf("after the installation: %+v", made)
	}
	var probe struct{ Installed bool }
	f.s.API("GET", "/api/console/orgs/acme/integrations/github-app", nil, &probe)
	if !probe.Installed {
		t.Error("the CLI reads that no app is installed")
	}
	// A second app of the same name is not lost.
	if p := b.Get(f.confirm(f.start(b, "pulumi-acme"))); p.Status != http.StatusSeeOther || len(f.integrations()) != 2 {
		t.Errorf("a second app: status %d, integrations %+v", p.Status, f.integrations())
	}
}

// TestOnlyTheSameSession checks that a code is exchanged only for the browser that started, once, and
// only for administrators.
func TestOnlyTheSameSession(t *testing.T) {
	f := newFlow(t)
	b, other := f.s.SignIn(), f.s.SignIn()
	refused := func(what string, b *consoletest.Browser, path string, status int) {
		t.Helper()
		if p := b.Get(path); p.Status != status || len(f.integrations()) != 0 {
			t.Errorf("%s: status %d, want %d; integrations %+v", what, p.Status, status, f.integrations())
		}
	}
	created := f.confirm(f.start(b, "app"))
	refused("another session of the same user", other, created, http.StatusOK)
	refused("no session", f.s.Browser(), created, http.StatusSeeOther)
	code := created[strings.Index(created, "code="):strings.Index(created, "&state")]
	refused("no state", b, base+"/created?"+code, http.StatusOK)
	refused("a forged state", b, base+"/created?"+code+"&state=AAAA", http.StatusOK)
	refused("another code", b, strings.Replace(created, code, "code=guess", 1), http.StatusOK)
	member := f.s.SignInWith(f.s.AddUser("ann", "member"))
	refused("a member", member, created, http.StatusForbidden)
	if p := member.Post(base, url.Values{"name": {"x"}}); p.Status != http.StatusForbidden {
		t.Errorf("a member starts: status %d", p.Status)
	}
	for _, form := range []url.Values{
		{"name": {""}}, {"name": {strings.Repeat("n", 35)}}, {"name": {"x"}, "baseUrl": {"http://github.example"}}, {"name": {"x"}, "baseUrl": {"https://a; script-src *"}},
	} {
		if p := b.Post(base, form); p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%v: status %d", form, p.Status)
		}
	}
	f.s.AgeSessions(time.Hour)
	if p := b.Post(base, url.Values{"name": {"x"}}); p.Status != http.StatusForbidden {
		t.Errorf("an old sign-in: status %d", p.Status)
	}
	if p := b.Get(created); p.Status != http.StatusSeeOther || len(f.integrations()) != 1 {
		t.Errorf("the browser that started: status %d: %s", p.Status, p.Body)
	}
	if p := b.Get(created); p.Status != http.StatusOK || len(f.integrations()) != 1 {
		t.Errorf("the same code again: status %d, integrations %+v", p.Status, f.integrations())
	}
}
