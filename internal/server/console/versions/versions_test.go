package versions_test

import (
	"fmt"
	"html"
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

type m = map[string]any

const (
	base    = "/acme/web/prod"
	prefix  = "urn:pulumi:prod::web::"
	root    = prefix + "pulumi:pulumi:Stack::web-prod"
	hostile = "<img src=x onerror=alert(1)>\u202egnp.exe"
)

func urn(name string) string { return prefix + "aws:s3/bucket:Bucket::" + name }

// secret is a secret in a state.
func secret(ciphertext string) m {
	return m{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": ciphertext}
}

func resource(name, id string, outputs m, more ...string) m {
	return m{"urn": urn(name), "custom": true, "type": "aws:s3/bucket:Bucket", "id": id, "parent": root, "inputs": outputs, "outputs": outputs, "dependencies": more}
}

// imported stores a state, which becomes the next version of the stack.
func imported(s *consoletest.Server, resources ...any) {
	list := append([]any{m{"urn": root, "custom": false, "type": "pulumi:pulumi:Stack"}}, resources...)
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/import", m{"version": 3, "deployment": m{
		"manifest": m{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"}, "resources": list,
	}}, nil)
}

func twoVersions(t *testing.T) *consoletest.Server {
	t.Helper()
	s := consoletest.New(t)
	s.Stack("web", "prod")
	imported(s,
		resource("same", "1", m{"a": 1}), resource("gone", "2", m{"a": 1}), resource("moved", "3", m{"zone": "a", "token": secret("Y2lwaGVyb25l"), "kept": "k"}),
		resource("password", "4", m{"p": secret("Y2lwaGVyb25l")}), resource("open", "5", m{"value": "was-plain-text"}),
	)
	imported(s,
		resource("same", "1", m{"a": 1}), resource("moved", "33", m{"zone": hostile, "token": secret("Y2lwaGVydHdv"), "kept": "k"}),
		resource("password", "4", m{"p": secret("Y2lwaGVydHdv")}), resource("open", "5", m{"value": secret("Y2lwaGVydHdv")}), resource(hostile, "6", m{"name": hostile}, urn("moved")),
	)
	return s
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text returns the text of a page on one line.
func text(p consoletest.Page) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(p.Body, " "))), " ")
}

func get(t *testing.T, b *consoletest.Browser, path string) (consoletest.Page, string) {
	t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, p.Status, text(p))
	}
	for _, bad := range []string{"<img", "\u202e", "Y2lwaGVy", "was-plain-text"} {
		if strings.Contains(p.Body, bad) {
			t.Errorf("%s contains %q: %s", path, bad, regexp.MustCompile("(?s).{80}"+regexp.QuoteMeta(bad)).FindString(p.Body))
		}
	}
	return p, text(p)
}

// TestCompare compares two versions. Secrets are never shown, and different ciphertexts do not say that a secret changed.
func TestCompare(t *testing.T) {
	s := twoVersions(t)
	b := s.SignIn()
	p, got := get(t, b, base+"/changes")
	for _, want := range []string{
		"Changed 5", "Deletes and replaces 2", "All 7", "moved s3:Bucket replace", "gone s3:Bucket delete", "password s3:Bucket secret", "open s3:Bucket update", "gnp.exe s3:Bucket create",
		"1 unchanged resource is hidden", "Replaced", "1 resource depends on it", "1 unchanged property.", "zone a ", "token [secret] [secret]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q: %s", want, got)
		}
	}
	if strings.Count(p.Body, "<h1") != 1 || strings.Contains(got, "secret, changed") || strings.Contains(got, "Bucket same") {
		t.Errorf("the page has no title, says that a secret changed, or shows what did not: %s", got)
	}
	for name, wants := range map[string][]string{
		"password": {"Only the ciphertexts of secrets differ", "does not show whether a secret changed", "p [secret] [secret]"},
		"open":     {"Updated", "value [not shown] [secret]"},
		"gone":     {"Deleted", "a 1"},
	} {
		for _, columns := range []string{"", "&columns=1"} {
			_, got := get(t, b, base+"/changes?from=1&to=2&same=1"+columns+"&urn="+url.QueryEscape(urn(name)))
			for _, want := range wants {
				if columns == "" && !strings.Contains(got, want) {
					t.Errorf("%s: the page lacks %q: %s", name, want, got)
				}
			}
		}
	}
	for query, want := range map[string]string{
		"?from=2&to=1": "gone s3:Bucket create", "?from=0&to=1": "Changed 6", "?from=2&to=2": "No resource changes.", "?from=1&to=2&show=danger": "moved s3:Bucket replace",
		"?from=1&to=2&show=all": "same s3:Bucket", "?from=1&to=2&op=create": "gnp.exe s3:Bucket create", "?from=1&to=2&type=none": "No resource passes the filters.", "?from=1&to=9": "has no version 9",
	} {
		if _, got := get(t, b, base+"/changes"+query); !strings.Contains(got, want) {
			t.Errorf("%s lacks %q: %s", query, want, got)
		}
	}
	if p := b.Get(base + "/changes/rows?from=1&to=2&row=0&count=1"); p.Status != http.StatusOK || !p.Contains(`"total":5`, "moved") {
		t.Errorf("the rows: status %d, %s", p.Status, p.Body)
	}
	if p := b.Get(base + "/changes?from=x"); p.Status != http.StatusBadRequest {
		t.Errorf("an invalid version: status %d", p.Status)
	}
}

