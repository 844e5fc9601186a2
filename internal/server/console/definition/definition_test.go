package definition_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) {
	if !evaluator.Serve() {
		os.Exit(storetest.Main(m))
	}
}

const (
	prod    = "/acme/-/environments/app/prod"
	edit    = prod + "/edit"
	values  = prod + "/values"
	hostile = "<script>alert(1)</script> \u202eexe.txt"
)

type fixture struct {
	t *testing.T
	*consoletest.Server
	admin, member *consoletest.Browser
}

// newFixture returns a server with the environments app/base and app/prod of the administrator, which members may open.
func newFixture(t *testing.T, s *consoletest.Server) *fixture {
	t.Helper()
	must.OK(t, evaluator.Install())
	f := &fixture{t: t, Server: s, admin: s.SignIn(), member: s.SignInWith(s.AddUser("ann", "member"))}
	f.environment("base", "values:\n  region: eu\n  password: {fn::secret: s3cret}\n")
	f.environment("prod", "imports:\n- app/base\nvalues:\n  environmentVariables.NAME: "+hostile+"\n  environmentVariables.TOKEN: {fn::secret: t0ken}\n")
	return f
}

// environment creates an environment with a definition.
func (f *fixture) environment(name, definition string) {
	f.t.Helper()
	f.API(http.MethodPost, "/api/esc/environments/acme", map[string]string{"project": "app", "name": name}, nil)
	f.post(f.admin, "/acme/-/environments/app/"+name+"/edit", http.StatusSeeOther, "definition", definition, "base", f.base(f.admin, "/acme/-/environments/app/"+name+"/edit"))
}

var baseInput = regexp.MustCompile(`name="base" value="([^"]*)"`)

// base returns the tag in the form of a page.
func (f *fixture) base(b *consoletest.Browser, path string) string {
	f.t.Helper()
	return f.baseOf(f.get(b, path))
}

func (f *fixture) baseOf(p consoletest.Page) string {
	f.t.Helper()
	m := baseInput.FindStringSubmatch(p.Body)
	if m == nil {
		f.t.Fatalf("the page has no form: %s", p.Text())
	}
	return strings.ReplaceAll(m[1], "&#34;", `"`)
}

var title = regexp.MustCompile(`(?:title|aria-label)="[^"]*\x{202e}[^"]*"`)

// safe fails the test if a page contains markup of others, or controls that make a text look like another one.
func (f *fixture) safe(path string, p consoletest.Page) consoletest.Page {
	f.t.Helper()
	if strings.Contains(p.Body, "<script>alert") {
		f.t.Errorf("%s contains markup of others", path)
	}
	for _, found := range title.FindAllString(p.Body, -1) {
		f.t.Errorf("%s contains %q", path, found)
	}
	return p
}

func (f *fixture) get(b *consoletest.Browser, path string, texts ...string) consoletest.Page {
	f.t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		f.t.Fatalf("GET %s: status %d: %s", path, p.Status, p.Text())
	}
	f.shows(path, p, texts...)
	return f.safe(path, p)
}

func formOf(fields []string) url.Values {
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return form
}

func (f *fixture) post(b *consoletest.Browser, path string, want int, fields ...string) consoletest.Page {
	f.t.Helper()
	p := b.Post(path, formOf(fields))
	if p.Status != want {
		f.t.Fatalf("POST %s %v: status %d, want %d: %s", path, fields, p.Status, want, p.Text())
	}
	return f.safe(path, p)
}

// script sends a form as a script does, and decodes the answer.
func (f *fixture) script(b *consoletest.Browser, path string, want int, out any, fields ...string) {
	f.t.Helper()
	req := b.Request(http.MethodPost, path, formOf(fields))
	req.Header.Set("Accept", "application/json")
	p := b.Do(req)
	if p.Status != want || !strings.HasPrefix(p.Header.Get("Content-Type"), "application/json") {
		f.t.Fatalf("POST %s by a script: status %d, want %d: %s", path, p.Status, want, p.Body)
	}
	must.OK(f.t, json.Unmarshal([]byte(p.Body), out))
}

func (f *fixture) shows(path string, p consoletest.Page, texts ...string) {
	f.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.Text(), text) && !p.Contains(text) {
			f.t.Errorf("%s lacks %q: %s", path, text, p.Text())
		}
	}
}

