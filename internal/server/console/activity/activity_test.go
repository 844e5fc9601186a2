package activity_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const path = "/acme/-/activity"

const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(2)>` + "\u202egnp.exe"

type m = map[string]any

var (
	tags = regexp.MustCompile(`(?s)<[^>]*>`)
	rows = regexp.MustCompile(`(?s)<div class="row" role="row">.*?</time>`)
	upto = regexp.MustCompile(`data-upto="([^"]*)"`)
)

func plain(body string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(body, " "))), " ")
}

// get returns a page.
func get(t *testing.T, b *consoletest.Browser, path string) consoletest.Page {
	t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", path, p.Status, plain(p.Body))
	}
	return p
}

// entries returns the texts of a page's rows.
func entries(p consoletest.Page) (texts []string) {
	for _, row := range rows.FindAllString(p.Body, -1) {
		texts = append(texts, plain(row))
	}
	return texts
}

// TestPage shows what the CLI and the API have changed, to callers with several rights.
func TestPage(t *testing.T) {
	s := consoletest.New(t)
	admin := s.SignIn()
	s.Stack("web", "prod")
	s.Stack("db", "prod")
	s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Message: "Move checkout", Changes: m{"create": 3, "delete": 1}, Result: "succeeded"})
	s.RunUpdate(consoletest.Update{Stack: "db/prod", Kind: "destroy", Message: "Unused since May", Changes: m{"delete": 2}, Result: "failed"})
	s.RunUpdate(consoletest.Update{Stack: "db/prod", Kind: "update", DryRun: true, Message: "Only a preview", Result: "succeeded"})
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/tags", m{"name": "team", "value": "blue"}, nil)

	p := get(t, admin, path)
	list := strings.Join(entries(p), "\n")
	for _, want := range []string{
		"changed tags added team web/ prod", "failed to destroy Unused since May db/ prod −2 from the CLI", "updated Move checkout web/ prod +3 −1 from the CLI", "created the stack",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("the page lacks %q: %s", want, list)
		}
	}
	if strings.Contains(list, "preview") || !p.Contains(`href="/acme/web/prod/updates/1"`, "Deletes and replaces <b>2</b>", "Settings and access <b>4</b>", `href="/acme/-/settings/audit"`, " by 1 person") {
		t.Errorf("the page: %s", p.Body)
	}
	for query, want := range map[string]string{
		"?part=deletes": "destroy", "?part=access&action=stack.tags-changed": "changed tags", "?q=since+UNUSED": "destroy", "?stack=web/prod&what=update": "checkout", "?what=destroy": "destroy",
	} {
		if got := entries(get(t, admin, path+query)); len(got) < 1 || len(got) > 2 || !strings.Contains(strings.Join(got, ""), want) {
			t.Errorf("%s shows %q", query, got)
		}
	}
	for query, want := range map[string]string{
		"?q=nemo": "No change found", "?from=soon&part=access": "A date must have the form 2026-01-31.", "?part=x": "no part of the activity", "?after=x": "not valid",
		"?from=2001-01-01&to=2001-01-02&part=access": "No change found", "?part=access&from=" + time.Now().UTC().Add(-24*time.Hour).Format(time.DateOnly): "changed tags",
	} {
		if got := plain(get(t, admin, path+query).Body); !strings.Contains(got, want) {
			t.Errorf("%s lacks %q: %s", query, want, got)
		}
	}

	// Others see neither the audit log nor stacks without permission, also not in numbers and people.
	guest := s.SignInWith(s.AddUser("guest", "stack-collaborator"))
	if p := get(t, guest, path); !p.Contains("No change in this time") || strings.Contains(p.Body, "<b>") {
		t.Errorf("a guest sees %s", plain(p.Body))
	}
	s.API(http.MethodPut, "/api/stacks/acme/web/prod/collaborators/guest", m{"permission": 101}, nil)
	p = get(t, guest, path)
	if got := entries(p); len(got) != 1 || !strings.Contains(got[0], "Move checkout") || !p.Contains("Deletes and replaces <b>1</b>") {
		t.Errorf("a guest with a permission sees %q: %s", got, plain(p.Body))
	}
	if strings.Contains(p.Body, "Settings and access") || strings.Contains(p.Body, "Download") {
		t.Error("a guest is offered the audit log")
	}
	if p := guest.Get(path + "?part=access"); p.Status != http.StatusForbidden {
		t.Errorf("a guest reads the audit log: status %d", p.Status)
	}
}

