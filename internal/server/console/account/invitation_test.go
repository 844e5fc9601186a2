package account_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

const (
	invitationPath = "/-/invitation"
	membersPath    = "/acme/-/settings/members"
)

// invite returns the path of the link of a new invitation, as the administrator's page shows it.
func invite(t *testing.T, b *consoletest.Browser, role string) string {
	t.Helper()
	p := b.Post("/acme/-/settings/invitations", url.Values{"role": {role}, "for": {"<b>bob</b>"}, "days": {"1"}})
	secret := tokenPattern.FindString(p.Body)
	if p.Status != http.StatusOK || secret == "" || !p.Contains("sends no mail", invitationPath+"?key="+secret, "&lt;b&gt;bob") {
		t.Fatalf("making an invitation: status %d: %s", p.Status, p.Body)
	}
	return invitationPath + "?key=" + secret
}

// joining is a form of the page about the invitation of a link.
func joining(link string, more ...string) url.Values {
	form := url.Values{}
	for pair := range slices.Chunk(more, 2) {
		form.Set(pair[0], pair[1])
	}
	form.Set(consoletest.SeenInvitation(link))
	return form
}

// open follows a link to the page about the invitation. Neither the page nor its address contains the secret.
func open(t *testing.T, b *consoletest.Browser, link string) consoletest.Page {
	t.Helper()
	secret := tokenPattern.FindString(link)
	first := b.Get(link)
	if first.Status != http.StatusSeeOther || first.Location() != invitationPath {
		t.Fatalf("the link leads to %q with status %d", first.Location(), first.Status)
	}
	for _, c := range first.Cookies {
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
			t.Errorf("the cookie is %v", c)
		}
	}
	p := b.Get(invitationPath)
	if p.Contains(secret) || p.Header.Get("Referrer-Policy") != "same-origin" || p.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the page reveals the secret: %v %s", p.Header, p.Body)
	}
	return p
}

func TestInvitationOfAUser(t *testing.T) {
	s := consoletest.New(t)
	admin := s.SignIn()
	s.API(http.MethodPost, "/api/orgs", map[string]string{"name": "research"}, nil)
	token := s.AddUser("bob", "")
	s.API(http.MethodPost, "/api/orgs/research/members/bob", map[string]string{"role": "member"}, nil)
	link := invite(t, admin, "member")
	if p := admin.Get(membersPath); !p.Contains("&lt;b&gt;bob", "Revoke", "Invite…") || tokenPattern.MatchString(p.Body) {
		t.Errorf("the list: %s", p.Body)
	}

	bob := s.SignInWith(token)
	if p := open(t, bob, link); !p.Contains("Join acme", "admin invites you", "Join as bob") || p.Contains("Create a user") {
		t.Errorf("the invitation: %s", p.Body)
	}
	// The role cannot be raised.
	p := bob.Post(invitationPath+"/accept", joining(link, "role", "admin", "org", "research"))
	if p.Status != http.StatusSeeOther || p.Location() != "/acme" {
		t.Fatalf("joining: status %d to %q: %s", p.Status, p.Location(), p.Body)
	}
	if p := bob.Get("/acme"); p.Status != http.StatusOK {
		t.Errorf("the new organization: %d", p.Status)
	}
	if p := bob.Get("/acme/-/settings/tokens"); p.Status != http.StatusForbidden {
		t.Errorf("bob has the rights of an administrator: %d", p.Status)
	}
	if p := admin.Get(membersPath); p.Contains("Revoke") || !p.Contains(">bob<") {
		t.Errorf("the list: %s", p.Body)
	}

	// The link was used.
	other := s.Browser()
	for range 2 {
		other.Get(link)
		if p := other.Get(invitationPath); p.Status != http.StatusNotFound || !p.Contains("was used or revoked") {
			t.Errorf("the link again: status %d: %s", p.Status, p.Body)
		}
	}
	if p := other.Post(invitationPath+"/sign-up", joining(link, "login", "eve")); p.Status != http.StatusNotFound {
		t.Errorf("signing up with a used link: %d", p.Status)
	}
	if p := bob.Post(invitationPath+"/accept", joining(link)); p.Status != http.StatusNotFound || !p.Contains("Open the link") {
		t.Errorf("joining again: status %d: %s", p.Status, p.Body)
	}
}

