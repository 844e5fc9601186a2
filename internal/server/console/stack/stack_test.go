package stack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

const hostile = `<script>alert(1)</script>"'&<img src=x onerror=alert(2)>`

type m = map[string]any

// fixture is a server with a stack that two updates have changed.
type fixture struct {
	*consoletest.Server
	t       *testing.T
	base    string
	browser *consoletest.Browser
}

const urnPrefix = "urn:pulumi:prod::web::"

// newFixture imports a state, and runs an update that sends events.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Server: consoletest.New(t), t: t, base: "/acme/web/prod"}
	f.API(http.MethodPost, "/api/stacks/acme/web", m{"stackName": "prod"}, nil)
	secret := m{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "c2VjcmV0"}
	f.API(http.MethodPost, "/api/stacks/acme/web/prod/import", m{"version": 3, "deployment": m{
		"manifest": m{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"},
		"resources": []any{
			m{"urn": urnPrefix + "pulumi:pulumi:Stack::web-prod", "custom": false, "type": "pulumi:pulumi:Stack", "outputs": m{
				"url": "https://example.com", "password": secret, "evil": hostile,
				"readme": "# Title\n\n" + hostile + "\n\n[link](https://example.com/x) [bad](javascript:alert(1)) ![pic](https://evil.example/p.png) <https://auto.example>",
			}},
			m{
				"urn": urnPrefix + "pkg:index:Thing::" + hostile, "custom": true, "type": "pkg:index:Thing", "id": hostile,
				"parent": urnPrefix + "pulumi:pulumi:Stack::web-prod", "inputs": m{"k": hostile, "s": secret},
			},
		},
	}}, nil)
	f.browser = f.SignIn()
	return f
}

// run runs an update that sends events, and returns its version.
func (f *fixture) run(kind string, events ...m) int {
	f.t.Helper()
	var made struct{ UpdateID string }
	path := "/api/stacks/acme/web/prod/" + kind
	f.API(http.MethodPost, path, m{"name": "web", "runtime": "go", "metadata": m{"message": hostile, "environment": m{"git.head": hostile}}, "config": m{
		"web:plain": m{"string": hostile}, "web:hidden": m{"string": "opaque-ciphertext", "secret": true},
	}}, &made)
	var started struct {
		Token   string
		Version int
	}
	f.API(http.MethodPost, path+"/"+made.UpdateID, m{}, &started)
	if len(events) > 0 {
		f.asUpdate(started.Token, path+"/"+made.UpdateID+"/events/batch", m{"events": events})
	}
	f.asUpdate(started.Token, path+"/"+made.UpdateID+"/complete", m{"status": "succeeded"})
	return started.Version
}

func (f *fixture) asUpdate(token, path string, body m) {
	f.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.URL+path, bytes.NewReader(encoded))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "update-token "+token)
	req.Header.Set("Content-Type", "application/json")
	if p := f.Browser().Do(req); p.Status >= http.StatusMultipleChoices {
		f.t.Fatalf("POST %s: status %d: %s", path, p.Status, p.Body)
	}
}

func (f *fixture) page(path string) consoletest.Page {
	f.t.Helper()
	p := f.browser.Get(path)
	if p.Status != http.StatusOK {
		f.t.Fatalf("GET %s: status %d: %s", path, p.Status, text(p.Body))
	}
	f.safe(path, p)
	return p
}

// safe checks that no page contains markup from values of users.
func (f *fixture) safe(path string, p consoletest.Page) {
	f.t.Helper()
	for _, bad := range []string{"<script>alert", "<img", `"javascript:`, "opaque-ciphertext", "c2VjcmV0"} {
		if strings.Contains(p.Body, bad) {
			f.t.Errorf("%s contains %q", path, bad)
		}
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text returns the text of a page on one line.
func text(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, " "))), " ")
}

func step(seq int, kind, op, name string, more m) m {
	meta := m{"op": op, "urn": urnPrefix + "pkg:index:Thing::" + name, "type": "pkg:index:Thing"}
	maps.Copy(meta, more)
	return m{"sequence": seq - 1, "timestamp": 1700000000 + seq, kind: m{"metadata": meta}}
}