func (f *fixture) hides(path string, p consoletest.Page, texts ...string) {
	f.t.Helper()
	for _, text := range texts {
		if p.Contains(text) || strings.Contains(p.Text(), text) {
			f.t.Errorf("%s contains %q: %s", path, text, p.Text())
		}
	}
}

// stored returns the newest definition of app/prod.
func (f *fixture) stored() store.EnvironmentRevision {
	f.t.Helper()
	return must.Get(store.Read(f.t.Context(), f.DB(), func(tx *store.Tx) (store.EnvironmentRevision, error) {
		e, err := tx.EnvironmentFor("acme", "app", "prod", "", "")
		must.OK(f.t, err)
		return tx.Revision(e.ID, e.LastNumber)
	}))(f.t)
}

// opened returns what the audit log says about openings of app/prod.
func (f *fixture) opened() string {
	f.t.Helper()
	var names []string
	entries := must.Get(store.Read(f.t.Context(), f.DB(), func(tx *store.Tx) ([]store.AuditEntry, error) {
		org, err := tx.OrganizationByName("acme")
		must.OK(f.t, err)
		return tx.AuditEntries(store.AuditFilter{OrgID: org.ID, Action: "environment.opened", Subject: "app/prod", Limit: 100})
	}))(f.t)
	for _, e := range entries {
		names = append(names, e.Names)
	}
	return strings.Join(names, "\n")
}

// TestEdit edits a definition without scripts: what it shows, errors, ciphertexts, and two users at once.
func TestEdit(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		p := f.get(f.admin, edit, "Definition of revision 2", "No problems", "Environment variables NAME", "TOKEN [secret, known when opened]", "region eu from app/base",
			"No stack and no environment", "&lt;script&gt;", "{ciphertext: ")
		f.hides(edit, p, "t0ken", "s3cret")
		base := f.baseOf(p)
		f.get(f.admin, "/acme/-/environments/app/base/edit", "Used by", "app/prod")
		if p := f.member.Get(edit); p.Status != http.StatusForbidden {
			t.Errorf("a member who may only open: status %d", p.Status)
		}
		f.hides(prod, f.get(f.member, prod, "Values"), edit)

		p = f.post(f.admin, edit+"/check", http.StatusOK, "definition", "values:\r\n  a: 1\r\n  BROKEN: "+hostile+"\r\n  new: {fn::secret: pl4in}\r\n", "base", base)
		f.shows(edit, p, "unknown word in BROKEN", "line 3", `data-line="3"`, "a 1", "new [secret]")
		if strings.Count(p.Body, "pl4in") != 1 {
			t.Errorf("a secret in plain text is shown outside the editor: %s", p.Text())
		}
		p = f.post(f.admin, edit, http.StatusUnprocessableEntity, "definition", "values:\n  BROKEN: 1\n", "base", base)
		f.shows(edit, p, "The definition is not saved", "line 2", "BROKEN: 1\n</textarea>")
		p = f.post(f.admin, edit, http.StatusUnprocessableEntity, "definition", "imports:\n- app/none\n", "base", base)
		f.shows(edit, p, "does not exist, or you may not see it")

		text := f.stored().Definition
		if p := f.post(f.admin, edit, http.StatusSeeOther, "definition", strings.ReplaceAll(text, "\n", "\r\n"), "base", base); p.Location() != edit {
			t.Errorf("after a save: %q", p.Location())
		}
		f.get(f.admin, edit, "The definition is as it was.")
		text += "  more: {fn::secret: other}\n"
		f.post(f.admin, edit, http.StatusSeeOther, "definition", text, "base", base)
		f.hides(edit, f.get(f.admin, edit, "Saved revision 3.", "Definition of revision 3"), "other}")
		if r := f.stored(); r.Number != 3 || strings.Count(r.Definition, "ciphertext") != 2 || strings.Contains(r.Definition, "\r") {
			t.Errorf("stored %+v", r)
		}

		mine := "values:\n  mine: 1\n"
		for _, old := range []string{base, ""} {
			p = f.post(f.admin, edit, http.StatusUnprocessableEntity, "definition", mine, "base", old)
			f.shows(edit, p, "has saved revision 3", "Your text is not saved", mine+"</textarea>", "more: {fn::secret: {ciphertext")
		}
		if f.stored().Number != 3 {
			t.Error("a form of an older revision was saved")
		}
		f.post(f.admin, edit, http.StatusSeeOther, "definition", mine, "base", f.baseOf(p))
		if r := f.stored(); r.Number != 4 || r.Definition != mine {
			t.Errorf("stored %+v", r)
		}
		f.post(f.member, edit, http.StatusForbidden, "definition", mine, "base", base)
		f.post(f.member, edit+"/check", http.StatusForbidden, "definition", mine)
		f.post(f.admin, edit+"/check", http.StatusRequestEntityTooLarge, "definition", strings.Repeat("x", 300<<10))
	})
}

