package environments_test

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const (
	base    = "/acme/-/environments"
	prod    = base + "/app/prod"
	hostile = "<script>alert(1)</script> \u202eexe.txt"
)

type fixture struct {
	t *testing.T
	*consoletest.Server
	admin, member *consoletest.Browser
	org           store.Organization
}

func newFixture(t *testing.T, s *consoletest.Server) *fixture {
	t.Helper()
	f := &fixture{t: t, Server: s, admin: s.SignIn(), member: s.SignInWith(s.AddUser("ann", "member"))}
	f.write(func(tx *store.Tx) (err error) {
		f.org, err = tx.OrganizationByName("acme")
		return err
	})
	return f
}

func (f *fixture) write(fn func(tx *store.Tx) error) {
	f.t.Helper()
	must.OK(f.t, f.DB().Write(f.t.Context(), scope.Server(), fn))
}

// environment creates an environment of the administrator, whose revisions have definitions.
func (f *fixture) environment(project, name string, definitions ...string) {
	f.t.Helper()
	f.API(http.MethodPost, "/api/esc/environments/acme", map[string]string{"project": project, "name": name}, nil)
	for _, definition := range definitions {
		f.revise(project, name, definition)
	}
}

// revise adds a revision, whose author has a hostile name. Its lines that begin with "- " are imports.
func (f *fixture) revise(project, name, definition string) {
	f.t.Helper()
	f.write(func(tx *store.Tx) error {
		e, err := tx.EnvironmentFor("acme", project, name, "", "")
		if err != nil {
			return err
		}
		e.LastNumber++
		e.ModifiedAt = tx.Now()
		must.OK(f.t, tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: e.ID, Number: e.LastNumber, Definition: definition, CreatedBy: "eve" + hostile, CreatedAt: e.ModifiedAt}))
		for line := range strings.Lines(definition) {
			if ref, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
				p, n, _ := strings.Cut(ref, "/")
				n, version, versioned := strings.Cut(n, "@")
				if !versioned {
					version = store.LatestVersion
				}
				must.OK(f.t, tx.InsertEnvironmentImport(store.EnvironmentImport{EnvironmentID: e.ID, Number: e.LastNumber, Project: p, Name: n, Version: version}))
			}
		}
		return tx.SaveEnvironment(e.Environment)
	})
}

var title = regexp.MustCompile(`title="[^"]*\x{202e}[^"]*"`)

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

