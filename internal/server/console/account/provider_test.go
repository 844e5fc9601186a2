package account_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

const providerPath = "/-/login/with/corp"

// withProvider returns a server whose users sign in at a provider.
func withProvider(t *testing.T, more ...string) (*consoletest.Server, *consoletest.Provider) {
	t.Helper()
	p := consoletest.NewProvider(t)
	lines := make([]string, len(more))
	for i, line := range more {
		lines[i] = "    " + line
	}
	s := consoletest.With(t, map[string]string{"sign_in_file": p.File(lines...)})
	p.Redirects = []string{s.URL + providerPath + "/return"}
	return s, p
}

var groupRules = []string{
	"allow_groups: [engineers, platform]", "roles:",
	"  - {group: engineers, organization: acme, role: member}", "  - {group: platform, organization: acme, role: admin}",
}

func sessionOf(p consoletest.Page) string {
	for _, c := range p.Cookies {
		if isCookie(c, "session") && c.MaxAge >= 0 {
			return c.Value
		}
	}
	return ""
}

func TestSignInAtAProvider(t *testing.T) {
	s, p := withProvider(t, groupRules...)
	p.Claims["groups"] = []string{"everyone", "engineers"}
	p.Claims["name"], p.Claims["email"], p.Claims["email_verified"] = "Grace <b>Hopper</b>", "grace@example.com", true
	b := s.Browser()
	login := b.Get("/-/login?next=" + url.QueryEscape(tokensPath))
	if !login.Contains("Sign in with Example Corp", `href="`+providerPath+"?next="+url.QueryEscape(tokensPath)) {
		t.Fatalf("the sign-in page does not offer the provider: %s", login.Body)
	}
	done := b.SignInAt(p, providerPath+"?next="+url.QueryEscape(tokensPath), nil)
	if done.Status != http.StatusSeeOther || done.Location() != tokensPath {
		t.Fatalf("the sign-in: status %d to %q: %s", done.Status, done.Location(), done.Body)
	}
	for _, c := range done.Cookies {
		if isCookie(c, "session") && time.Until(c.Expires) > 24*time.Hour || isCookie(c, "sign-in") && c.MaxAge >= 0 {
			t.Errorf("the cookie is %v", c)
		}
	}
	if asked := p.Asked[0]; asked.Get("max_age") != "" || asked.Get("scope") != "openid profile email" {
		t.Errorf("the provider was asked %v", asked)
	}
	if you := b.Get("/user/settings"); !you.Contains(">grace</span>", "Grace &lt;b&gt;Hopper", "grace@example.com", "(provider)") {
		t.Errorf("the settings of the new user: %s", you.Body)
	}
	if home := b.Get("/acme"); home.Status != http.StatusOK {
		t.Errorf("the organization of the new user: status %d", home.Status)
	}
	if pools := b.Post("/acme/-/pools", url.Values{"name": {"x"}}); pools.Status != http.StatusForbidden {
		t.Errorf("a member made a pool: status %d", pools.Status)
	}
	// The second sign-in finds the same user, with the roles of now.
	p.Claims["groups"], p.Claims["preferred_username"] = []string{"platform"}, "someone-else"
	other := s.Browser()
	other.SignInAt(p, providerPath, nil)
	if you := other.Get("/user/settings"); !you.Contains(">grace</span>") {
		t.Errorf("the second sign-in is another user: %s", you.Body)
	}
	if made := other.Post("/acme/-/pools", url.Values{"name": {"x"}}); made.Status != http.StatusOK {
		t.Errorf("an administrator cannot make a pool: status %d", made.Status)
	}
}

// TestRemovedFromTheGroup signs in a user whom the provider has removed from the group.
func TestRemovedFromTheGroup(t *testing.T) {
	for name, claim := range map[string]any{"another group": []string{"sales"}, "no group": []string{}, "no list": 7, "no claim": nil} {
		s, p := withProvider(t, groupRules...)
		p.Claims["groups"] = "engineers" // one text counts as a list
		first := s.Browser()
		if done := first.SignInAt(p, providerPath, nil); sessionOf(done) == "" {
			t.Fatalf("%s: signing in: %s", name, done.Body)
		}
		if p.Claims["groups"] = claim; claim == nil {
			delete(p.Claims, "groups")
			p.UserInfo = map[string]any{"sub": "1234"}
		}
		done := s.Browser().SignInAt(p, providerPath, nil)
		if done.Status != http.StatusUnprocessableEntity || sessionOf(done) != "" || !done.Contains("may not use this server") {
			t.Errorf("%s: status %d, cookies %v: %s", name, done.Status, done.Cookies, done.Body)
		}
		if you := first.Get("/user/settings"); you.Status != http.StatusSeeOther {
			t.Errorf("%s: the earlier session remains: status %d", name, you.Status)
		}
	}
}

