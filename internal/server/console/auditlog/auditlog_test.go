package auditlog_test

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

var (
	rows = regexp.MustCompile(`(?s)<div class="row" role="row">.*?</div>`)
	tags = regexp.MustCompile(`(?s)<[^>]*>`)
	next = regexp.MustCompile(`href="([^"]+)" rel="next"`)
)

// reader opens the audit log of the organization.
type reader struct {
	*consoletest.Server
	t       *testing.T
	browser *consoletest.Browser
}

const log = "/-/server/audit"

// open returns a page of the log. The page redirects to one that new entries do not move.
func (r *reader) open(path string) consoletest.Page {
	r.t.Helper()
	p := r.browser.Get(path)
	if to := p.Location(); to != "" {
		p = r.browser.Get(to)
	}
	if p.Status != http.StatusOK {
		r.t.Fatalf("GET %s: status %d: %s", path, p.Status, p.Body)
	}
	return p
}

// entries returns the texts of a page's rows.
func entries(p consoletest.Page) (texts []string) {
	for _, row := range rows.FindAllString(p.Body, -1) {
		texts = append(texts, strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(row, " "))), " "))
	}
	return texts
}

// tag changes a tag of the stack as a user.
func (r *reader) tag(token, value string) {
	r.t.Helper()
	if status, text := r.APIAs(token, http.MethodPatch, "/api/stacks/acme/web/prod/tags", map[string]string{"team": value}, nil); status >= http.StatusMultipleChoices {
		r.t.Fatalf("changing a tag: status %d: %s", status, text)
	}
}

func newReader(t *testing.T) *reader {
	t.Helper()
	s := consoletest.New(t)
	s.Stack("web", "prod")
	return &reader{s, t, s.SignIn()}
}

// TestServer reads what the log of the server says about changes, and selects some of them.
func TestServer(t *testing.T) {
	r := newReader(t)
	r.AddUser("ada", "member")
	all := entries(r.open(log))
	i := slices.IndexFunc(all, func(e string) bool { return strings.Contains(e, "created the user ") })
	if i < 0 {
		t.Fatalf("the log lacks the new user: %q", all)
	}
	selected := func(query string) []string {
		t.Helper()
		return entries(r.open(log + "?" + query))
	}
	if got := selected("action=user.created&subject=ADA"); len(got) != 1 || got[0] != all[i] {
		t.Errorf("the created users: %q", got)
	}
	for _, none := range []string{"actor=ada&action=user.created", "actor=nemo", "to=2001-01-31", "from=2999-01-01"} {
		if got := selected(none); len(got) != 0 || !r.open(log+"?"+none).Contains("No entry matches the filters") {
			t.Errorf("%s selects %q, want none", none, got)
		}
	}
	if p := r.open(log + "?from=soon"); !p.Contains("A date must have the form 2026-01-31.") {
		t.Errorf("an invalid date: %s", p.Body)
	}
}

// TestMoved follows the address that the log of an organization had.
func TestMoved(t *testing.T) {
	r := newReader(t)
	if to := r.browser.Get("/acme/-/audit?actor=ada&action=stack.created&subject=web&from=2026-01-31&upto=1-x").Location(); to != "/acme/-/activity?action=stack.created&from=2026-01-31&part=access&q=web&who=ada" {
		t.Errorf("the log is now at %q", to)
	}
	member := r.SignInWith(r.AddUser("eve", "member"))
	for _, path := range []string{"/acme/-/audit", "/acme/-/audit/export", "/acme/-/settings/audit"} {
		if p := member.Get(path); p.Status != http.StatusForbidden {
			t.Errorf("a member gets %s: status %d, want 403", path, p.Status)
		}
	}
	if p := r.browser.Get("/acme/-/settings/audit"); !p.Contains(`action="/acme/-/audit/export"`, `value="csv"`, `value="json"`) {
		t.Errorf("the settings lack the downloads: %s", p.Body)
	}
}

