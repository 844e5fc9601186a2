package orgsettings_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// problemAt returns what a page says next to the field with an id, or "".
func problemAt(body, id string) string {
	m := regexp.MustCompile(`(?s)<p class="err" id="` + regexp.QuoteMeta(id) + `-problem">.*?<span>(.*?)</span>`).FindStringSubmatch(body)
	if m == nil || !strings.Contains(body, `aria-describedby="`+id+`-problem`) && !strings.Contains(body, id+`-problem" aria-describedby`) {
		return ""
	}
	return m[1]
}

// TestProblemsBesideFields sends wrong forms: each page keeps the values, and says next to the field what is wrong.
func TestProblemsBesideFields(t *testing.T) {
	s := newSettings(t)
	s.AddUser("ada", "member")
	s.post(s.admin, base+"/teams", http.StatusSeeOther, "name", "core")
	for _, c := range []struct {
		path, field, problem, kept string
		form                       []string
	}{
		{"/members", "login", "already a member", `value="ada"`, []string{"login", "ada", "role", "member"}},
		{"/teams", "name", "already has a team", `value="the description"`, []string{"name", "core", "description", "the description"}},
		{"/teams/core/members", "member", "is not a member of acme", `value="nemo"`, []string{"member", "nemo", "action", "add"}},
		{"/teams/core/members", "member", "Enter a login, such as ada (ada)", `value="Ad"`, []string{"member", "Ad", "action", "add"}},
		{"/teams/core/stacks", "stack", "does not exist", `value="web/none"`, []string{"stack", "web/none", "permission", "103"}},
		{"/teams/core/tokens", "token-name", "needs a name", `value="why"`, []string{"description", "why", "expires", "30"}},
		{"/tokens", "token-name", "too long", `value="why"`, []string{"name", long + "n", "description", "why", "expires", "30"}},
		{"/issuers", "minutes", "number of minutes", `value="https://issuer.invalid"`, []string{"name", "ci", "url", "https://issuer.invalid", "minutes", "soon"}},
		{"/issuers", "url", "The URL", `value="the name"`, []string{"name", "the name", "url", "ftp://issuer.invalid"}},
		{"/webhooks", "name", "name of a webhook has", `value="https://hooks.invalid/x"`, []string{"name", "a b", "url", "https://hooks.invalid/x", "format", "raw"}},
		{"/pulumi-version", "version", "is not a version", `value="newest"`, []string{"version", "newest"}},
		{"/organization/rename", "name", "not valid", `value="a b"`, []string{"name", "a b"}},
		{"/organization/delete", "confirm-delete", "acme", "Type acme to confirm", []string{"confirm", "nothing"}},
		{"/integrations", "owner", "Account is missing.", `value="the name"`, []string{"kind", "github", "name", "the name", "token", "x"}},
	} {
		p := s.post(s.admin, base+c.path, http.StatusUnprocessableEntity, c.form...)
		if got := problemAt(p.Body, c.field); !strings.Contains(got, c.problem) {
			t.Errorf("%s %v: the problem at %s is %q, want %q: %s", c.path, c.form, c.field, got, c.problem, plain(p.Body))
		}
		s.shows(p, c.kept)
		if strings.Count(p.Body, "<h1") != 1 {
			t.Errorf("%s has %d titles", c.path, strings.Count(p.Body, "<h1"))
		}
	}
}

// TestMembersList shows teams and how members sign in to administrators, filters them, and asks before one is removed.
func TestMembersList(t *testing.T) {
	s := newSettings(t)
	ada := s.SignInWith(s.AddUser("ada", "member"))
	s.AddUser("bob", "member")
	s.post(s.admin, base+"/teams", http.StatusSeeOther, "name", "payments")
	s.post(s.admin, base+"/teams/payments/members", http.StatusSeeOther, "member", "ada", "action", "add")
	p := s.get(s.admin, base+"/members")
	s.shows(p, `<span class="tag">payments</span>`, "token only", "no team", `popovertarget="remove-`, `action="`+base+`/members/ada/role"`, `name="role" value="admin"`)
	text := plain(p.Body)
	for _, want := range []string{"Members 3", "Administrators 1", "No team 2", "Teams 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
	for query, want := range map[string]string{"show=administrators": "admin", "show=no-team": "admin bob", "q=payments": "ada", "q=payments&show=no-team": ""} {
		var found []string
		body := s.get(s.admin, base+"/members?"+query).Body
		for _, login := range []string{"ada", "admin", "bob"} {
			if strings.Contains(body, "More about "+map[string]string{"admin": "Administrator"}[login]) && login == "admin" || strings.Contains(body, "More about "+login) && login != "admin" {
				found = append(found, login)
			}
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%s shows %q, want %q", query, got, want)
		}
	}
	// Members see neither how others sign in nor forms.
	s.hides(s.get(ada, base+"/members"), "token only", "popovertarget", base+"/members/bob/role", "Add a member")
}

// TestNewSecretAbove shows a new secret once, in a notice above the list.
func TestNewSecretAbove(t *testing.T) {
	s := newSettings(t)
	s.post(s.admin, base+"/teams", http.StatusSeeOther, "name", "core")
	for path, list := range map[string]string{"/tokens": `aria-label="Tokens"`, "/teams/core/tokens": `aria-label="Tokens"`, "/invitations": `aria-label="Members"`} {
		p := s.post(s.admin, base+path, http.StatusOK, "name", hostile, "for", hostile, "role", "member", "expires", "30")
		notice, table := strings.Index(p.Body, `class="note" role="note"`), strings.Index(p.Body, list)
		if notice < 0 || table < notice || !strings.Contains(p.Body[notice:table], "copy-text") {
			t.Errorf("%s: the notice is at %d, the list at %d: %s", path, notice, table, plain(p.Body))
		}
	}
}