func TestWhoMaySignIn(t *testing.T) {
	type claims = map[string]any
	for _, tt := range []struct {
		name   string
		rules  []string
		claims claims
		info   claims
		want   string // a part of the page; "" for a sign-in
	}{
		{"everyone", []string{"allow_everyone: true", "roles: [{organization: acme, role: member}]"}, claims{}, nil, ""},
		{"without a role", []string{"allow_everyone: true"}, claims{}, nil, "not a member of any organization"},
		{"a role in an unknown organization", []string{"allow_everyone: true", "roles: [{organization: none, role: admin}]"}, claims{}, nil, "not a member of any organization"},
		{"the domain", []string{"allow_domains: [Example.com]", "roles: [{organization: acme, role: member}]"}, claims{"email": "grace@EXAMPLE.com", "email_verified": true}, nil, ""},
		{"the domain, unverified", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{"email": "grace@example.com"}, nil, "may not use"},
		{"the domain, not verified", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{"email": "grace@example.com", "email_verified": false}, nil, "may not use"},
		{"a subdomain", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{"email": "grace@evil.example.com", "email_verified": true}, nil, "may not use"},
		{"a longer domain", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{"email": "grace@example.com@evil.example", "email_verified": true}, nil, "may not use"},
		{"two domains", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{"email": "grace@evil.example@example.com", "email_verified": true}, nil, "may not use"},
		{"claims of the further call", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{}, claims{"sub": "1234", "email": "grace@example.com", "email_verified": true}, ""},
		{"claims of the further call about another user", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{}, claims{"sub": "1235", "email": "grace@example.com", "email_verified": true}, "did not confirm"},
		{"a verification of another address", []string{"allow_domains: [example.com]", "roles: [{organization: acme, role: member}]"}, claims{"email_verified": true}, claims{"sub": "1234", "email": "grace@example.com"}, "may not use"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, p := withProvider(t, tt.rules...)
			maps.Copy(p.Claims, tt.claims)
			p.UserInfo = tt.info
			done := s.Browser().SignInAt(p, providerPath, nil)
			if in := sessionOf(done) != ""; in != (tt.want == "") || !in && !done.Contains(tt.want) {
				t.Errorf("status %d, signed in %v: %s", done.Status, in, done.Body)
			}
		})
	}
}