func (f *fixture) post(b *consoletest.Browser, path string, want int, fields ...string) consoletest.Page {
	f.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	p := b.Post(path, form)
	if p.Status != want {
		f.t.Fatalf("POST %s %v: status %d, want %d: %s", path, fields, p.Status, want, p.Text())
	}
	return f.safe(path, p)
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

// TestList lists environments by each order, filters them by names and tags, and shows only names without a permission.
func TestList(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.get(f.member, base, "The organization has no environment", "pulumi env init acme/")
		f.environment("app", "base", "values: {}")
		f.environment("app", "prod", "imports:\n- app/base\n", "imports:\n- app/base@latest\n")
		f.environment("Zoo", "dev")
		f.API(http.MethodPost, "/api/esc/environments/acme/app/prod/tags", map[string]string{"name": "team", "value": hostile}, nil)
		p := f.get(f.member, base, "Environments 3", "app/ base 2 eve", "1 environment never", "app/ prod 3 eve", "nothing never team:", "Zoo/ dev 1 admin")
		order := func(p consoletest.Page, names ...string) {
			t.Helper()
			text, at := p.Text(), 0
			for _, name := range names {
				i := strings.Index(text[at:], name)
				if i < 0 {
					t.Fatalf("the list lacks %q in the order %q: %s", name, names, text)
				}
				at += i
			}
		}
		order(p, "Zoo/ dev", "app/ base", "app/ prod")
		order(f.get(f.member, base+"?sort=changed"), "Zoo/ dev", "app/ prod", "app/ base")
		f.write(func(tx *store.Tx) error {
			e, err := tx.EnvironmentFor("acme", "app", "prod", "", "")
			must.OK(t, err)
			return tx.SaveEnvironmentOpening(store.EnvironmentOpening{EnvironmentID: e.ID, OpenedAt: tx.Now(), OpenedBy: "bob" + hostile})
		})
		order(f.get(f.member, base+"?sort=opened"), "app/ prod", "Zoo/ dev", "app/ base")
		f.hides(base, f.get(f.member, base+"?q=PRO+app", "app/ prod"), "Zoo/ dev", "app/ base")
		f.hides(base, f.get(f.member, base+"?q=team:", "app/ prod"), "Zoo/ dev", "app/ base")
		f.get(f.member, base+"?q=%25", "No environment matches")
		f.hides(base, f.get(f.member, base+"?after=0/app/base", "app/ prod", "First page"), "Zoo/ dev")
		if p := f.member.Get(base + "?after=x"); p.Status != http.StatusBadRequest {
			t.Errorf("an invalid place: status %d", p.Status)
		}

		f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "none"}, nil)
		p = f.get(f.member, base+"?sort=opened", "app/ prod", "No permission")
		f.hides(base, p, "team:", "bob", "eve", prod)
		order(p, "Zoo/ dev", "app/ base", "app/ prod")
		f.get(f.member, base+"?q=team:", "No environment matches")
		if p := f.member.Get(prod); p.Status != http.StatusForbidden || !strings.Contains(p.Text(), "ask an administrator of acme: admin. Environments of acme") {
			t.Errorf("an environment without a permission: status %d: %s", p.Status, p.Text())
		}
		if p := f.member.Get(base + "/app/none"); p.Status != http.StatusNotFound {
			t.Errorf("no environment: status %d", p.Status)
		}
		guest := f.SignInWith(f.AddUser("guest", identity.RoleCollaborator))
		f.hides(base, f.get(guest, base, "There is no environment that you can see"), "prod")
	})
}

// TestDefinition shows revisions, also by the names of tags and retracted ones.
func TestDefinition(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	f.environment("app", "prod", "values:\n  a: "+hostile+"\n", "values:\n  b: 2\n")
	p := f.get(f.member, prod, "b: 2", "app/", "revision 3 by", "you: open", "Revisions 3")
	f.hides(prod, p, "a: &lt;script")
	f.get(f.member, prod+"?version=2", "a: &lt;script", "@2")
	f.get(f.member, prod+"?version=1", "The definition is empty")
	f.API(http.MethodPost, "/api/esc/environments/acme/app/prod/versions/2/retract", map[string]any{"replacement": 3}, nil)
	f.get(f.member, prod+"?version=2", "Revision 2 is retracted. Revision 3 replaces it.", "b: 2")
	if p := f.member.Get(prod + "?version=9"); p.Status != http.StatusNotFound {
		t.Errorf("an unknown revision: status %d", p.Status)
	}
}

const ciphertext = "ZXNjeAAAAAEAAAEAc2VjcmV0"