// TestNew opens a page, after which entries are added, and opens it again.
func TestNew(t *testing.T) {
	s := consoletest.New(t)
	admin := s.SignIn()
	s.Stack("web", "prod")
	first := get(t, admin, path)
	at := upto.FindStringSubmatch(first.Body)
	if at == nil || strings.Contains(first.Body, "last visit") {
		t.Fatalf("the first page: %s", first.Body)
	}
	for range 2 {
		s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Message: "Later", Result: "succeeded"})
	}
	open := get(t, admin, path+"?upto="+at[1])
	if got, want := entries(open), entries(first); strings.Join(got, "\n") != strings.Join(want, "\n") || !open.Contains(">2 new</a>") {
		t.Errorf("the open page shows %q, want %q and 2 new: %s", got, want, open.Body)
	}
	// The user comes back after an hour.
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE activity_visits SET opened_at = opened_at - 3600000000")
		return err
	}))
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE audit_entries SET at = at - 7200000000")
		return err
	}))
	for range 2 { // the marker stays while the visit lasts
		p := get(t, admin, path)
		before, after, ok := strings.Cut(plain(p.Body), "New since your last visit at")
		if !ok || strings.Count(before, "Later") != 2 || !strings.Contains(after, "created the stack") {
			t.Errorf("the marker has the wrong place: %s", plain(p.Body))
		}
	}
	if p := get(t, admin, path+"?what=update"); strings.Contains(p.Body, "last visit") {
		t.Error("a list with a filter has the marker")
	}
}

// TestHostileText shows texts that would break out of HTML, and those that change the direction of writing.
func TestHostileText(t *testing.T) {
	s := consoletest.New(t)
	admin := s.SignIn()
	s.Stack("web", "prod")
	s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Message: hostile, Result: "succeeded"})
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		return tx.InsertAuditEntry(store.AuditEntry{
			ID: "x", OrgID: org.ID, At: time.Now(), ActorKind: hostile, Actor: hostile, Action: hostile, SubjectKind: hostile, Subject: hostile, Address: hostile, Way: hostile,
			Detail: fmt.Sprintf("{%q: %q}", "x", "</div><script>"), Names: hostile,
		})
	}))
	for _, query := range []string{"", "?part=access", "?q=%3Cscript%3E", "?who=%3Cscript%3E", "?stack=%22%3E%3Cscript%3E", "?part=access&action=%3Cscript%3E&way=%22%3E%3Cscript%3E", "?part=%3Cscript%3E"} {
		p := get(t, admin, path+query)
		for _, bad := range []string{"<script>alert", "<script>\"", "\"><script>", "<img", "\u202e"} {
			if strings.Contains(p.Body, bad) {
				t.Errorf("%q contains %q", query, bad)
			}
		}
	}
	if p := get(t, admin, path); !p.Contains("&lt;script&gt;alert(1)") {
		t.Errorf("the page lacks the texts: %s", plain(p.Body))
	}
}

// TestPhrases says in words what each action of an organization did.
func TestPhrases(t *testing.T) {
	s := consoletest.New(t)
	admin := s.SignIn()
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		for i, kind := range []string{"token", "user", "team", "issuer", "webhook", "integration", "pool", "agent", "organization", "thing"} {
			e := store.AuditEntry{ID: fmt.Sprint("x", i), OrgID: org.ID, At: time.Now(), ActorKind: "server", Actor: "server", Action: string(audit.TokenCreated), SubjectKind: kind, SubjectID: "id", Subject: "the-" + kind, Way: audit.WayServer, Detail: `{"role":"admin"}`, Reads: int64(i % 2 * 3), LastAt: time.Now()}
			if err := tx.InsertAuditEntry(e); err != nil {
				return err
			}
		}
		return nil
	}))
	p := get(t, admin, path+"?part=access")
	list := strings.Join(entries(p), "\n")
	for _, want := range []string{"The server made a token the-token (as administrator) Tokens by the server", "as administrator the-pool", "as administrator, 3 times until", "Settings", "until"} {
		if !strings.Contains(list, want) {
			t.Errorf("the page lacks %q: %s", want, list)
		}
	}
	if !p.Contains(`href="/acme/-/pools/id"`, `href="/acme/-/settings/teams"`) {
		t.Error("the objects are no links")
	}
}