// TestForgedAnswers sends answers that prove nothing. The server must refuse each of them.
func TestForgedAnswers(t *testing.T) {
	s, p := withProvider(t, "allow_everyone: true", "roles: [{organization: acme, role: admin}]")
	p.Redirects = append(p.Redirects, "https://evil.example/")
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string, value any) func(map[string]any) {
		return func(claims map[string]any) {
			if claims[name] = value; value == nil {
				delete(claims, name)
			}
		}
	}
	for name, tamper := range map[string]func(map[string]any){
		"the nonce of another sign-in":    set("nonce", "other"),
		"no nonce":                        set("nonce", nil),
		"another audience":                set("aud", "other"),
		"several audiences, no party":     set("aud", []string{consoletest.ClientID, "other"}),
		"another party":                   set("azp", "other"),
		"another issuer":                  set("iss", "https://evil.example"),
		"expired":                         set("exp", time.Now().Add(-time.Minute).Unix()),
		"no expiry":                       set("exp", nil),
		"not valid yet":                   set("nbf", time.Now().Add(time.Hour).Unix()),
		"no subject":                      set("sub", nil),
		"an empty subject":                set("sub", ""),
		"a number as subject":             set("sub", 7),
		"a subject that is much too long": set("sub", strings.Repeat("x", 256)),
	} {
		p.Tamper = tamper
		refused(t, name, s.Browser().SignInAt(p, providerPath, nil))
	}
	p.Tamper = nil
	public, err := x509.MarshalPKIXPublicKey(p.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	for name, sign := range map[string]func(map[string]any) string{
		"a key of another issuer": func(c map[string]any) string { return consoletest.SignToken(t, jose.RS256, foreign, c) },
		"the public key as a secret": func(c map[string]any) string {
			return consoletest.SignToken(t, jose.HS256, public, c)
		},
		"no signature": func(c map[string]any) string {
			payload, err := json.Marshal(c)
			if err != nil {
				t.Error(err)
			}
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(payload) + "."
		},
		"no token": func(map[string]any) string { return "x" },
	} {
		p.Sign = sign
		refused(t, name, s.Browser().SignInAt(p, providerPath, nil))
	}
	p.Sign = nil
	for name, change := range map[string]func(url.Values){
		"another state":  func(q url.Values) { q.Set("state", "x") },
		"no state":       func(q url.Values) { q.Del("state") },
		"another issuer": func(q url.Values) { q.Set("iss", "https://evil.example") },
		"another code":   func(q url.Values) { q.Set("code", "x") },
		"no code":        func(q url.Values) { q.Del("code") },
		"an error":       func(q url.Values) { q.Set("error", "<script>"); q.Set("error_description", "evil words") },
	} {
		answer := s.Browser().SignInAt(p, providerPath, change)
		if refused(t, name, answer); answer.Contains("evil words") || answer.Contains("<script>") {
			t.Errorf("%s: the page shows the answer's text: %s", name, answer.Body)
		}
	}
	// Another browser, a second use, and an answer without a beginning.
	victim, attacker := s.Browser(), s.Browser()
	path := attacker.AskProvider(p, providerPath, nil)
	victim.AskProvider(p, providerPath, nil)
	refused(t, "the answer to another browser", victim.Get(path))
	refused(t, "an answer without a beginning", s.Browser().Get(path))
	kept := attacker.Cookies(mustParse(t, s.URL))
	if done := attacker.Get(path); sessionOf(done) == "" {
		t.Fatalf("the browser that began: status %d: %s", done.Status, done.Body)
	}
	refused(t, "the answer for a second time", attacker.Get(path))
	attacker.SetCookies(nil, kept)
	refused(t, "the code for a second time", attacker.Get(path))
	// Only this site is a target.
	open := s.Browser().SignInAt(p, providerPath+"?next=https%3A%2F%2Fevil.example%2F", nil)
	if open.Location() != "/" {
		t.Errorf("the sign-in leads to %q", open.Location())
	}
}