// TestRevisions compares revisions, and sets, moves and removes version tags.
func TestRevisions(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.environment("app", "prod", "values:\n  a: 1\n  b: "+hostile+"\n", "values:\n  a: 2\n  p: {fn::secret: {ciphertext: "+ciphertext+"}}\n")
		const revisions, tags = prod + "/revisions", prod + "/revisions/tags"
		p := f.get(f.member, revisions, "3 eve", "latest", "Difference", "latest revision 3")
		f.hides(revisions, p, "Set the version tag", tags)
		p = f.get(f.member, revisions+"/compare?from=2&to=3", "2 removed lines, 2 added lines", "a: 1", "p: {fn::secret: {ciphertext: [secret]}}", `<option value="2" selected>`)
		f.hides(revisions, p, ciphertext)
		f.get(f.member, revisions+"/compare", "2 removed lines, 2 added lines")
		f.get(f.member, revisions+"/compare?from=0&to=2", "0 removed lines, 3 added lines", `<option value="0" selected>`)
		f.get(f.member, revisions+"/compare?from=3&to=3", "The definitions are equal.")
		for query, status := range map[string]int{"from=x": http.StatusBadRequest, "from=-1": http.StatusBadRequest, "to=9": http.StatusNotFound} {
			if p := f.member.Get(revisions + "/compare?" + query); p.Status != status {
				t.Errorf("%s: status %d", query, p.Status)
			}
		}

		f.post(f.member, tags, http.StatusForbidden, "tag", "stable", "number", "2")
		f.shows(tags, f.post(f.admin, tags, http.StatusUnprocessableEntity, "tag", "9lives", "number", "2"), "The version tag &#34;9lives&#34; is not valid", `value="9lives"`)
		f.post(f.admin, tags, http.StatusSeeOther, "tag", "stable", "number", "2")
		f.get(f.admin, revisions, "The version tag stable names revision 2. Undo", "stable revision 2", `name="action" value="remove"`)
		f.get(f.member, prod+"?version=stable", "@2", "stable")
		f.post(f.admin, tags, http.StatusSeeOther, "tag", "stable", "number", "3")
		f.get(f.admin, revisions, "stable revision 3", `<input type="hidden" name="number" value="2">`)
		f.post(f.admin, tags, http.StatusSeeOther, "tag", "stable", "number", "0", "action", "remove")
		f.get(f.admin, revisions, "Removed the version tag stable. Undo")
		f.hides(revisions, f.get(f.admin, revisions), "stable")
		f.post(f.admin, tags, http.StatusUnprocessableEntity, "tag", "latest", "number", "2")

		f.hides(prod, f.get(f.member, prod+"?version=2"), "Roll back")
		f.get(f.admin, prod+"?version=2", "Roll back to revision 2?", "Retract revision 2?")
		const retract = revisions + "/retract"
		f.post(f.member, retract, http.StatusForbidden, "version", "2")
		f.shows(retract, f.post(f.admin, retract, http.StatusUnprocessableEntity, "version", "3"), "Revision 3 is the newest one")
		f.post(f.admin, retract, http.StatusUnprocessableEntity, "version", "2", "replacement", "x")
		f.post(f.admin, retract, http.StatusSeeOther, "version", "2", "replacement", "3", "reason", hostile)
		f.get(f.member, revisions, "retracted by admin; revision 3 replaces it: <script>")
		f.get(f.member, revisions+"/compare?from=2&to=3", "Revision 2 is retracted. Revision 3 replaces it.", "The definitions are equal.")
		f.post(f.member, revisions+"/rollback", http.StatusForbidden, "version", "1")
	})
}

// TestPages lists revisions on several pages.
func TestPages(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	f.environment("app", "prod")
	f.write(func(tx *store.Tx) error {
		e, err := tx.EnvironmentFor("acme", "app", "prod", "", "")
		must.OK(t, err)
		for n := int64(2); n <= 150; n++ {
			must.OK(t, tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: e.ID, Number: n, Definition: "values: {}", CreatedBy: "eve", CreatedAt: tx.Now()}))
		}
		e.LastNumber = 150
		return tx.SaveEnvironment(e.Environment)
	})
	p := f.get(f.member, prod+"/revisions", "?before=51", "from=50&amp;to=51")
	f.hides(prod, p, "First page")
	f.get(f.member, prod+"/revisions?before=51", "First page", "from=0&amp;to=1")
	if p := f.member.Get(prod + "/revisions?before=x"); p.Status != http.StatusBadRequest {
		t.Errorf("an invalid number: status %d", p.Status)
	}
}

