package account_test

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const tokensPath = "/user/settings/tokens"

var tokenPattern = regexp.MustCompile(`pul-[0-9a-zA-Z]{20,}`)

// isCookie reports whether a cookie has a name, which the port of the server follows.
func isCookie(c *http.Cookie, name string) bool { return strings.HasPrefix(c.Name, "__Host-"+name+"-") }

func cookieOf(t *testing.T, p consoletest.Page) *http.Cookie {
	t.Helper()
	for _, c := range p.Cookies {
		if isCookie(c, "session") {
			return c
		}
	}
	t.Fatalf("no session: status %d, cookies %v", p.Status, p.Cookies)
	return nil
}

func TestSignInByToken(t *testing.T) {
	s := consoletest.New(t)
	b := s.Browser()
	if p := b.Get("/"); p.Status != http.StatusSeeOther || p.Location() != "/-/login" {
		t.Fatalf("the start page of a visitor: status %d to %q", p.Status, p.Location())
	}
	if p := b.Get(tokensPath); p.Location() != "/-/login?next="+url.QueryEscape(tokensPath) {
		t.Errorf("a page that needs a sign-in redirects to %q", p.Location())
	}
	wrong := b.Post("/-/login", url.Values{"token": {"pul-wrong"}, "next": {tokensPath}})
	if wrong.Status != http.StatusUnprocessableEntity || len(wrong.Cookies) > 0 || !wrong.Contains("not a valid personal access token", `value="`+tokensPath+`"`) || wrong.Contains("pul-wrong") {
		t.Errorf("a wrong token: status %d, cookies %v: %s", wrong.Status, wrong.Cookies, wrong.Body)
	}
	p := b.Post("/-/login", url.Values{"token": {s.Token}, "next": {tokensPath}})
	c := cookieOf(t, p)
	if p.Status != http.StatusSeeOther || p.Location() != tokensPath {
		t.Errorf("the sign-in: status %d to %q", p.Status, p.Location())
	}
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || time.Until(c.Expires) > signin.Longest {
		t.Errorf("the cookie is %v", c)
	}
	if p := b.Get(tokensPath); p.Status != http.StatusOK || p.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("after the sign-in: status %d, Cache-Control %q", p.Status, p.Header.Get("Cache-Control"))
	}
	// Each sign-in has its own session, which replaces the browser's earlier one.
	second := cookieOf(t, b.Post("/-/login", url.Values{"token": {s.Token}}))
	if second.Value == c.Value {
		t.Error("the second sign-in has the same session")
	}
	if !signedOut(s, c.Value) || signedOut(s, second.Value) {
		t.Errorf("after the second sign-in: the first session has ended: %v, the second: %v", signedOut(s, c.Value), signedOut(s, second.Value))
	}
	if p := b.Post("/-/logout", nil); p.Status != http.StatusSeeOther || cookieOf(t, p).MaxAge >= 0 {
		t.Errorf("the sign-out: status %d, cookies %v", p.Status, p.Cookies)
	}
	if !signedOut(s, second.Value) {
		t.Error("the session has not ended after the sign-out")
	}
}

// signedOut reports whether a session's cookie opens no page.
func signedOut(s *consoletest.Server, cookie string) bool {
	b := s.Browser()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	b.SetCookies(nil, []*http.Cookie{{Name: "__Host-session-" + port, Value: cookie}})
	return b.Get("/user/settings").Status == http.StatusSeeOther
}

func TestTokenSignInTurnedOff(t *testing.T) {
	s := consoletest.With(t, map[string]string{"token_sign_in": "false"})
	b := s.Browser()
	if p := b.Get("/-/login"); p.Status != http.StatusOK || p.Contains(`name="token"`) {
		t.Errorf("the sign-in page offers tokens: %s", p.Body)
	}
	if p := b.Post("/-/login", url.Values{"token": {s.Token}}); p.Status == http.StatusSeeOther || len(p.Cookies) > 0 {
		t.Errorf("the sign-in by token: status %d", p.Status)
	}
}

func TestFailedSignInsAreLimited(t *testing.T) {
	s := consoletest.New(t)
	b := s.Browser()
	for range 40 {
		if p := b.Post("/-/login", url.Values{"token": {"wrong"}}); p.Contains("Too many sign-ins") {
			return
		}
	}
	t.Error("40 wrong tokens were checked")
}