func refused(t *testing.T, name string, p consoletest.Page) {
	t.Helper()
	if p.Status != http.StatusUnprocessableEntity && p.Status != http.StatusServiceUnavailable || sessionOf(p) != "" || !p.Contains("Access token") {
		t.Errorf("%s: status %d, cookies %v: %s", name, p.Status, p.Cookies, p.Body)
	}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestProviderDown(t *testing.T) {
	s, p := withProvider(t, "allow_everyone: true")
	p.Stop()
	b := s.Browser()
	down := b.Get(providerPath)
	if down.Status != http.StatusServiceUnavailable || !down.Contains("Example Corp is not available now", `name="token"`) {
		t.Errorf("the provider is down: status %d: %s", down.Status, down.Body)
	}
	if p := b.Post("/-/login", url.Values{"token": {s.Token}}); sessionOf(p) == "" {
		t.Errorf("another way: status %d", p.Status)
	}
	if p := b.Get("/-/login/with/none"); p.Status != http.StatusNotFound {
		t.Errorf("an unknown provider: status %d", p.Status)
	}
}

// TestConfirm requires that a provider asks a user again who must confirm who they are.
func TestConfirm(t *testing.T) {
	s, p := withProvider(t, "allow_everyone: true", "roles: [{organization: acme, role: member}]")
	b := s.Browser()
	p.Tamper = func(c map[string]any) { c["auth_time"] = time.Now().Add(-3 * time.Hour).Unix() }
	if done := b.SignInAt(p, providerPath, nil); sessionOf(done) == "" {
		t.Fatalf("signing in: %s", done.Body)
	}
	tokens := b.Get(tokensPath)
	if !tokens.Contains("sign in again") || tokens.Contains(`name="description"`) {
		t.Errorf("the old sign-in at the provider counts as recent: %s", tokens.Body)
	}
	if done := b.SignInAt(p, providerPath, nil); sessionOf(done) != "" || !done.Contains("did not ask you to sign in again") {
		t.Errorf("the provider did not ask: status %d: %s", done.Status, done.Body)
	}
	p.Tamper = nil
	if done := b.SignInAt(p, providerPath, nil); sessionOf(done) == "" {
		t.Errorf("the provider asked: %s", done.Body)
	}
	if asked := p.Asked[len(p.Asked)-1]; asked.Get("max_age") != "900" {
		t.Errorf("the provider was asked %v", asked)
	}
	if tokens := b.Get(tokensPath); !tokens.Contains(`name="description"`) {
		t.Errorf("the new sign-in does not count as recent: %s", tokens.Body)
	}
}

func TestConnect(t *testing.T) {
	s, p := withProvider(t, "allow_everyone: true")
	const connect = "/user/settings/connect/corp"
	old := s.SignIn()
	s.AgeSessions(20 * time.Minute)
	if p := old.Get(connect); p.Status != http.StatusSeeOther || !strings.HasPrefix(p.Location(), "/-/login?") {
		t.Errorf("connecting with an old sign-in: status %d to %q", p.Status, p.Location())
	}
	admin := s.SignIn()
	for _, from := range []string{"cross-site", "same-site"} {
		req := admin.Request(http.MethodGet, connect, nil)
		req.Header.Set("Sec-Fetch-Site", from)
		if got := admin.Do(req); got.Location() != "/user/settings" {
			t.Errorf("a link on a page that is %s leads to %q", from, got.Location())
		}
	}
	if done := admin.SignInAt(p, connect, nil); done.Status != http.StatusSeeOther || done.Location() != "/user/settings" {
		t.Fatalf("connecting: status %d: %s", done.Status, done.Body)
	}
	if you := admin.Get("/user/settings"); !you.Contains("Example Corp", "grace", `value="1234"`) {
		t.Errorf("the settings do not show the account: %s", you.Body)
	}
	b := s.Browser()
	if done := b.SignInAt(p, providerPath, nil); sessionOf(done) == "" {
		t.Fatalf("signing in: %s", done.Body)
	}
	if you := b.Get("/user/settings"); !you.Contains(">admin</span>") {
		t.Errorf("the account is another user: %s", you.Body)
	}
	// Another user can neither take the account nor receive it by a link of an attacker.
	ada := s.SignInWith(s.AddUser("ada", identity.RoleMember))
	if done := ada.SignInAt(p, connect, nil); !done.Contains("belongs to another user") {
		t.Errorf("taking the account: status %d: %s", done.Status, done.Body)
	}
	path := ada.AskProvider(p, connect, nil)
	kept := ada.Cookies(mustParse(t, s.URL))
	admin.Post("/user/settings/identities/remove", url.Values{"issuer": {p.URL}, "subject": {"1234"}})
	admin.SetCookies(nil, kept[:0])
	for _, c := range kept {
		if isCookie(c, "sign-in") {
			admin.SetCookies(nil, []*http.Cookie{c})
		}
	}
	if done := admin.Get(path); !done.Contains("You signed out, or in as another user") {
		t.Errorf("the account of ada for the administrator: status %d: %s", done.Status, done.Body)
	}
	if you := admin.Get("/user/settings"); you.Contains(`value="1234"`) {
		t.Errorf("the account was not removed, or returned: %s", you.Body)
	}
}

// TestLoginsAreNotTaken signs in users who call themselves like others.
func TestLoginsAreNotTaken(t *testing.T) {
	s, p := withProvider(t, "allow_everyone: true", "roles: [{organization: acme, role: member}]")
	for _, wish := range []string{"admin", "ADMIN", "../../x y\u202e", "api", ""} {
		p.Claims["sub"], p.Claims["preferred_username"] = "sub-"+wish, wish
		b := s.Browser()
		if done := b.SignInAt(p, providerPath, nil); sessionOf(done) == "" {
			t.Fatalf("%q: %s", wish, done.Body)
		}
	}
	var logins []string
	err := s.DB().Read(t.Context(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName(consoletest.Org)
		if err != nil {
			return err
		}
		members, err := tx.Members(org.ID, "", "", 100)
		for _, m := range members {
			logins = append(logins, m.Login)
		}
		return err
	})
	if got := strings.Join(logins, " "); err != nil || got != "admin admin-2 admin-3 user user-2 x-y" {
		t.Errorf("the logins are %s (%v)", got, err)
	}
}