func TestUpdatePages(t *testing.T) {
	f := newFixture(t)
	version := f.run("update",
		step(1, "resourcePreEvent", "update", "bucket", m{
			"detailedDiff": m{"zone": m{"diffKind": "update-replace"}, "size": m{"diffKind": "update"}},
			"old":          m{"inputs": m{"zone": "a", "size": 1}}, "new": m{"inputs": m{"zone": hostile, "size": 2}},
		}),
		step(4, "resOutputsEvent", "update", "bucket", nil),
		step(2, "resourcePreEvent", "create", hostile, nil),
		step(3, "resOpFailedEvent", "create", hostile, nil),
		m{"sequence": 4, "timestamp": 1700000005, "diagnosticEvent": m{"urn": urnPrefix + "pkg:index:Thing::" + hostile, "severity": "error", "message": hostile}},
		m{"sequence": 5, "timestamp": 1700000006, "summaryEvent": m{"resourceChanges": m{"update": 1, "create": 1, "same": 3}, "durationSeconds": 5}},
	)
	base := fmt.Sprintf("%s/updates/%d", f.base, version)
	for view, want := range map[string][]string{
		"changes":     {"Changed 2", "Deletes and replaces 0", "All 2", "bucket", "failed", hostile},
		"diff":        {"Could not be created", "error", hostile, "v" + strconv.Itoa(version) + " failed on it"},
		"messages":    {"error", hostile},
		"timeline":    {"pulumi update", "bucket", "3s", "in whole seconds"},
		"config":      {"web:plain", hostile, "[secret]"},
		"environment": {"git.head", hostile},
	} {
		got := text(f.page(base + "?view=" + view).Body)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q is missing in %s", view, w, got)
			}
		}
	}
	one := text(f.page(base + "?view=diff&urn=" + url.QueryEscape(urnPrefix+"pkg:index:Thing::bucket")).Body)
	for _, want := range []string{"Updated", "zone replaces", " a ", "size", " 1 2 ", fmt.Sprintf("v%d changed zone, size", version), "were not searched"} {
		if !strings.Contains(one, want) {
			t.Errorf("the diff of one resource lacks %q: %s", want, one)
		}
	}
	if got := f.browser.Get(f.base + "/updates/99"); got.Status != http.StatusNotFound {
		t.Errorf("a missing update: status %d", got.Status)
	}
	if got := text(f.page(f.base + "/runs").Body); !strings.Contains(got, fmt.Sprint("v", version)) {
		t.Errorf("activity: %s", got)
	}
}

func TestLongTree(t *testing.T) {
	f := newFixture(t)
	var events []m
	for i := range 1200 {
		events = append(events, step(i+1, "resourcePreEvent", "create", fmt.Sprintf("thing-%04d", i), nil))
	}
	base := fmt.Sprintf("%s/updates/%d", f.base, f.run("update", events...))
	first, last := f.page(base), f.page(base+"?row=1000")
	if n := strings.Count(first.Body, "data-depth="); n != 500 {
		t.Errorf("the first page has %d rows", n)
	}
	if n := strings.Count(last.Body, "data-depth="); n != 200 || !last.Contains("thing-1199") {
		t.Errorf("the last page has %d rows", n)
	}
	if !first.Contains("Next rows") || last.Contains("Next rows") {
		t.Error("the links between the pages are wrong")
	}
}