func makeLink(t *testing.T, s *consoletest.Server, login string) string {
	t.Helper()
	u, err := identity.New(s.DB(), storetest.Log()).UserByLogin(t.Context(), login)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signin.New(s.DB(), signin.Options{Log: storetest.Log()}).MakeLink(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSignInByLink(t *testing.T) {
	s := consoletest.New(t)
	key := makeLink(t, s, identity.AdminLogin)
	path := "/-/login/link?key=" + key
	b := s.Browser()
	for range 2 { // programs that preview links get the page
		if p := b.Get(path); p.Status != http.StatusOK || len(p.Cookies) > 0 || !p.Contains(`method="post"`, key) {
			t.Errorf("the link's page: status %d, cookies %v", p.Status, p.Cookies)
		}
	}
	if p := b.Post("/-/login/link", url.Values{"key": {key}}); p.Status != http.StatusSeeOther || p.Location() != "/" || signedOut(s, cookieOf(t, p).Value) {
		t.Errorf("using the link: status %d to %q", p.Status, p.Location())
	}
	if p := s.Browser().Post("/-/login/link", url.Values{"key": {key}}); p.Status != http.StatusUnprocessableEntity || len(p.Cookies) > 0 || !p.Contains("was used") {
		t.Errorf("using the link again: status %d, cookies %v", p.Status, p.Cookies)
	}
}

func TestNextStaysOnTheSite(t *testing.T) {
	s := consoletest.New(t)
	for next, want := range map[string]string{
		"/acme/-/pools?x=1#y":         "/acme/-/pools?x=1#y",
		"/cli-login?a=%2F%2Fevil&b=c": "/cli-login?a=%2F%2Fevil&b=c",
		"":                            "/",
		"//evil.example":              "/",
		`/\evil.example`:              "/",
		`/./\evil.example`:            "/",
		`/x/../\evil.example`:         "/",
		"https://evil.example/":       "/",
		"javascript:alert(1)":         "/",
		"evil.example":                "/",
		"/\t/evil.example":            "/",
		" //evil.example":             "/",
	} {
		if p := s.Browser().Post("/-/login", url.Values{"token": {s.Token}, "next": {next}}); p.Location() != want {
			t.Errorf("next %q leads to %q, want %q", next, p.Location(), want)
		}
	}
	b := s.SignIn()
	if p := b.Get("/-/login?next=" + url.QueryEscape(`/./\evil.example`)); p.Location() != "/" {
		t.Errorf("the sign-in page leads to %q", p.Location())
	}
}

func TestOtherSitesCannotPost(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	for name, from := range map[string]struct{ site, origin string }{
		"another site":                     {"cross-site", "https://evil.example"},
		"another port of the host":         {"same-site", "http://127.0.0.1:1"},
		"a file":                           {"cross-site", "null"},
		"another site, by an old browser":  {"", "http://evil.example"},
		"a frame without an origin, by it": {"", "null"},
	} {
		for _, path := range []string{"/-/logout", "/-/login", "/cli-login", tokensPath} {
			req := b.Request(http.MethodPost, path, url.Values{"token": {s.Token}})
			req.Header.Set("Sec-Fetch-Site", from.site)
			req.Header.Set("Origin", from.origin)
			if p := b.Do(req); p.Status != http.StatusForbidden || len(p.Cookies) > 0 {
				t.Errorf("%s: POST %s: status %d, want 403", name, path, p.Status)
			}
		}
	}
	if p := b.Get("/user/settings"); p.Status != http.StatusOK {
		t.Errorf("after the refused requests: status %d", p.Status)
	}
}

func TestCookiesAndTokensStayApart(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	if p := b.Get("/api/user"); p.Status != http.StatusUnauthorized {
		t.Errorf("the API answered a cookie with status %d, want 401", p.Status)
	}
	if p := b.Post("/api/user/tokens", nil); p.Status != http.StatusUnauthorized {
		t.Errorf("the API answered a form with a cookie with status %d, want 401", p.Status)
	}
	visitor := s.Browser()
	for _, scheme := range []string{"token ", "Bearer "} {
		req := visitor.Request(http.MethodGet, "/user/settings", nil)
		req.Header.Set("Authorization", scheme+s.Token)
		if p := visitor.Do(req); p.Status != http.StatusSeeOther {
			t.Errorf("a page answered an access token with status %d, want a redirect to the sign-in", p.Status)
		}
	}
}

func TestSessionsAreListedAndRevoked(t *testing.T) {
	s := consoletest.New(t)
	here, there := s.SignIn(), s.SignIn()
	p := here.Get("/user/settings")
	ends := regexp.MustCompile(`/user/settings/sessions/([^/"]+)/end`).FindAllStringSubmatch(p.Body, -1)
	if len(ends) != 2 || !p.Contains("this one", consoletest.AgentText) {
		t.Fatalf("the settings list %d sessions, want 2: %s", len(ends), p.Body)
	}
	// Another user cannot end them.
	ada := s.SignInWith(s.AddUser("ada", identity.RoleMember))
	for _, end := range ends {
		ada.Post(end[0], nil)
	}
	if there.Get("/user/settings").Status != http.StatusOK || here.Get("/user/settings").Status != http.StatusOK {
		t.Error("another user ended the sessions")
	}
	if p := here.Post("/user/settings/sessions/end", nil); p.Status != http.StatusSeeOther {
		t.Errorf("ending the other sessions: status %d", p.Status)
	}
	if there.Get("/user/settings").Status != http.StatusSeeOther || here.Get("/user/settings").Status != http.StatusOK || ada.Get("/user/settings").Status != http.StatusOK {
		t.Error("ending the other sessions ended the wrong ones")
	}
}

// TestOnlyUsersKeepASession makes the requests of an open page and of a user.
func TestOnlyUsersKeepASession(t *testing.T) {
	s := consoletest.New(t)
	for _, tt := range []struct {
		accept, mode string
		kept         bool
	}{
		{"text/event-stream", "", false},
		{"text/event-stream", "cors", false},
		{"text/html", "same-origin", false},
		{"text/html", "cors", false},
		{"text/html", "navigate", true},
		{"text/html", "", true}, // of a browser that does not say
	} {
		b := s.SignIn()
		seen := func(change string) (at int64) {
			err := s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				if change != "" {
					_, err := tx.Exec(change)
					return err
				}
				list, err := tx.SessionsOf(userID(t, s, identity.AdminLogin))
				at = list[0].SeenAt.Unix()
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		seen("UPDATE sessions SET seen_at = seen_at - 3600000000")
		before := seen("")
		req := b.Request(http.MethodGet, "/acme", nil)
		req.Header.Set("Accept", tt.accept)
		if tt.mode != "" {
			req.Header.Set("Sec-Fetch-Mode", tt.mode)
		}
		ctx, cancel := context.WithCancel(t.Context())
		res, err := b.Client().Do(req.WithContext(ctx))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("Accept %q, mode %q: %v, %v", tt.accept, tt.mode, res, err)
		}
		if kept := seen("") > before; kept != tt.kept {
			t.Errorf("Accept %q, mode %q: the session was used: %v", tt.accept, tt.mode, kept)
		}
		cancel()
		res.Body.Close()
		b.Post("/-/logout", nil)
	}
}

func userID(t *testing.T, s *consoletest.Server, login string) string {
	t.Helper()
	u, err := identity.New(s.DB(), storetest.Log()).UserByLogin(t.Context(), login)
	if err != nil {
		t.Fatal(err)
	}
	return u.ID
}

func TestRemovedMemberIsSignedOut(t *testing.T) {
	s := consoletest.New(t)
	ada := s.SignInWith(s.AddUser("ada", identity.RoleMember))
	if p := ada.Get("/user/settings"); p.Status != http.StatusOK {
		t.Fatalf("a member: status %d", p.Status)
	}
	s.API(http.MethodDelete, "/api/orgs/"+consoletest.Org+"/members/ada", nil, nil)
	if p := ada.Get("/user/settings"); p.Status != http.StatusSeeOther {
		t.Errorf("a removed member: status %d, want a redirect to the sign-in", p.Status)
	}
}

func TestTokens(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	made := b.Post(tokensPath, url.Values{"description": {"for <b>tests</b>"}, "expires": {"30"}})
	token := tokenPattern.FindString(made.Body)
	if made.Status != http.StatusOK || token == "" || made.Header.Get("Cache-Control") != "no-store" || made.Contains("<b>tests") {
		t.Fatalf("creating a token: status %d: %s", made.Status, made.Body)
	}
	if status, body := s.APIAs(token, http.MethodGet, "/api/user", nil, nil); status != http.StatusOK {
		t.Errorf("the new token: status %d: %s", status, body)
	}
	list := b.Get(tokensPath)
	if !list.Contains("for &lt;b&gt;tests") || list.Contains(token) {
		t.Errorf("the list does not show the token's description, or shows the token: %s", list.Body)
	}
	// Revoking every listed token, the new one included, leaves none that works.
	ada := s.SignInWith(s.AddUser("ada", identity.RoleMember))
	paths := regexp.MustCompile(tokensPath+`/[^/"]+/revoke`).FindAllString(list.Body, -1)
	if len(paths) == 0 {
		t.Fatal("no token can be revoked")
	}
	for _, path := range paths {
		ada.Post(path, nil)
	}
	if status, _ := s.APIAs(token, http.MethodGet, "/api/user", nil, nil); status != http.StatusOK {
		t.Error("another user revoked the token")
	}
	for _, path := range paths {
		if p := b.Post(path, nil); p.Status != http.StatusSeeOther {
			t.Errorf("revoking: status %d", p.Status)
		}
	}
	if status, _ := s.APIAs(token, http.MethodGet, "/api/user", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("the revoked token: status %d, want 401", status)
	}
}

func TestTokensNeedARecentSignIn(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	s.AgeSessions(20 * time.Minute)
	if p := b.Get(tokensPath); p.Status != http.StatusOK || !p.Contains("Sign in again") || p.Contains(`name="description"`) {
		t.Errorf("the page of tokens: status %d: %s", p.Status, p.Body)
	}
	if p := b.Post(tokensPath, url.Values{"description": {"x"}}); p.Status != http.StatusForbidden || tokenPattern.MatchString(p.Body) {
		t.Errorf("creating a token: status %d, want 403", p.Status)
	}
	cli := "/cli-login?" + cliQuery(nil).Encode()
	if p := b.Get(cli); p.Status != http.StatusSeeOther || p.Location() != "/-/login?next="+url.QueryEscape(cli) {
		t.Errorf("the page of the CLI: status %d to %q", p.Status, p.Location())
	}
	if p := b.Post("/cli-login", cliQuery(nil)); p.Status != http.StatusForbidden || p.Header.Get("Refresh") != "" {
		t.Errorf("logging in the CLI: status %d, want 403", p.Status)
	}
}

func cliQuery(change url.Values) url.Values {
	q := url.Values{
		"cliSessionPort": {"43210"}, "cliSessionNonce": {strings.Repeat("0a", 32)},
		"cliSessionDescription": {"Generated by pulumi login on host at 1 Jan"},
	}
	maps.Copy(q, change)
	return q
}

func TestCLILogin(t *testing.T) {
	s := consoletest.New(t)
	query := cliQuery(url.Values{"cliCommand": {"pulumi new"}})
	path := "/cli-login?" + query.Encode()
	visitor := s.Browser()
	login := visitor.Get(path)
	if login.Status != http.StatusSeeOther || login.Location() != "/-/login?next="+url.QueryEscape(path) {
		t.Fatalf("a visitor: status %d to %q", login.Status, login.Location())
	}
	if p := visitor.Post("/-/login", url.Values{"token": {s.Token}, "next": {path}}); p.Location() != path {
		t.Errorf("after the sign-in: to %q, want %q", p.Location(), path)
	}
	before := visitor.Get(path)
	if before.Status != http.StatusOK || tokenPattern.MatchString(before.Body) || before.Header.Get("Refresh") != "" || !before.Contains("43210", "Generated by pulumi login", identity.AdminLogin) {
		t.Errorf("the page of the CLI: status %d: %s", before.Status, before.Body)
	}
	p := visitor.Post("/cli-login", cliQuery(url.Values{"expires": {"90"}}))
	target, ok := strings.CutPrefix(p.Header.Get("Refresh"), "0; url=")
	u, err := url.Parse(target)
	if p.Status != http.StatusOK || !ok || err != nil || u.Scheme != "http" || u.Host != "127.0.0.1:43210" || u.Path != "/" {
		t.Fatalf("logging in: status %d, Refresh %q", p.Status, p.Header.Get("Refresh"))
	}
	if p.Header.Get("Referrer-Policy") != "no-referrer" || p.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers are %v", p.Header)
	}
	if u.Query().Get("nonce") != query.Get("cliSessionNonce") || len(u.Query()) != 2 {
		t.Errorf("the CLI gets the query %v", u.Query())
	}
	if status, body := s.APIAs(u.Query().Get("accessToken"), http.MethodGet, "/api/user", nil, nil); status != http.StatusOK {
		t.Errorf("the CLI's token: status %d: %s", status, body)
	}
	elsewhere := visitor.Post("/cli-login", cliQuery(url.Values{"elsewhere": {"on"}}))
	if token := tokenPattern.FindString(elsewhere.Body); elsewhere.Header.Get("Refresh") != "" || token == "" {
		t.Errorf("for another machine: Refresh %q: %s", elsewhere.Header.Get("Refresh"), elsewhere.Body)
	}
	if p := s.Browser().Get("/welcome/cli"); p.Status != http.StatusOK {
		t.Errorf("the welcome page of a visitor: status %d", p.Status)
	}
}

func TestCLILoginRefusesForgedRequests(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	for name, change := range map[string]url.Values{
		"no port":         {"cliSessionPort": nil},
		"a name as port":  {"cliSessionPort": {"http"}},
		"a low port":      {"cliSessionPort": {"80"}},
		"a large port":    {"cliSessionPort": {"65536"}},
		"a host as port":  {"cliSessionPort": {"8080@evil.example"}},
		"a negative port": {"cliSessionPort": {"-8080"}},
		"no nonce":        {"cliSessionNonce": nil},
		"a short nonce":   {"cliSessionNonce": {"0123456789abcde"}},
		"a long nonce":    {"cliSessionNonce": {strings.Repeat("0", 129)}},
		"a letter":        {"cliSessionNonce": {strings.Repeat("g", 32)}},
		"a line break":    {"cliSessionNonce": {strings.Repeat("0", 32) + "\n"}},
		"a parameter":     {"cliSessionNonce": {strings.Repeat("0", 32) + "&x=y"}},
	} {
		q := cliQuery(change)
		if p := b.Get("/cli-login?" + q.Encode()); p.Status != http.StatusBadRequest {
			t.Errorf("%s: GET: status %d, want 400", name, p.Status)
		}
		if p := b.Post("/cli-login", q); p.Status != http.StatusBadRequest || p.Header.Get("Refresh") != "" || tokenPattern.MatchString(p.Body) {
			t.Errorf("%s: POST: status %d, want 400", name, p.Status)
		}
	}
	q := cliQuery(url.Values{"cliSessionDescription": {"<script>\x1b[31m\nx\u202e" + strings.Repeat("y", 1000)}})
	p := b.Get("/cli-login?" + q.Encode())
	if p.Status != http.StatusOK || p.Contains("<script>\x1b") || p.Contains("\x1b") || p.Contains("\u202e") || p.Contains(strings.Repeat("y", 301)) {
		t.Errorf("a hostile description: status %d: %s", p.Status, p.Body)
	}
}

func TestPreferences(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	b.Post("/user/settings/preferences", url.Values{"theme": {"dark"}})
	if p := b.Get("/user/settings"); !p.Contains(`data-theme="dark"`) {
		t.Errorf("the theme is not dark: %s", p.Body[:min(500, len(p.Body))])
	}
	b.Post("/user/settings/preferences", url.Values{"theme": {`"><script>`}, "keys": {"on"}})
	if p := b.Get("/user/settings"); p.Contains(`data-theme="dark"`) || p.Contains(`"><script>`) {
		t.Error("an unknown theme is not the system's")
	}

	// Preferences belong to the user: another browser has them from its first page on, and other users do not.
	s.Stack("web", "prod")
	b.Post("/user/settings/preferences", url.Values{"theme": {"light"}, "density": {"compact"}, "zone": {" Asia/Tokyo "}, "keys": {"on"}})
	other := s.SignIn()
	if p := other.Get("/user/settings"); !p.Contains(`<html lang="en" data-theme="light" data-density="compact" data-zone="Asia/Tokyo"`, `value="Asia/Tokyo"`, `<option value="compact" selected>`) || !p.Contains(" JST") {
		t.Errorf("another browser of the user has not the preferences: %s", p.Body[:min(500, len(p.Body))])
	}
	if p := s.SignInWith(s.AddUser("bob", "member")).Get("/acme/-/stacks"); p.Contains("data-density") || p.Contains("data-zone") || p.Contains("data-theme") {
		t.Errorf("another user has the preferences: %s", p.Body[:min(500, len(p.Body))])
	}
	for _, zone := range []string{"Mars/Olympus", "Local", "../etc/passwd", `"><script>`, strings.Repeat("x", 65)} {
		p := b.Post("/user/settings/preferences", url.Values{"theme": {"dark"}, "zone": {zone}})
		if p.Status != http.StatusUnprocessableEntity || !p.Contains("No time zone has this name", `aria-invalid="true"`, `<option value="dark" selected>`) || p.Contains(`"><script>`) {
			t.Errorf("the zone %q: status %d", zone, p.Status)
		}
	}
	b.Post("/user/settings/preferences", url.Values{"theme": {"system"}})
	if p := other.Get("/acme/-/stacks"); p.Contains("data-density") || p.Contains("data-zone") || p.Contains("data-theme") {
		t.Errorf("the preferences remain: %s", p.Body[:min(500, len(p.Body))])
	}
}
