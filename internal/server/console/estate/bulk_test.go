package estate_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

// configure gives a stack the settings that a deployment needs.
func (f *fixture) configure(name string) {
	f.t.Helper()
	f.API(http.MethodPost, "/api/stacks/acme/"+name+"/deployments/settings", m{"sourceContext": m{"git": m{"repoUrl": "https://git.example.com/web.git", "branch": "main"}}}, nil)
}

// ids returns the ids of stacks, as the boxes of the list have them.
func (f *fixture) ids(names ...string) []string {
	f.t.Helper()
	body := f.get(path).Body
	var list []string
	for _, name := range names {
		found := regexp.MustCompile(`name="stack" value="([^"]+)" aria-label="Select ` + regexp.QuoteMeta(name) + `"`).FindStringSubmatch(body)
		if found == nil {
			f.t.Fatalf("the list has no box for %s", name)
		}
		list = append(list, found[1])
	}
	return list
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)

// confirmed returns the answer to the question about stacks.
func confirmed(p consoletest.Page) url.Values {
	form := url.Values{"confirmed": {"1"}}
	_, body, _ := strings.Cut(p.Body, `id="deploy"`)
	for _, field := range hidden.FindAllStringSubmatch(body, -1) {
		form.Add(field[1], field[2])
	}
	return form
}

// TestBulk deploys several stacks at once, twice with the same form, and pauses and resumes them.
func TestBulk(t *testing.T) {
	f := newFixture(t)
	f.Pool()
	names := []string{"web/prod", "web/dev", "web/bare", "web/busy", "web/held"}
	for _, name := range names {
		f.stack(name, m{})
		if name != "web/bare" {
			f.configure(name)
		}
	}
	f.API(http.MethodPost, "/api/stacks/acme/web/busy/deployments", m{"operation": "preview", "inheritSettings": true}, nil)
	f.update(f.Token, "web/held", "update", "from a laptop", "")
	ids := f.ids(names...)
	post := func(b *consoletest.Browser, form url.Values) consoletest.Page { return b.Post(path+"/bulk", form) }

	ask := post(f.browser, url.Values{"do": {"update"}, "stack": append(slices.Clone(ids), "no-stack")})
	text := plain(ask.Body)
	for _, want := range []string{
		"Update 6 stacks", "Wait 3", "web/busy Waiting for deployment #1 of the stack", "web/prod No agent of the pool", "Cannot start 3",
		"web/held A client outside", "A stack The stack does not exist, or you may not see it.", "web/bare", "Update 3 stacks",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the question lacks %q: %s", want, text)
		}
	}
	form := confirmed(ask)
	if got, want := form["stack"], []string{ids[0], ids[1], ids[3]}; !slices.Equal(got, want) {
		t.Fatalf("the question sends %q, want %q", got, want)
	}
	var where string
	for range 2 { // the second is a double submission
		done := post(f.browser, form)
		if where = done.Location(); done.Status != http.StatusSeeOther || !strings.HasPrefix(where, "/acme/-/deployments?batch=") {
			t.Fatalf("status %d, to %q: %s", done.Status, where, plain(done.Body))
		}
	}
	if list := f.get(where); strings.Count(list.Body, `class="row" role="row"`) != 3 || !list.Contains("web/prod", "web/dev", "web/busy", "Started together") || list.Contains("web/held") {
		t.Errorf("the deployments of the batch are %s", plain(list.Body))
	}
	if p := f.get("/acme/-/deployments?batch=other"); strings.Contains(p.Body, `class="row" role="row"`) {
		t.Error("another batch shows deployments")
	}

	// What became impossible meanwhile is named, and the others start.
	form = confirmed(post(f.browser, url.Values{"do": {"detect-drift"}, "stack": ids[:2]}))
	f.API(http.MethodDelete, "/api/stacks/acme/web/dev", nil, nil)
	if text := plain(post(f.browser, form).Body); !strings.Contains(text, "Detect drift of 1 stack of 2") || !strings.Contains(text, "Not started 1 A stack The stack does not exist") || !strings.Contains(text, "Show 1 deployment") {
		t.Errorf("the result is %s", text)
	}

	ids[1] = ids[0]
	for i, do := range []string{"pause", "resume"} {
		ask := post(f.browser, url.Values{"do": {do}, "stack": ids[1:3]})
		if text := plain(ask.Body); !strings.Contains(text, "Cannot 1 web/bare The stack has no deployment settings.") || !strings.Contains(text, "of the stacks") {
			t.Errorf("%s asks %s", do, text)
		}
		if done := post(f.browser, confirmed(ask)); done.Status != http.StatusSeeOther || done.Location() != path {
			t.Errorf("%s: status %d: %s", do, done.Status, plain(done.Body))
		}
		if p := f.get(path); !strings.Contains(plain(p.Body), []string{"Paused", "Resumed"}[i]+" 1 stack. Undo") || !p.Contains(`name="do" value="`+[]string{"resume", "pause"}[i]+`"> <input`, `name="stack" value="`+ids[0]+`"> <button`) {
			t.Errorf("after %s, Undo is not offered: %s", do, regexp.MustCompile("(?s)<div class=.toast.*?</div>").FindString(p.Body))
		}
		if paused := strings.Contains(strings.Join(f.rows(path+"?group=none&q=prod"), " "), "paused"); paused != (i == 0) {
			t.Errorf("after %s, the stack is paused: %t", do, paused)
		}
	}

	for what, form := range map[string]url.Values{
		"without stacks": {"do": {"update"}}, "unknown": {"do": {"destroy"}, "stack": ids}, "too many": {"do": {"update"}, "stack": slices.Repeat(ids, 41)},
		"without a batch": {"do": {"update"}, "stack": ids, "confirmed": {"1"}},
	} {
		if p := post(f.browser, form); p.Status != http.StatusBadRequest {
			t.Errorf("%s: status %d", what, p.Status)
		}
	}
	if p := f.browser.Get(path + "/bulk"); p.Status != http.StatusSeeOther || p.Location() != path {
		t.Errorf("the address of the form: status %d", p.Status)
	}

	// A member who may only read starts nothing, also by a form of an administrator.
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 101}, nil)
	reader := f.SignInWith(f.AddUser("eve", "member"))
	if ask := post(reader, url.Values{"do": {"update"}, "stack": ids[:1]}); !strings.Contains(plain(ask.Body), "Cannot start 1") || strings.Contains(ask.Body, `name="confirmed"`) {
		t.Errorf("a reader is asked %s", plain(ask.Body))
	}
	for _, do := range []string{"update", "pause"} {
		if p := post(reader, url.Values{"do": {do}, "stack": ids[:1], "batch": {"mine"}, "confirmed": {"1"}}); !strings.Contains(plain(p.Body), `it needs the permission "write"`) {
			t.Errorf("a reader's %s: status %d: %s", do, p.Status, plain(p.Body))
		}
	}
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 0}, nil)
	if p := post(reader, url.Values{"do": {"update"}, "stack": ids}); strings.Contains(plain(p.Body), "web/") {
		t.Errorf("a member without permissions sees names: %s", plain(p.Body))
	}
}