// TestReads downloads an entry that stands for several reads.
func TestReads(t *testing.T) {
	r := newReader(t)
	first := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
	err := r.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		for i := range 3 {
			err = cmp.Or(err, tx.CountRead(store.AuditEntry{
				ID: "read", OrgID: o.ID, At: first.Add(time.Duration(i) * time.Minute), ActorKind: "user", Actor: "ada", Action: string(audit.StateExported),
				SubjectKind: "stack", Subject: "acme/web/prod", Address: fmt.Sprintf("192.0.2.%d", 1+i/2), Way: "api", Detail: "{}", Names: fmt.Sprintf("version %d", 1+i/2),
			}))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	query := "?action=" + string(audit.StateExported)
	for format, want := range map[string]string{
		"csv":  "{},3,2100-01-02T03:06:05Z,\"version 1, version 2\"\n",
		"json": `"count":3,"detail":{},"id":"read","lastTime":"2100-01-02T03:06:05Z","names":"version 1, version 2"`,
	} {
		if p := r.browser.Get("/acme/-/audit/export" + query + "&format=" + format); !strings.Contains(p.Body, want) {
			t.Errorf("the download is %s, want %s", p.Body, want)
		}
	}
}

// TestPages reads a log of several pages while it grows: no entry is missing or repeated.
func TestPages(t *testing.T) {
	r := newReader(t)
	const changes = 70
	add := func(i int) {
		t.Helper()
		must.OK(t, r.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			e := audit.Entry{Action: audit.QuotasSet, Subject: audit.Subject{Kind: "organization", Name: fmt.Sprint("org-", i)}}
			return audit.Record(t.Context(), tx, e)
		}))
	}
	for i := range changes {
		add(i)
	}
	const query = "?action=organization.quotas-changed"
	first := r.open(log + query)
	add(changes)
	m := next.FindStringSubmatch(first.Body)
	if m == nil {
		t.Fatalf("the first page has no next one: %s", first.Body)
	}
	second := r.open(html.UnescapeString(m[1]))
	if a, b := len(entries(first)), len(entries(second)); a != 50 || b != changes-50 {
		t.Errorf("the pages have %d and %d entries, want 50 and %d", a, b, changes-50)
	}
	if next.MatchString(second.Body) {
		t.Error("the last page has a next one")
	}
	if !second.Contains("1 new entry") {
		t.Errorf("the second page does not report the new entry: %s", second.Body)
	}
	if n := len(entries(r.open(log + query))); n != 50 {
		t.Errorf("the newest page has %d entries, want 50", n)
	}
}

// TestDownloads downloads the entries of an organization that a filter selects.
func TestDownloads(t *testing.T) {
	r := newReader(t)
	const changes, query = 5, "?action=stack.tags-changed"
	for i := range changes + 1 {
		r.tag(r.Token, fmt.Sprintf("value-%d", i))
	}
	p := r.browser.Get("/acme/-/audit/export" + query + "&format=csv")
	records, err := csv.NewReader(strings.NewReader(p.Body)).ReadAll()
	if err != nil || len(records) != changes+2 || p.Header.Get("Content-Disposition") != `attachment; filename="audit.csv"` {
		t.Errorf("the CSV file has %d records, %v, %q; want a header and %d entries", len(records), err, p.Header.Get("Content-Disposition"), changes+1)
	}
	p = r.browser.Get("/acme/-/audit/export?actor=nemo&format=json")
	if p.Status != http.StatusOK || p.Body != "" {
		t.Errorf("a file without entries: status %d, %q", p.Status, p.Body)
	}
	p = r.browser.Get("/acme/-/audit/export" + query + "&format=json")
	lines := strings.Split(strings.TrimSpace(p.Body), "\n")
	for _, line := range lines {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil || !strings.Contains(line, "stack.tags-changed") {
			t.Fatalf("the line %q of the JSON file: %v", line, err)
		}
	}
	if len(lines) != changes+1 {
		t.Errorf("the JSON file has %d lines, want %d", len(lines), changes+1)
	}
}
