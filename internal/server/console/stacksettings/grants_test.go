package stacksettings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestGrants(t *testing.T) {
	s, b := newServer(t)
	bob := s.SignInWith(s.AddUser("bob", "member"))
	s.API(http.MethodPost, "/api/stacks/acme/app", m{"stackName": "prod"}, nil)
	access, grants := base+"/access", base+"/access/grants"
	if p := bob.Post(grants, url.Values{"kind": {"project"}, "name": {"web"}}); p.Status != http.StatusForbidden && p.Status != http.StatusNotFound {
		t.Errorf("a member gives a grant: status %d", p.Status)
	}
	for _, c := range []struct{ kind, name, says string }{
		{"stack", "prod", "PROJECT/STACK"}, {"stack", "acme/web/none", "does not exist"}, {"project", hostile, "is not valid"}, {"tag", "tier", "NAME=VALUE"}, {"", "web", "Choose which"}, {"tag", "", "Name a stack"},
	} {
		p := check(t, access, b.Post(grants, url.Values{"kind": {c.kind}, "name": {c.name}, "previews": {"on"}}))
		if p.Status != http.StatusUnprocessableEntity || !p.Contains(c.says, `aria-describedby="name-problem`, `name="previews" value="on" checked`) {
			t.Errorf("%q %q: status %d: %s", c.kind, c.name, p.Status, p.Body)
		}
	}
	for kind, name := range map[string]string{"stack": "app/prod", "project": "app", "tag": "tier=" + hostile} {
		if p := b.Post(grants, url.Values{"kind": {kind}, "name": {name}}); p.Status != http.StatusSeeOther {
			t.Fatalf("granting to %s: status %d: %s", name, p.Status, p.Body)
		}
	}
	p := get(t, b, access)
	if !p.Contains("Jobs that read its outputs", `href="/acme/app/prod"`, "all stacks of the project app", "all stacks with the tag tier=", "Remove the grant to acme/app/prod", "other stacks of ", "rule of acme") {
		t.Errorf("the granting stack: %s", p.Body)
	}
	if p := get(t, bob, access); !p.Contains("acme/app/prod") || p.Contains("Remove the grant") || p.Contains("Give the grant") {
		t.Errorf("a reader sees %s", p.Body)
	}
	if p := get(t, b, "/acme/app/prod/settings/access"); !p.Contains("What its jobs read", `href="`+strings.TrimSuffix(base, "/settings")+`"`, "grant to this stack", "grant to all stacks of the project app") {
		t.Errorf("the reading stack: %s", p.Body)
	}
	var list struct{ ReadBy []struct{ ID string } }
	s.API(http.MethodGet, "/api/stacks"+strings.TrimSuffix(base, "/settings")+"/grants", nil, &list)
	for _, g := range list.ReadBy {
		if p := b.Post(grants, url.Values{"remove": {g.ID}}); p.Status != http.StatusSeeOther {
			t.Errorf("removing: status %d", p.Status)
		}
	}
	if p := get(t, b, access); len(list.ReadBy) != 3 || p.Contains("Remove the grant") {
		t.Errorf("%d grants, and after their removal: %s", len(list.ReadBy), p.Body)
	}
}