func TestInvitationOfANewUser(t *testing.T) {
	s := consoletest.New(t)
	link := invite(t, s.SignIn(), "admin")
	b := s.Browser()
	if p := open(t, b, link); !p.Contains("as an administrator", "Create the user and join", "/-/login?next=") || p.Contains("Join as") {
		t.Errorf("the invitation: %s", p.Body)
	}
	for login, text := range map[string]string{"admin": "is taken", "a/b": "is not valid"} {
		if p := b.Post(invitationPath+"/sign-up", joining(link, "login", login, "name", "Carl")); p.Status != http.StatusUnprocessableEntity || !p.Contains(text, `value="Carl"`) {
			t.Errorf("the login %q: status %d: %s", login, p.Status, p.Body)
		}
	}
	// Another site cannot sign a visitor up.
	req := b.Request(http.MethodPost, invitationPath+"/sign-up", joining(link, "login", "carl"))
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	req.Header.Set("Origin", "https://evil.example")
	if p := b.Do(req); p.Status != http.StatusForbidden {
		t.Errorf("a form of another site: %d", p.Status)
	}
	p := b.Post(invitationPath+"/sign-up", joining(link, "login", "carl", "name", "Carl"))
	if p.Status != http.StatusSeeOther || p.Location() != "/user/settings" || sessionOf(p) == "" {
		t.Fatalf("signing up: status %d to %q: %s", p.Status, p.Location(), p.Body)
	}
	if p := b.Get("/user/settings"); !p.Contains(">carl</span>", "only way in", "(invitation)") {
		t.Errorf("the settings: %s", p.Body)
	}
	// The session is recent, so that the user can make another way in.
	if p := b.Post(tokensPath, url.Values{"description": {"laptop"}}); p.Status != http.StatusOK {
		t.Errorf("an access token: %d", p.Status)
	}
	if p := b.Get("/acme/-/settings/tokens"); p.Status != http.StatusOK {
		t.Errorf("the new administrator: %d", p.Status)
	}
	if p := b.Post(invitationPath+"/sign-up", joining(link, "login", "dora")); p.Status != http.StatusUnprocessableEntity && p.Status != http.StatusConflict {
		t.Errorf("signing up again: %d", p.Status)
	}
}

// TestReplacedInvitation opens another invitation, in another tab or from another site, before the visitor sends the form
// that the page of the first one showed.
func TestReplacedInvitation(t *testing.T) {
	s := consoletest.New(t)
	admin := s.SignIn()
	s.API(http.MethodPost, "/api/orgs", map[string]string{"name": "research"}, nil)
	bob := s.AddUser("bob", "")
	s.API(http.MethodPost, "/api/orgs/research/members/bob", map[string]string{"role": "member"}, nil)
	first, second := invite(t, admin, "member"), invite(t, admin, "admin")
	b := s.SignInWith(bob)
	form := joining(first)
	if p := open(t, b, first); !p.Contains(`name="invitation" value="` + form.Get("invitation")) {
		t.Errorf("the form: %s", p.Body)
	}
	newcomer := s.Browser()
	for _, link := range []string{first, second} {
		open(t, newcomer, link)
	}
	open(t, b, second)
	for _, p := range []consoletest.Page{b.Post(invitationPath+"/accept", form), newcomer.Post(invitationPath+"/sign-up", joining(first, "login", "carl"))} {
		if p.Status != http.StatusForbidden || !p.Contains("opened another invitation") || sessionOf(p) != "" {
			t.Errorf("the form of the first invitation: %d to %q: %s", p.Status, p.Location(), p.Body)
		}
	}
	if p := newcomer.Post(invitationPath+"/sign-up", joining(second, "login", "carl")); p.Status != http.StatusSeeOther {
		t.Errorf("the form of the second one: %d: %s", p.Status, p.Body)
	}
}

