package stacksettings_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"testing"
)

// TestSessionEndsBeforeTheSave keeps what a review has shown when the session ends before it is saved.
func TestSessionEndsBeforeTheSave(t *testing.T) {
	s, b := newServer(t)
	review := b.Post(base, url.Values{"repository": {"https://git.example.com/web.git"}, "branch": {"release"}, "name": {"TOKEN"}, "value": {"hunter2"}, "secret": {"on"}, "version": {"0"}})
	form := saved(review, "")
	for range 2 { // the second time from the page that asks for the sign-in
		p := check(t, base, s.Browser().Post(base+"/save", form))
		if p.Status != http.StatusUnauthorized || !p.Contains("Send it again", `action="`+base+`/save"`, `href="/-/login"`) || p.Contains("hunter2") {
			t.Fatalf("saving without a session: status %d: %s", p.Status, p.Body)
		}
		form = url.Values{}
		for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(p.Body, -1) {
			form.Add(field[1], html.UnescapeString(field[2]))
		}
	}
	if p := s.SignIn().Post(base+"/save", form); p.Status != http.StatusSeeOther {
		t.Fatalf("sending it again: status %d: %s", p.Status, p.Body)
	}
	if p := get(t, b, base); !p.Contains(`value="release"`, `name="remove" value="TOKEN"`, "by Administrator") {
		t.Errorf("what was reviewed is not stored: %s", p.Body)
	}
}