// TestEditByScript checks, completes and saves as the script does.
func TestEditByScript(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	base := f.base(f.admin, edit)
	var found struct {
		Parts    []string
		Location string
	}
	f.script(f.admin, edit+"/check", http.StatusOK, &found, "definition", "values:\n  BROKEN: "+hostile+"\n", "base", base)
	if len(found.Parts) != 2 || !strings.HasPrefix(found.Parts[0], `<div id="problems"`) || !strings.HasPrefix(found.Parts[1], `<div id="result"`) ||
		!strings.Contains(found.Parts[0], `data-line="2"`) || strings.ContainsAny(strings.Join(found.Parts, ""), "\u202e") || strings.Contains(found.Parts[0], "<script") {
		t.Errorf("a check: %+v", found)
	}
	f.script(f.admin, edit, http.StatusOK, &found, "definition", "values:\n  BROKEN: 1\n", "base", base)
	if len(found.Parts) != 2 || !strings.Contains(found.Parts[1], "is not saved") {
		t.Errorf("a definition with errors: %+v", found)
	}
	f.script(f.admin, edit, http.StatusOK, &found, "definition", "values:\n  a: 1\n", "base", base)
	if found.Location != edit {
		t.Errorf("a save: %+v", found)
	}
	f.get(f.admin, edit, "Saved revision 3.")
	f.script(f.admin, edit, http.StatusOK, &found, "definition", "values:\n  b: 1\n", "base", base)
	if !strings.Contains(found.Parts[0], "has saved revision 3") || !strings.Contains(found.Parts[0], "a: 1") {
		t.Errorf("a conflict: %+v", found)
	}

	complete := func(b *consoletest.Browser, before, after string) string {
		t.Helper()
		var found struct{ Options []struct{ Text string } }
		f.script(b, edit+"/complete", http.StatusOK, &found, "before", before, "after", after)
		var names []string
		for _, o := range found.Options {
			names = append(names, o.Text)
		}
		return strings.Join(names, " ")
	}
	for before, want := range map[string]string{
		"imports:\n- app/": "app/base", "imports:\n- app/base@": "latest", "imports:\n- app/base\nvalues:\n  x: ${pas": "password", "values:\n  x:\n    fn::open": "fn::open::pulumi-stacks",
		"values:\n  x: ${imports[": "", "imports:\n- none/x@": "",
	} {
		if got := complete(f.admin, before, "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q: suggested %q, want %q", before, got, want)
		}
	}
	var refused struct{ Message string }
	f.script(f.member, edit+"/complete", http.StatusForbidden, &refused, "before", "im")
	f.script(f.Browser(), edit, http.StatusUnauthorized, &refused, "definition", "x")
	if !strings.Contains(refused.Message, "Sign in") {
		t.Errorf("without a session: %+v", refused)
	}
}

// TestSuggestionsAreThoseOfTheVisitor hides environments and values that the visitor may not read.
func TestSuggestionsAreThoseOfTheVisitor(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "none"}, nil)
	ann := f.AddUser("bob", "member")
	if status, body := f.APIAs(ann, http.MethodPost, "/api/esc/environments/acme", map[string]string{"project": "app", "name": "own"}, nil); status != http.StatusOK {
		t.Fatalf("creating an environment: status %d: %s", status, body)
	}
	b := f.SignInWith(ann)
	const own = "/acme/-/environments/app/own/edit"
	for before, hidden := range map[string]string{"imports:\n- app/": "base", "values:\n  a: ${environments.app.": "base", "values:\n  a: ${environments.app.base.": "region", "imports:\n- app/base@": "latest", "imports:\n- app/base\nvalues:\n  a: ${": "region"} {
		var found json.RawMessage
		f.script(b, own+"/complete", http.StatusOK, &found, "before", before)
		if strings.Contains(string(found), `"`+hidden) {
			t.Errorf("%q: suggested %s", before, found)
		}
	}
}