// TestSameAsAPI compares the pages with the answers of the API.
func TestSameAsAPI(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		f.run("update", step(1, "resourcePreEvent", "same", "bucket", nil))
	}
	var st struct{ Version int }
	f.API(http.MethodGet, "/api/stacks/acme/web/prod", nil, &st)
	var history struct {
		Updates []struct {
			Kind, Result string
			Version      int
		}
	}
	f.API(http.MethodGet, "/api/stacks/acme/web/prod/updates", nil, &history)
	var state struct {
		Deployment struct {
			Resources []struct {
				URN     string
				Outputs map[string]any
			}
		}
	}
	f.API(http.MethodGet, "/api/stacks/acme/web/prod/export", nil, &state)

	page := f.page(f.base)
	overview := text(page.Body)
	if want := fmt.Sprintf(`title="%s v%d"`, history.Updates[0].Kind, st.Version); !page.Contains(want) {
		t.Errorf("the overview lacks %q: %s", want, overview)
	}
	if want := fmt.Sprintf("%d resources", len(state.Deployment.Resources)); !strings.Contains(overview, want) {
		t.Errorf("the overview lacks %q", want)
	}
	for name, value := range state.Deployment.Resources[0].Outputs {
		shown, plain := value.(string)
		if !plain {
			shown = "••••••••"
		}
		if name == "readme" {
			continue // it is rendered
		}
		if !strings.Contains(overview, name) || !strings.Contains(overview, shown) {
			t.Errorf("the overview lacks the output %s = %s", name, shown)
		}
	}
	activity := f.page(f.base + "/runs").Body
	rows := regexp.MustCompile(`href="/acme/web/prod/updates/(\d+)" title="(\w+) \d+">`).FindAllStringSubmatch(activity, -1)
	if len(rows) != len(history.Updates) {
		t.Fatalf("the page lists %d updates, the API %d", len(rows), len(history.Updates))
	}
	for i, u := range history.Updates {
		if rows[i][1] != fmt.Sprint(u.Version) || rows[i][2] != u.Kind {
			t.Errorf("row %d: %s %s, API %s %d", i, rows[i][2], rows[i][1], u.Kind, u.Version)
		}
		if detail := text(f.page(fmt.Sprintf("%s/updates/%d", f.base, u.Version)).Body); !strings.Contains(detail, u.Result) {
			t.Errorf("update %d lacks the status %s", u.Version, u.Result)
		}
	}
	tree := f.page(f.base + "/resources?view=tree")
	if n := strings.Count(tree.Body, "data-depth="); n != len(state.Deployment.Resources) {
		t.Errorf("the tree of resources has %d rows, the API %d", n, len(state.Deployment.Resources))
	}
	for _, r := range state.Deployment.Resources {
		if p := f.page(f.base + "/resources?urn=" + url.QueryEscape(r.URN)); !p.Contains(html.EscapeString(r.URN)) {
			t.Errorf("the page lacks the resource %s", r.URN)
		}
	}
}

func TestReadme(t *testing.T) {
	p := newFixture(t).page("/acme/web/prod")
	for _, want := range []string{
		`<h3>Title</h3>`, `<a href="https://example.com/x" rel="noopener noreferrer nofollow">link</a>`, `<a href="#" rel="noopener noreferrer nofollow">bad</a>`,
		`<a href="https://evil.example/p.png" rel="noopener noreferrer nofollow">pic</a>`,
	} {
		if !p.Contains(want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

func TestStackPages(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]string{
		f.base + "/drift":                          "Set up deployments",
		f.base + "/resources?type=pkg:index:Thing": "pkg:Thing 1",
	} {
		if got := text(f.page(path).Body); !strings.Contains(got, want) {
			t.Errorf("%s lacks %q: %s", path, want, got)
		}
	}
	if p := f.browser.Post(f.base+"/tags", url.Values{"name": {"team"}, "value": {hostile + "\u202egnp.exe"}}); p.Status != http.StatusSeeOther {
		t.Fatalf("setting a tag: %d", p.Status)
	}
	if got := text(f.page(f.base).Body); !strings.Contains(got, "team "+hostile+"\ufffdgnp.exe") {
		t.Errorf("the tag is missing: %s", got)
	}
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 0}, nil)
	stranger := f.SignInWith(f.AddUser("eve", "member"))
	for _, path := range []string{"", "/runs", "/resources", "/drift", "/settings", "/settings/access"} {
		if p := stranger.Get(f.base + path); p.Status != http.StatusNotFound && p.Status != http.StatusForbidden {
			t.Errorf("a stranger reads %s: status %d", path, p.Status)
		}
	}
}
