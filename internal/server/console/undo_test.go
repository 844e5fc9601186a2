package console_test

import (
	"encoding/base64"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

var (
	undoForm  = regexp.MustCompile(`(?s)<div class="toast">.*?<span class="cut">(.*?)</span>\s*<form method="post" action="([^"]*)" class="inline">(.*?)<button class="btn small">Undo</button>`)
	undoField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
)

// offered returns the sentence and the form that a page shows after a change, which undoes it.
func offered(p consoletest.Page) (text, action string, form url.Values) {
	found := undoForm.FindStringSubmatch(p.Body)
	if found == nil {
		return "", "", nil
	}
	form = url.Values{}
	for _, field := range undoField.FindAllStringSubmatch(found[3], -1) {
		form.Add(html.UnescapeString(field[1]), html.UnescapeString(field[2]))
	}
	return html.UnescapeString(found[1]), html.UnescapeString(found[2]), form
}

// TestUndo makes changes and undoes them with the form that the next page shows once.
func TestUndo(t *testing.T) {
	s := consoletest.New(t)
	s.AddUser("ada", "member")
	s.Stack("web", "prod")
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", map[string]any{"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://git.example.com/web.git", "branch": "main"}}}, nil)
	s.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}, nil)
	b := s.SignIn()
	post := func(path string, form url.Values) (to string) {
		t.Helper()
		p := b.Post(path, form)
		if p.Status != http.StatusSeeOther {
			t.Fatalf("POST %s: status %d: %s", path, p.Status, p.Body)
		}
		return p.Location()
	}
	const base, members, team = "/acme/web/prod", "/acme/-/settings/members", "/acme/-/settings/teams/core"
	post(team+"/members", url.Values{"member": {"ada"}, "action": {"add"}})
	hostile := `<b>"'&` + "\u202e"
	for _, c := range []struct {
		path string
		form url.Values
		text string
		// page contains made after the change, and not before it.
		page, made string
	}{
		{"/acme/-/stacks/star", url.Values{"star": {"web/prod"}}, "Starred web/prod.", base, `aria-pressed="true"`},
		{base + "/tags", url.Values{"name": {"env"}, "value": {hostile}}, "Added the tag env.", base, `Remove the tag env`},
		{base + "/pause", nil, "Paused web/prod.", base + "/runs", base + "/resume"},
		{members + "/ada/role", url.Values{"role": {"billing-manager"}}, "ada is now: billing manager.", members, "Role of ada: Billing manager"},
		{team + "/members", url.Values{"member": {"ada"}, "action": {"promote"}}, "ada is now administrator of the team.", team, "Make a member: ada"},
		{team + "/stacks", url.Values{"stack": {"web/prod"}, "permission": {"102"}}, "The team has the permission write on web/prod.", team, "Permission on web/prod: write"},
	} {
		if p := b.Get(c.page); p.Contains(c.made) {
			t.Fatalf("%s contains %q before the change", c.page, c.made)
		}
		to := post(c.path, c.form)
		text, action, form := offered(b.Get(to))
		if text != c.text || action == "" {
			t.Errorf("%s: the next page says %q, want %q", c.path, text, c.text)
			continue
		}
		p := b.Get(c.page)
		if _, again, _ := offered(p); again != "" || !p.Contains(c.made) {
			t.Errorf("%s: Undo is offered again: %t, or the change was not made", c.path, again != "")
		}
		undone, redo, _ := offered(b.Get(post(action, form)))
		if p := b.Get(c.page); p.Contains(c.made) || undone == "" || redo == "" {
			t.Errorf("%s: after Undo, %q is on the page, or the page says nothing: %q", c.path, c.made, undone)
		}
	}

	// What another user has done already is not offered.
	post(base+"/pause", nil)
	post(team+"/members", url.Values{"member": {"ada"}, "action": {"promote"}})
	b.Get(base)
	for path, form := range map[string]url.Values{base + "/pause": nil, team + "/members": {"member": {"ada"}, "action": {"promote"}}} {
		if text, action, _ := offered(b.Get(post(path, form))); action != "" {
			t.Errorf("%s again: the next page offers to undo %q", path, text)
		}
	}
	post(base+"/resume", nil)
	b.Get(base)

	// A tag gets its former value again.
	post(base+"/tags", url.Values{"name": {"env"}, "value": {hostile}})
	for _, form := range []url.Values{{"name": {"env"}, "value": {"other"}}, {"name": {"env"}, "remove": {"on"}}} {
		_, action, undo := offered(b.Get(post(base+"/tags", form)))
		post(action, undo)
		var st struct{ Tags map[string]string }
		if s.API(http.MethodGet, "/api/stacks/acme/web/prod", nil, &st); st.Tags["env"] != hostile {
			t.Errorf("after Undo of %v, the value is %q", form, st.Tags["env"])
		}
	}
	b.Get(base)

	// What has failed, or gave up a right, is not offered.
	if p := b.Post(members+"/admin/role", url.Values{"role": {"member"}}); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("the last administrator: status %d", p.Status)
	}
	post(members+"/ada/role", url.Values{"role": {"admin"}})
	b.Get(base)
	if _, action, _ := offered(b.Get(post(members+"/admin/role", url.Values{"role": {"member"}}))); action != "" {
		t.Error("the former administrator is offered the role again")
	}
}

// TestForgedUndo checks that only the visitor who has made a change is offered to undo it, and that no link does it.
func TestForgedUndo(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	token := s.AddUser("ada", "member")
	b, ada := s.SignIn(), s.SignInWith(token)
	cookieOf := func(p consoletest.Page) *http.Cookie {
		for _, c := range p.Cookies {
			if strings.Contains(c.Name, "undo") {
				return c
			}
		}
		t.Fatal("no cookie was set")
		return nil
	}
	made := cookieOf(b.Post("/acme/-/stacks/star", url.Values{"star": {"web/prod"}}))
	if !strings.HasPrefix(made.Name, "__Host-") || !made.HttpOnly || !made.Secure {
		t.Errorf("the cookie is %v", made)
	}
	request := b.Request(http.MethodGet, "/acme/-/stacks", nil)
	request.Header.Set("Sec-Purpose", "prefetch;anonymous-client-ip")
	if _, action, _ := offered(b.Do(request)); action != "" {
		t.Error("a page that was only prefetched offers Undo")
	}
	if _, action, _ := offered(b.Get("/acme/-/stacks")); action == "" {
		t.Error("the prefetched page has removed the offer")
	}
	forged := *made
	text, _ := base64.RawURLEncoding.DecodeString(made.Value)
	outside := strings.Replace(string(text), "/acme/-/stacks/star", "//evil.example/x", 1)
	for what, value := range map[string]string{"of another user": made.Value, "damaged": "x", "elsewhere": base64.RawURLEncoding.EncodeToString([]byte(outside))} {
		forged.Value = value
		who := b
		if what == "of another user" {
			who = ada
		}
		who.SetCookies(nil, []*http.Cookie{&forged})
		if p := who.Get("/acme/-/stacks"); p.Status != http.StatusOK || strings.Contains(p.Body, "Undo") {
			t.Errorf("the cookie %s: status %d, or Undo is offered", what, p.Status)
		}
	}
}