// TestFolds folds groups by the URL.
func TestFolds(t *testing.T) {
	f := newFixture(t)
	f.stack("payments/prod", m{"owner": hostile})
	f.stack("payments/dev", m{})
	f.stack("web/prod", m{})
	href := func(at, group string) string {
		t.Helper()
		found := regexp.MustCompile(`id="fold-g-` + regexp.QuoteMeta(url.QueryEscape(group)) + `" href="([^"]+)"`).FindStringSubmatch(f.get(at).Body)
		if found == nil {
			t.Fatalf("%s has no link that folds %q", at, group)
		}
		return strings.ReplaceAll(found[1], "&amp;", "&")
	}
	folded := href(path, "payments")
	f.check("folded", folded, "payments 2", "web 1", "prod")
	both := href(folded, "web")
	f.check("both folded", both, "payments 2", "web 1")
	if p := f.get(both); p.Contains("No stack") || strings.Count(p.Body, `aria-expanded="false"`) != 2 {
		t.Errorf("all groups are folded: %s", plain(p.Body))
	}
	f.check("one unfolded", href(both, "payments"), "payments 2", "dev", "prod", "web 1")
	f.check("a group without a value", href(path+"?group=owner", ""), strings.ReplaceAll(hostile, "\u202e", "\ufffd")+" 1", "payments/ prod", "No owner 2")
	f.check("a hostile group", href(path+"?group=owner", hostile), strings.ReplaceAll(hostile, "\u202e", "\ufffd")+" 1", "No owner 2", "dev", "web/ prod")
	if p := f.browser.Get(path + "?" + strings.Repeat("fold=x&", 101)); p.Status != http.StatusBadRequest {
		t.Errorf("too many folds: status %d", p.Status)
	}
}

