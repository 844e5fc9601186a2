package github

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// register registers an app as an administrator's browser does, and returns the code and the state.
func register(t *testing.T, address, manifest string) (code, state string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(url.Values{"manifest": {manifest}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	to, err := res.Location()
	if err != nil || !strings.HasPrefix(to.String(), "https://server.test/created?") {
		t.Fatalf("status %d, location %v, %v", res.StatusCode, to, err)
	}
	return to.Query().Get("code"), to.Query().Get("state")
}

func TestRegisterApp(t *testing.T) {
	w, f := forgetest.GitHubWithoutApp(t), new(Forge)
	c := vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: w.BaseURL(), Owner: "acme"}
	address, manifest, err := f.Manifest(c, vcs.NewApp{
		Name: "pulumi-acme", Home: "https://server.test", Hook: "https://server.test/workflow/github", Active: true,
		Redirect: "https://server.test/created", Setup: "https://server.test/installed", State: "a state/+",
	})
	if err != nil {
		t.Fatal(err)
	}
	code, state := register(t, address, manifest)
	if state != "a state/+" {
		t.Errorf("the state is %q", state)
	}
	if _, err := f.Exchange(t.Context(), c, "../app"); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("a wrong code: %v", err)
	}
	app, err := f.Exchange(t.Context(), c, code)
	if err != nil || app.ID != forgetest.AppID || app.Owner != "acme" || app.Name != "pulumi-acme" || len(app.Secret) < 32 {
		t.Fatalf("app %s %q of %s, %v", app.ID, app.Name, app.Owner, err)
	}
	if _, err := f.Exchange(t.Context(), c, code); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("the same code again: %v", err)
	}
	c.App = &vcs.App{ID: app.ID, PrivateKey: app.PrivateKey}
	connected, err := f.Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connected.Find(t.Context(), w.Name()); !errors.Is(err, vcs.ErrNotInstalled) {
		t.Errorf("an app that is not installed: %v", err)
	}
	found, err := f.FindApp(t.Context(), c)
	if err != nil || found.Installation != "" || found.InstallURL != w.BaseURL()+"/github-apps/pulumi-app/installations/new" {
		t.Errorf("before the installation: %+v, %v", found, err)
	}
	w.Install()
	if found, err = f.FindApp(t.Context(), c); err != nil || found.Installation != forgetest.Installation {
		t.Errorf("after the installation: %+v, %v", found, err)
	}
}

// TestManifestAddress checks the pages of the public server and of accounts.
func TestManifestAddress(t *testing.T) {
	for owner, want := range map[string]string{
		"":      "https://github.com/settings/apps/new?state=s",
		"a/c#m": "https://github.com/organizations/a%2Fc%23m/settings/apps/new?state=s",
	} {
		address, _, err := new(Forge).Manifest(vcs.Connection{Owner: owner}, vcs.NewApp{Name: "n", State: "s"})
		if err != nil || address != want {
			t.Errorf("%q: %s, %v", owner, address, err)
		}
	}
}

// TestUndelivered reads the deliveries that failed: those of this installation, once each, unless a
// later attempt succeeded.
func TestUndelivered(t *testing.T) {
	w, ok := forgetest.GitHubApp(t).(*forgetest.GitHubSite)
	if !ok {
		t.Fatal("the fake is of another type")
	}
	connected, err := new(Forge).Connect(w.Connection())
	if err != nil {
		t.Fatal(err)
	}
	c, _ := connected.(vcs.Redeliverer)
	now := time.Now().Truncate(time.Second)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes-60) * time.Minute) }
	w.Attempt("old", "push", forgetest.Installation, 502, at(0), `{"old":true}`)
	w.Attempt("first", "push", forgetest.Installation, 502, at(1), `{"first":true}`)
	w.Attempt("of another", "push", "87", 502, at(2), `{}`)
	w.Attempt("later", "push", forgetest.Installation, 503, at(3), `{}`)
	w.Attempt("fine", "push", forgetest.Installation, 202, at(4), `{}`)
	w.Attempt("later", "push", forgetest.Installation, 202, at(5), `{}`)
	w.Attempt("second", "pull_request", forgetest.Installation, 0, at(6), `{"second":true}`)
	w.Attempt("first", "push", forgetest.Installation, 500, at(7), `{"first":true}`)
	list, until, err := c.Undelivered(t.Context(), at(1))
	if err != nil || !until.Equal(at(7)) {
		t.Errorf("read until %s, %v", until, err)
	}
	var got []string
	for _, d := range list {
		got = append(got, d.Header["x-github-delivery"]+" "+d.Header["x-github-event"]+" "+string(d.Body))
		if p, err := new(Forge).Parse(d); err != nil || p.ID != d.Header["x-github-delivery"] {
			t.Errorf("a listed delivery of a form is not read: %+v, %v", p, err)
		}
	}
	if text := strings.Join(got, ", "); text != `first push {"first":true}, second pull_request {"second":true}` {
		t.Errorf("deliveries: %s", text)
	}
	if len(w.Read) != 2 {
		t.Errorf("read the contents of %s", strconv.Itoa(len(w.Read)))
	}
	for n := range 30 {
		w.Attempt("many"+strconv.Itoa(n), "push", forgetest.Installation, 502, at(8+n), `{}`)
	}
	first, until, err := c.Undelivered(t.Context(), at(8))
	if err != nil || len(first) != 20 || !until.Equal(at(28)) || first[0].Header["x-github-delivery"] != "many0" {
		t.Errorf("%d of 30 deliveries until %s, %v", len(first), until, err)
	}
	if rest, until, err := c.Undelivered(t.Context(), until); err != nil || len(rest) != 10 || !until.Equal(at(37)) {
		t.Errorf("%d other deliveries until %s, %v", len(rest), until, err)
	}
	w.Limit(http.StatusServiceUnavailable, nil)
	if _, until, err := c.Undelivered(t.Context(), at(1)); err == nil || !until.Equal(at(1)) {
		t.Errorf("a forge that fails: until %s, %v", until, err)
	}
}
