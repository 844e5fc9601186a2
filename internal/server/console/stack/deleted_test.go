package stack_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// TestDeletedStacks deletes stacks on a page, and restores and purges them on another one.
func TestDeletedStacks(t *testing.T) {
	f := newFixture(t)
	const page = "/acme/-/stacks/deleted"
	if got := text(f.page(page).Body); !strings.Contains(got, "No deleted stack") {
		t.Errorf("without a deleted stack: %s", got)
	}
	if got := text(f.page(f.base + "/settings/options").Body); !strings.Contains(got, "It can be restored for 30 d.") {
		t.Errorf("the options do not say how long: %s", got)
	}
	remove := func() {
		t.Helper()
		form := url.Values{"confirm": {"web/prod"}, "force": {"on"}}
		if p := f.browser.Post(f.base+"/settings/options/delete", form); p.Status != http.StatusSeeOther {
			t.Fatalf("deleting: %d %s", p.Status, text(p.Body))
		}
	}
	remove()
	if got := text(f.page("/acme/-/stacks").Body); strings.Contains(got, "prod") || !strings.Contains(got, "Deleted stacks") {
		t.Errorf("the list of stacks: %s", got)
	}
	forms := func(action string) []string {
		t.Helper()
		var paths []string
		for _, m := range regexp.MustCompile(`action="(/acme/-/stacks/deleted/[^"]+/`+action+`)"`).FindAllStringSubmatch(f.page(page).Body, -1) {
			paths = append(paths, m[1])
		}
		return paths
	}
	if got := text(f.page(page).Body); !strings.Contains(got, "web/ prod v1, 2 resources") || !strings.Contains(got, "admin") {
		t.Errorf("the deleted stack: %s", got)
	}
	first := forms("restore")
	if len(first) != 1 {
		t.Fatalf("the page has the forms %v", first)
	}
	f.Stack("web", "prod")
	if p := f.browser.Post(first[0], url.Values{"name": {"prod"}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("already exists") {
		t.Errorf("with a name that is taken: %d %s", p.Status, text(p.Body))
	}
	remove()
	if p := f.browser.Post(first[0], url.Values{"name": {"old"}}); p.Status != http.StatusSeeOther || p.Location() != "/acme/web/old" {
		t.Errorf("restoring: %d to %q: %s", p.Status, p.Location(), text(p.Body))
	}
	if got := f.page("/acme/web/old"); !got.Contains(`title="import v1"`) {
		t.Errorf("the restored stack: %s", text(got.Body))
	}

	// Members without a permission see none, and only administrators purge.
	ann := f.SignInWith(f.AddUser("ann", "member"))
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 102}, nil)
	if p := ann.Get(page); p.Status != http.StatusOK || !p.Contains("No deleted stack") {
		t.Errorf("a member sees %d %s", p.Status, text(p.Body))
	}
	purge := forms("purge")
	if len(purge) != 1 {
		t.Fatalf("the page has the forms %v", purge)
	}
	if p := ann.Post(purge[0], nil); p.Status != http.StatusForbidden {
		t.Errorf("a member purges: %d", p.Status)
	}
	if p := f.browser.Post(purge[0], nil); p.Status != http.StatusSeeOther || p.Location() != page {
		t.Errorf("purging: %d to %q: %s", p.Status, p.Location(), text(p.Body))
	}
	if got := text(f.page(page).Body); !strings.Contains(got, "No deleted stack") {
		t.Errorf("after the purge: %s", got)
	}
}