// TestSavedViews saves, shows and deletes views.
func TestSavedViews(t *testing.T) {
	f := newFixture(t)
	f.stack("web/prod", m{"owner": "core"})
	const bidi = "<img src=x>\u202egnp.exe"
	save := func(b *consoletest.Browser, fields ...string) consoletest.Page {
		form := url.Values{}
		for i := 0; i < len(fields); i += 2 {
			form.Add(fields[i], fields[i+1])
		}
		return b.Post(path+"/views", form)
	}
	p := save(f.browser, "view", " Mine ", "owner", "core", "group", "none", "page", "3", "other", "x")
	if want := path + "?group=none&owner=core"; p.Status != http.StatusSeeOther || p.Location() != want {
		t.Fatalf("status %d, to %q, want %q", p.Status, p.Location(), want)
	}
	if p := f.get(p.Location()); !p.Contains(`<span class="cut">Mine</span>`, `href="/acme/-/stacks?group=none&amp;owner=core" aria-current="true"`) {
		t.Errorf("the view is not shown: %s", p.Body)
	}
	if p := save(f.browser, "view", bidi, "project", "web", "sort", "name"); p.Location() != "/acme/web?sort=name" {
		t.Errorf("a view of a project: to %q", p.Location())
	}
	save(f.browser, "view", "Mine", "star", "on")
	page := f.get(path)
	if !page.Contains(`href="/acme/-/stacks?star=on">Mine`, `href="/acme/web?sort=name"`) || page.Contains("owner=core\">Mine") {
		t.Errorf("the views are %s", page.Body)
	}
	for what, fields := range map[string][]string{"a wrong state": {"view", "x", "state", "none"}, "a long query": {"view", "x", "q", strings.Repeat("a", 201)}} {
		if p := save(f.browser, fields...); p.Status != http.StatusBadRequest {
			t.Errorf("%s: status %d", what, p.Status)
		}
	}
	// What is wrong with the name is at its field, over the list with the same filters.
	for what, name := range map[string]string{"no name": " ", "a long name": strings.Repeat("ä", 61), "a control character": "a\tb"} {
		p := save(f.browser, "view", name, "project", "web", "owner", "nobody")
		if p.Status != http.StatusUnprocessableEntity || !p.Contains(`<details open>`, `id="view-name-problem"`, `value="`+name+`"`, `data-of="/acme/web?owner=nobody"`, "No stack found", `name="owner" value="nobody"`) {
			t.Errorf("%s: status %d: %s", what, p.Status, p.Body)
		}
	}
	other := f.SignInWith(f.AddUser("bob", "member"))
	if p := other.Get(path); strings.Contains(p.Body, "Mine") {
		t.Error("another user sees the view")
	}
	other.Post(path+"/views/delete", url.Values{"view": {"Mine"}})
	if p := f.get(path); !p.Contains(">Mine<") {
		t.Error("another user has deleted the view")
	}
	for i := range 28 {
		save(f.browser, "view", fmt.Sprintf("v%d", i))
	}
	if p := save(f.browser, "view", "one more"); p.Status != http.StatusUnprocessableEntity || !p.Contains("delete one first") {
		t.Errorf("one view too many: status %d", p.Status)
	}
	if p := save(f.browser, "view", "Mine", "sort", "drift"); p.Status != http.StatusSeeOther {
		t.Errorf("replacing one of the most views: status %d", p.Status)
	}
	for _, name := range []string{"Mine", bidi} {
		if p := f.browser.Post(path+"/views/delete", url.Values{"view": {name}}); p.Status != http.StatusSeeOther {
			t.Errorf("deleting a view: status %d", p.Status)
		}
	}
	if p := f.get(path); p.Contains(">Mine<") || p.Contains("sort=name\">") && strings.Contains(p.Body, "/acme/web?sort=name") {
		t.Error("the deleted views are shown")
	}
}
