package browser

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// loaded is the condition that a page is complete, so that no later navigation replaces its nodes.
const loaded = "document.readyState === 'complete' && "

// TestSignIn signs in at an identity provider, adds a passkey, and signs in with it. Browsers offer
// passkeys only at a domain, so the console is at localhost.
func TestSignIn(t *testing.T) {
	p := consoletest.NewProvider(t)
	p.Claims["name"], p.Claims["preferred_username"] = hostile, "grace"
	port := must.Get(child.FreePort("127.0.0.1"))(t)
	base := "http://localhost:" + strconv.Itoa(port)
	consoletest.With(t, map[string]string{
		"listen": "127.0.0.1:" + strconv.Itoa(port), "external_url": base,
		"sign_in_file": p.File("    allow_everyone: true", "    roles: [{organization: acme, role: member}]"),
	})
	p.Redirects = []string{base + "/-/login/with/corp/return"}
	tb := newTab(t, base)
	tb.others = []string{p.URL}
	device := tb.device()

	tb.visit("/-/login?next=/user/settings")
	tb.click("a[href^='/-/login/with/corp']")
	tb.wait("the provider sends the browser back", loaded+"location.pathname === '/user/settings' && document.querySelector('.bar .count').innerText === 'grace'")
	tb.fill("#name", hostile)
	tb.click("passkey-form button")
	const shown = loaded + "document.querySelector('form[action$=\"/rename\"] input')?.getAttribute('value') === "
	tb.wait("the passkey is listed", shown+quote(hostile))
	tb.visit("/user/settings")
	tb.scheme("light", desktop)
	tb.click("summary[aria-label^='Rename the passkey']")
	tb.fill("form[action$='/rename'] input", "laptop")
	tb.click("form[action$='/rename'] button")
	tb.wait("the passkey has a name", shown+"'laptop'")
	tb.fill("#name", "again")
	tb.click("passkey-form button")
	tb.see("has a passkey of yours already")

	signOut := func() {
		tb.scheme("light", desktop) // where the rail is
		tb.click(".me summary")
		tb.click("form[action='/-/logout'] button")
		tb.wait("the user is signed out", loaded+"location.pathname === '/-/login'")
	}
	signOut()
	tb.click("passkey-form button")
	tb.wait("the user is signed in", loaded+"document.querySelector('.me [title=grace]')")
	tb.open("/user/settings")
	tb.see("(passkey)")

	// A user who does not unlock the passkey stays outside.
	signOut()
	verified := webauthn.SetUserVerifiedParams{AuthenticatorID: device, IsUserVerified: false}
	must.Get(chromedp.Call(tb.ctx, webauthn.SetUserVerified, verified))(t)
	tb.click("passkey-form button")
	tb.see("The browser did not use a passkey")
	tb.visit("/-/login")

	// At another address of the server, the browser would refuse.
	plain := newTab(t, "http://127.0.0.1:"+strconv.Itoa(port))
	plain.open("/-/login")
	plain.see("Access token")
	if !evaluate[bool](plain, "document.querySelector('passkey-form').hidden") {
		t.Error("the page offers passkeys at another origin")
	}
}

// TestSignedOutElsewhere ends the session of an open page in another browser. The page keeps what it
// shows, says that the user is signed out, and leads to the sign-in and back.
func TestSignedOutElsewhere(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/settings", map[string]any{}, nil)
	const list, isPaused = "/acme/box/dev/runs", "document.querySelector('main').innerText.includes('Resume the stack')"
	here, elsewhere := newTab(t, s.URL), newTab(t, s.URL)
	signIn(here, s.Token)
	signIn(elsewhere, s.Token)
	here.open(list)
	here.see("Pause the stack")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/pause", nil, nil)
	here.wait("the open page changes", isPaused)

	elsewhere.open("/user/settings")
	elsewhere.click("form[action='/user/settings/sessions/end'] button")
	elsewhere.wait("only one session is left", loaded+"document.querySelectorAll('[aria-label=Sessions] .row:not(.hd)').length === 1")
	// The server checks the session before each change that it sends, and once per minute.
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/resume", nil, nil)
	here.wait("the page says so", "document.querySelector('live-page.note')?.innerText.includes('You are signed out.')")
	here.shot("bar")
	if !evaluate[bool](here, isPaused) {
		t.Error("the page lost what it showed, or shows a change after the end of its session")
	}
	here.click("live-page.note a")
	here.wait("the link leads to the sign-in", loaded+"location.pathname === '/-/login'")
	here.fill("#token", s.Token)
	here.click("form[action='/-/login'] button")
	here.wait("the sign-in leads back", loaded+"location.pathname === "+quote(list))
}

// device gives the tab a device that keeps passkeys, and whose user unlocks them.
func (tb *tab) device() webauthn.AuthenticatorID {
	tb.t.Helper()
	_, err := chromedp.Call(tb.ctx, webauthn.Enable, webauthn.EnableParams{})
	if err != nil {
		tb.t.Fatalf("adding a device: %v", err)
	}
	added, err := chromedp.Call(tb.ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
		Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
		HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
	}})
	if err != nil {
		tb.t.Fatalf("adding a device: %v", err)
	}
	return added.AuthenticatorID
}
