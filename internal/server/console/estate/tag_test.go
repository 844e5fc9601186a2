package estate_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

// TestBulkTag sets and removes a tag of several stacks, with the permission on each, and undoes it.
func TestBulkTag(t *testing.T) {
	f := newFixture(t)
	f.stack("web/prod", m{"env": "live"})
	f.stack("web/dev", m{})
	ids := f.ids("web/prod", "web/dev")
	post := func(b *consoletest.Browser, form url.Values) consoletest.Page {
		return b.Post(path+"/bulk", form)
	}
	tags := func(prod, dev string) {
		t.Helper()
		for name, want := range map[string]string{"web/prod": prod, "web/dev": dev} {
			var st struct{ Tags map[string]string }
			f.API(http.MethodGet, "/api/stacks/acme/"+name, nil, &st)
			if got, ok := st.Tags["env"]; got != want || ok != (want != "") {
				t.Errorf("the tag of %s is %q, want %q", name, got, want)
			}
		}
	}
	undo := func(p consoletest.Page, says string) {
		t.Helper()
		_, toast, _ := strings.Cut(f.get(p.Location()).Body, `<div class="toast">`)
		toast, _, _ = strings.Cut(toast, "</form>")
		if !strings.Contains(plain(toast), says+" Undo") {
			t.Fatalf("the list says %q, want %q", plain(toast), says)
		}
		form := url.Values{}
		for _, field := range hidden.FindAllStringSubmatch(toast, -1) {
			form.Add(field[1], field[2])
		}
		if p := post(f.browser, form); p.Status != http.StatusSeeOther {
			t.Fatalf("Undo: status %d: %s", p.Status, plain(p.Body))
		}
	}
	ask := post(f.browser, url.Values{"do": {"tag"}, "stack": ids})
	form := confirmed(ask)
	if text := plain(ask.Body); !strings.Contains(text, "Tag 2 stacks") || !strings.Contains(text, "Can be changed 2") || !ask.Contains(`name="name"`, `value="remove"`) {
		t.Fatalf("the question is %s", text)
	}
	for _, wrong := range []string{"", hostile, "pulumi:project"} {
		form.Set("name", wrong)
		if p := post(f.browser, form); p.Status != http.StatusUnprocessableEntity || !p.Contains(`aria-describedby="bulk-tag-problem"`) {
			t.Errorf("the name %q: status %d: %s", wrong, p.Status, plain(p.Body))
		}
	}
	form.Set("name", "env")
	form.Set("value", "prod")
	done := post(f.browser, form)
	tags("prod", "prod")
	undo(done, "Tagged 2 stacks: env prod.")
	tags("live", "")
	post(f.browser, form)

	remove := maps.Clone(form)
	remove["confirmed"] = []string{"remove"}
	done = post(f.browser, remove)
	tags("", "")
	undo(done, "Removed the tag env from 2 stacks.")
	tags("prod", "prod")

	// What cannot be done is said for each stack, and recorded is what was done.
	f.API(http.MethodDelete, "/api/stacks/acme/web/dev/tags/env", nil, nil)
	if text := plain(post(f.browser, remove).Body); !strings.Contains(text, "Tag 1 stack of 2") || !strings.Contains(text, `Not changed 1 web/dev The stack has no tag "env".`) {
		t.Errorf("the result is %s", text)
	}
	if text := plain(f.get("/acme/-/activity?part=access").Body); strings.Count(text, "changed env web/ prod in the console") != 3 || strings.Count(text, "added env web/ dev in the console") != 3 {
		t.Errorf("the audit log is %s", text)
	}

	// The permission on each stack counts, also for a form of an administrator.
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 101}, nil)
	reader := f.SignInWith(f.AddUser("eve", "member"))
	if text := plain(post(reader, url.Values{"do": {"tag"}, "stack": ids}).Body); !strings.Contains(text, "Cannot 2") || strings.Contains(text, "Remove the tag") {
		t.Errorf("a reader is asked %s", text)
	}
	if text := plain(post(reader, form).Body); !strings.Contains(text, "Not changed 2") {
		t.Errorf("a reader's form: %s", text)
	}
	tags("", "")
}