// TestUsers shows environments and stacks that refer to an environment, but not those that the visitor may not see.
func TestUsers(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.environment("app", "base")
		f.get(f.member, base+"/app/base/users", "Nothing that you can see uses the environment", "pulumi config env add app/base")
		f.environment("app", "prod", "imports:\n- app/base@stable\n")
		f.Stack("web", "prod")
		f.write(func(tx *store.Tx) error {
			e, err := tx.EnvironmentFor("acme", "app", "base", "", "")
			must.OK(t, err)
			st, err := tx.StackByName("acme", "web", "prod")
			must.OK(t, err)
			return tx.SaveStackEnvironment(store.StackEnvironment{EnvironmentID: e.ID, StackID: st.ID, StackVersion: 7, Version: "latest"})
		})
		const users = base + "/app/base/users"
		f.get(f.member, users, "Used by 2", "app/ prod stable revision 2 environment", "web/ prod latest update 7 stack", `href="/acme/web/prod"`, `href="`+prod+`"`)
		f.get(f.member, base, "1 stack, 1 environment")
		f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
		f.hides(users, f.get(f.member, users, "app/ prod", "Used by 1"), "/acme/web/prod")
		f.hides(base, f.get(f.member, base, "1 environment never"), "1 stack")
		if p := f.member.Get(users + "?offset=-1"); p.Status != http.StatusBadRequest {
			t.Errorf("an invalid offset: status %d", p.Status)
		}
	})
}

func TestNew(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	f.environment("app", "prod")
	f.get(f.member, base, base+"/new")
	f.get(f.member, base+"/new", `<option value="app">`, `value="default"`)
	f.shows(base, f.post(f.member, base, http.StatusUnprocessableEntity, "project", "a/b", "name", "dev"), "The project name &#34;a/b&#34; is not valid", `id="project-problem"`, `value="dev"`)
	f.shows(base, f.post(f.member, base, http.StatusUnprocessableEntity, "project", "app", "name", hostile), `id="name-problem"`)
	f.shows(base, f.post(f.member, base, http.StatusUnprocessableEntity, "project", "app", "name", "prod"), "already exists", `id="name-problem"`)
	if p := f.post(f.member, base, http.StatusSeeOther, "project", "app", "name", "dev"); p.Location() != base+"/app/dev" {
		t.Errorf("after a new environment: %q", p.Location())
	}
	f.get(f.member, base+"/app/dev", "you: admin", "The definition is empty", "pulumi env edit acme/app/dev")
	guest := f.SignInWith(f.AddUser("guest", identity.RoleCollaborator))
	f.hides(base, f.get(guest, base), base+"/new")
	if p := guest.Get(base + "/new"); p.Status != http.StatusForbidden {
		t.Errorf("a collaborator: status %d", p.Status)
	}
	f.post(guest, base, http.StatusForbidden, "project", "app", "name", "x")
}