// TestExpiredState says that a state is no longer kept.
func TestExpiredState(t *testing.T) {
	s := twoVersions(t)
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE updates SET state_expired = 1 WHERE version = 1")
		return err
	}))
	b := s.SignIn()
	if _, got := get(t, b, base+"/changes?from=1&to=2"); !strings.Contains(got, "The versions cannot be compared") || !strings.Contains(got, "has expired") {
		t.Errorf("the page does not say why: %s", got)
	}
	if _, got := get(t, b, base+"/changes"); !strings.Contains(got, "Changed 6") {
		t.Errorf("the newest version is not compared with nothing: %s", got)
	}
}

// TestFailedUpdate shows failures of the update between two versions, and the history of a resource.
func TestFailedUpdate(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	events := func(op string, keys []string, failed bool) []m {
		end := "resOutputsEvent"
		if failed {
			end = "resOpFailedEvent"
		}
		meta := m{"op": op, "urn": urn("queue"), "type": "aws:s3/bucket:Bucket", "keys": keys, "detailedDiff": m{"size": m{"diffKind": "update"}}, "old": m{"inputs": m{"size": 1}}, "new": m{"inputs": m{"size": 2}}}
		return []m{
			{"sequence": 0, "timestamp": 1, "resourcePreEvent": m{"metadata": meta}},
			{"sequence": 1, "timestamp": 3, end: m{"metadata": meta}},
		}
	}
	for _, op := range []string{"create", "update"} {
		run(t, s, "succeeded", events(op, nil, false))
	}
	run(t, s, "failed", events("update", nil, true))
	b := s.SignIn()
	_, got := get(t, b, base+"/changes?from=2&to=3")
	for _, want := range []string{"Could not be updated", "v3 failed on it", "v2 changed size", "v1 created it"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q: %s", want, got)
		}
	}
	if strings.Contains(got, "were not searched") {
		t.Errorf("the history is said to be incomplete: %s", got)
	}
}

func run(t *testing.T, s *consoletest.Server, status string, events []m) {
	t.Helper()
	const path = "/api/stacks/acme/web/prod/update"
	var made struct{ UpdateID string }
	s.API(http.MethodPost, path, m{"name": "web", "runtime": "go"}, &made)
	var started struct{ Token string }
	s.API(http.MethodPost, path+"/"+made.UpdateID, m{}, &started)
	for what, body := range map[string]m{"events/batch": {"events": events}} {
		if status, answer := s.APIAs("update-token "+started.Token, http.MethodPost, path+"/"+made.UpdateID+"/"+what, body, nil); status != http.StatusOK {
			t.Fatalf("%s: status %d: %s", what, status, answer)
		}
	}
	if code, answer := s.APIAs("update-token "+started.Token, http.MethodPost, path+"/"+made.UpdateID+"/complete", m{"status": status}, nil); code >= 300 {
		t.Fatalf("completing: status %d: %s", code, answer)
	}
}

// TestRights shows nothing of a stack to those who may not read it.
func TestRights(t *testing.T) {
	s := twoVersions(t)
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 0}, nil)
	eve := s.SignInWith(s.AddUser("eve", "member"))
	for _, path := range []string{"/changes", "/changes?from=1&to=2", "/changes/rows?from=1&to=2&row=0&count=1", "/updates/1", "/updates/1/changes?row=0&count=1"} {
		if p := eve.Get(base + path); p.Status != http.StatusNotFound && p.Status != http.StatusForbidden || p.Contains("moved") {
			t.Errorf("%s: status %d", path, p.Status)
		}
	}
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 101}, nil)
	if _, got := get(t, eve, base+"/changes"); !strings.Contains(got, "Changed 5") {
		t.Errorf("a reader does not see the changes: %s", got)
	}
}

// TestManyResources has pages of rows without script.
func TestManyResources(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	var list []any
	for i := range 1200 {
		list = append(list, resource(fmt.Sprintf("bucket-%04d", i), "1", m{"a": i}))
	}
	imported(s, list...)
	b := s.SignIn()
	first, _ := get(t, b, base+"/changes")
	last, _ := get(t, b, base+"/changes?row=1000")
	if n := strings.Count(first.Body, "data-depth="); n != 500 || !first.Contains("Next rows") {
		t.Errorf("the first page has %d rows", n)
	}
	if n := strings.Count(last.Body, "data-depth="); n != 201 || !last.Contains("bucket-1199") || last.Contains("Next rows") {
		t.Errorf("the last page has %d rows", n)
	}
}