var sealedInput = regexp.MustCompile(`name="sealed" value="([^"]*)"`)

// TestValues opens an environment, reveals one of its secrets, and tests who may not.
func TestValues(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.hides(values, f.get(f.member, values, "Open the environment to see its values"), "region")
		if names := f.opened(); names != "" {
			t.Errorf("the question is recorded as opening: %s", names)
		}
		p := f.post(f.member, values, http.StatusOK, "version", "")
		f.shows(values, p, "Values of revision 2", "region eu", "password [secret]", "NAME", "TOKEN [secret]", "Reveal", "for 15 min")
		f.hides(values, p, "t0ken", "s3cret")
		if names := f.opened(); names != "revision 2" {
			t.Errorf("recorded %q", names)
		}
		sealed := sealedInput.FindAllStringSubmatch(p.Body, -1)
		if len(sealed) != 2 {
			t.Fatalf("the page has %d sealed secrets", len(sealed))
		}
		text := sealed[0][1]
		f.shows(values, f.post(f.member, values+"/reveal", http.StatusOK, "sealed", text), "environmentVariables.TOKEN of revision 2", "t0ken")
		var found struct{ Text, Message string }
		f.script(f.member, values+"/reveal", http.StatusOK, &found, "sealed", text)
		if found.Text != "t0ken" || !strings.Contains(f.opened(), "environmentVariables.TOKEN of revision 2") {
			t.Errorf("revealed %+v, recorded %q", found, f.opened())
		}
		for what, refused := range map[string]func() int{
			"another user": func() int { return f.admin.Post(values+"/reveal", url.Values{"sealed": {text}}).Status },
			"another session": func() int {
				return f.SignInWith(f.AddUser("bob", "member")).Post(values+"/reveal", url.Values{"sealed": {text}}).Status
			},
			"other environment": func() int {
				return f.member.Post("/acme/-/environments/app/base/values/reveal", url.Values{"sealed": {text}}).Status
			},
			"a changed text": func() int {
				return f.member.Post(values+"/reveal", url.Values{"sealed": {text[:len(text)-4] + "AAAA"}}).Status
			},
			"no text": func() int { return f.member.Post(values+"/reveal", url.Values{"sealed": {"%"}}).Status },
		} {
			if status := refused(); status != http.StatusBadRequest {
				t.Errorf("%s: status %d", what, status)
			}
		}
		f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "read"}, nil)
		f.post(f.member, values+"/reveal", http.StatusForbidden, "sealed", text)
		f.post(f.member, values, http.StatusForbidden)
		f.hides(prod, f.get(f.member, prod), values)
	})
}

// TestValuesOfVersions opens older revisions, and definitions with errors and without values.
func TestValuesOfVersions(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	f.shows(values, f.post(f.admin, values, http.StatusOK, "version", "1"), "The environment has no values")
	f.get(f.admin, values+"?version=1", "Open version 1 to see its values")
	f.post(f.admin, values, http.StatusNotFound, "version", "9")
	must.OK(t, f.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		e, err := tx.EnvironmentFor("acme", "app", "prod", "", "")
		must.OK(t, err)
		e.LastNumber++
		must.OK(t, tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: e.ID, Number: e.LastNumber, Definition: "values:\n  BROKEN: " + hostile + "\n  big: " + strings.Repeat("x", 20<<10) + "\n"}))
		return tx.SaveEnvironment(e.Environment)
	}))
	f.shows(values, f.post(f.admin, values, http.StatusUnprocessableEntity), "The environment cannot be opened", "unknown word", "line 2")
	f.post(f.admin, edit, http.StatusSeeOther, "base", f.base(f.admin, edit), "definition", "values:\n  big: "+strings.Repeat("x", 20<<10)+"\n  huge: {fn::secret: "+strings.Repeat("y", 70<<10)+"}\n")
	f.shows(values, f.post(f.admin, values, http.StatusOK), "[20 KiB, too long for this page", "[secret, too long for this page")
}