func TestSettings(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.environment("app", "prod")
		f.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", map[string]string{"name": "core"}, nil)
		const settings = prod + "/settings"
		p := f.get(f.member, settings, "No tag.", "Administrators of acme", "admin, who created it", "Members of acme", "The environment is not protected.", "Clone the environment")
		f.hides(settings, p, settings+"/tags", settings+"/access", settings+"/protection", settings+"/delete")

		f.post(f.member, settings+"/tags", http.StatusForbidden, "tag", "team", "content", "core")
		f.shows(settings, f.post(f.admin, settings+"/tags", http.StatusUnprocessableEntity, "tag", "a b", "content", hostile), "The tag name &#34;a b&#34; is not valid", `value="a b"`)
		f.post(f.admin, settings+"/tags", http.StatusSeeOther, "tag", "team", "content", "core")
		f.post(f.admin, settings+"/tags", http.StatusSeeOther, "tag", "team", "content", hostile)
		f.get(f.member, settings, "team :<script>", "Tags 1")
		f.post(f.admin, settings+"/tags", http.StatusSeeOther, "tag", "team", "action", "remove")
		f.get(f.admin, settings, "Removed the tag team:<script>", "Undo", "No tag.")

		f.post(f.member, settings+"/protection", http.StatusForbidden, "protected", "on")
		f.post(f.admin, settings+"/protection", http.StatusSeeOther, "protected", "on")
		f.get(f.admin, settings, "The environment is protected from deletion. Undo", "Stop protecting", "It is protected from deletion.")
		f.shows(settings, f.post(f.admin, settings+"/delete", http.StatusUnprocessableEntity, "confirm", "app/prod"), "is protected from deletion")
		f.post(f.admin, settings+"/protection", http.StatusSeeOther, "protected", "")
		f.get(f.admin, settings, "The environment is no longer protected. Undo", "Protect from deletion")

		f.post(f.member, settings+"/access", http.StatusForbidden, "team", "core", "permission", "write")
		f.shows(settings, f.post(f.admin, settings+"/access", http.StatusUnprocessableEntity, "team", "none", "permission", "write"), `id="team-problem"`, `value="none"`)
		f.post(f.admin, settings+"/access", http.StatusUnprocessableEntity, "team", "core", "permission", "x")
		f.post(f.admin, settings+"/access", http.StatusSeeOther, "team", "core", "permission", "write")
		f.get(f.member, settings, "Team core", "Also change the definition")
		f.post(f.admin, settings+"/access", http.StatusSeeOther, "team", "core", "permission", "none")
		f.hides(settings, f.get(f.member, settings), "Team core")

		const grants = settings + "/grants"
		f.post(f.member, grants, http.StatusForbidden, "kind", "project", "to", "web")
		f.shows(settings, f.post(f.admin, grants, http.StatusUnprocessableEntity, "kind", "stack", "to", "web/none", "previews", "on"), `id="to-problem"`, `value="web/none"`, `name="previews" value="on" checked`)
		f.post(f.admin, grants, http.StatusUnprocessableEntity, "kind", "tag", "to", "tier")
		f.post(f.admin, grants, http.StatusSeeOther, "kind", "project", "to", "web", "previews", "on")
		p = f.get(f.member, settings, "all stacks of the project web", "given by admin", "updates, previews, branches")
		f.hides(settings, p, grants)
		id := regexp.MustCompile(`name="remove" value="([^"]+)"`).FindStringSubmatch(f.get(f.admin, settings).Body)
		f.post(f.admin, grants, http.StatusSeeOther, "remove", id[1])
		f.get(f.member, settings, "No job opens the environment")

		f.shows(settings, f.post(f.member, settings+"/clone", http.StatusUnprocessableEntity, "project", "app", "name", "prod", "history", "on"), "already exists", `id="name-problem"`, `name="history" value="on" checked`)
		if p := f.post(f.member, settings+"/clone", http.StatusSeeOther, "project", "lab", "name", "copy"); p.Location() != base+"/lab/copy" {
			t.Errorf("after a clone: %q", p.Location())
		}

		f.post(f.member, settings+"/delete", http.StatusForbidden, "confirm", "app/prod")
		f.shows(settings, f.post(f.admin, settings+"/delete", http.StatusUnprocessableEntity, "confirm", "prod"), "This is not app/prod.")
		f.AgeSessions(16 * time.Minute)
		f.get(f.admin, settings, "Sign in again")
		f.post(f.admin, settings+"/delete", http.StatusForbidden, "confirm", "app/prod")
		admin := f.SignIn()
		f.post(admin, settings+"/delete", http.StatusSeeOther, "confirm", "app/prod")
		f.hides(base, f.get(admin, base, "Deleted app/prod.", "lab/ copy"), prod)
	})
}

// TestStrange asks for pages with texts that are no names, some of which PostgreSQL refuses.
func TestStrange(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.environment("app", "prod")
		f.get(f.member, base+"?q=%00%ff"+strings.Repeat("a+", 900), "app/ prod")
		for _, path := range []string{
			base + "?after=0/a%00/b", base + "?after=99999999999999999999/a/b", prod + "?version=%00", prod + "?version=%ff", prod + "?version=../x", prod + "?version=99999999999999999999",
		} {
			if p := f.member.Get(path); p.Status != http.StatusBadRequest && p.Status != http.StatusNotFound {
				t.Errorf("%s: status %d", path, p.Status)
			}
		}
		for _, path := range []string{prod + "/revisions/tags", prod + "/settings/tags", prod + "/settings/access", prod + "/settings/clone", base} {
			f.post(f.admin, path, http.StatusUnprocessableEntity, "tag", "\x00", "number", "1", "content", "x", "team", "\x00", "permission", "read", "project", "\x00", "name", "\xff")
		}
	})
}