// TestRevokedInvitation revokes an invitation that a visitor has opened.
func TestRevokedInvitation(t *testing.T) {
	s := consoletest.New(t)
	admin := s.SignIn()
	link := invite(t, admin, "member")
	b := s.Browser()
	open(t, b, link)
	var list struct{ Invites []struct{ ID string } }
	s.API(http.MethodGet, "/api/orgs/acme/invites", nil, &list)
	if p := admin.Post("/acme/-/settings/invitations/"+list.Invites[0].ID+"/revoke", url.Values{}); p.Status != http.StatusSeeOther {
		t.Fatalf("revoking: %d %s", p.Status, p.Body)
	}
	if p := b.Post(invitationPath+"/sign-up", joining(link, "login", "carl")); p.Status != http.StatusNotFound || sessionOf(p) != "" {
		t.Errorf("signing up: %d", p.Status)
	}
	if p := b.Get(invitationPath + "?key=" + strings.Repeat("x", 5000)); p.Status != http.StatusNotFound || len(p.Cookies) > 0 {
		t.Errorf("a long secret: %d, %v", p.Status, p.Cookies)
	}
	log := admin.Get("/-/server/audit?action=user.sign-in-failed")
	if p := admin.Get(log.Location()); !p.Contains("invitation") || tokenPattern.MatchString(p.Body) {
		t.Errorf("the audit log: %s", p.Body)
	}
}

// TestInvitationAtAProvider lets users of an identity provider join.
func TestInvitationAtAProvider(t *testing.T) {
	s, p := withProvider(t, "allow_groups: [engineers]")
	admin := s.SignIn()
	link := invite(t, admin, "member")
	b := s.Browser()
	start := providerPath + "?next=" + url.QueryEscape(invitationPath)
	if page := open(t, b, link); !page.Contains(start) || page.Contains("Create a user") {
		t.Errorf("the invitation: %s", page.Body)
	}
	// The provider's users are the only new ones.
	if page := b.Post(invitationPath+"/sign-up", joining(link, "login", "carl")); page.Status != http.StatusForbidden {
		t.Errorf("signing up past the provider: %d", page.Status)
	}
	// An invitation lets no user in whom the operator's rules keep out.
	p.Claims["groups"] = []string{"sales"}
	if page := b.SignInAt(p, start, nil); sessionOf(page) != "" || !page.Contains("may not use this server") {
		t.Errorf("a user of another group: %d %s", page.Status, page.Body)
	}
	p.Claims["groups"] = []string{"engineers"}
	// Without the intent to join, a new user joins nothing.
	if page := b.SignInAt(p, providerPath, nil); sessionOf(page) != "" || !page.Contains("not a member of any organization") {
		t.Errorf("a sign-in without the invitation: %d %s", page.Status, page.Body)
	}
	if page := s.Browser().SignInAt(p, start, nil); sessionOf(page) != "" || !page.Contains("Open the link of the invitation") {
		t.Errorf("another browser: %d %s", page.Status, page.Body)
	}
	// Another invitation, which another site opens during the sign-in, is not used.
	other := invite(t, admin, "admin")
	back := b.AskProvider(p, start, nil)
	open(t, b, other)
	if page := b.Get(back); sessionOf(page) != "" || !page.Contains("opened another invitation") {
		t.Errorf("a replaced invitation: %d to %q: %s", page.Status, page.Location(), page.Body)
	}
	open(t, b, link)
	// Another site that has opened the invitation cannot begin the sign-in, too.
	req := b.Request(http.MethodGet, start, nil)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	if page := b.Do(req); page.Location() != invitationPath {
		t.Errorf("a sign-in of another site leads to %q", page.Location())
	}
	page := b.SignInAt(p, start, nil)
	if sessionOf(page) == "" || page.Location() != "/acme" {
		t.Fatalf("joining: status %d to %q: %s", page.Status, page.Location(), page.Body)
	}
	if page := b.Get("/acme"); page.Status != http.StatusOK {
		t.Errorf("the organization: %d", page.Status)
	}
	if page := s.Browser().SignInAt(p, providerPath, nil); sessionOf(page) == "" {
		t.Errorf("the next sign-in: %s", page.Body)
	}
}
