package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

// TestSecurityHeaders compares the headers of each kind of response with those that browsers must get.
func TestSecurityHeaders(t *testing.T) {
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), microphone=(), geolocation=(), payment=()",
		"Cache-Control":                "no-store",
	}
	s := consoletest.New(t)
	s.Stack("proj", "dev")
	var preview struct{ UpdateID string }
	s.API(http.MethodPost, "/api/stacks/acme/proj/dev/preview", map[string]any{"name": "proj", "runtime": "yaml"}, &preview)
	signedIn, signedOut := s.SignIn(), s.Browser()
	request := func(b *consoletest.Browser, method, path string, headers ...string) consoletest.Page {
		t.Helper()
		form := url.Values{}
		if method == http.MethodGet {
			form = nil
		}
		req := b.Request(method, path, form)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return b.Do(req)
	}
	for _, tt := range []struct {
		what   string
		status int
		page   consoletest.Page
	}{
		{"a page", http.StatusOK, request(signedIn, http.MethodGet, "/acme")},
		{"the sign-in", http.StatusOK, request(signedOut, http.MethodGet, "/-/login")},
		{"a redirect", http.StatusSeeOther, request(signedOut, http.MethodGet, "/acme")},
		{"a part of a page", http.StatusOK, request(signedIn, http.MethodGet, "/acme/proj/dev/previews/"+preview.UpdateID+"/changes?row=0&count=1")},
		{"JSON", http.StatusOK, request(signedIn, http.MethodGet, "/-/palette?q=dev", "Accept", "application/json")},
		{"an event stream", http.StatusOK, request(signedOut, http.MethodGet, "/acme", "Accept", "text/event-stream")},
		{"a form with errors", http.StatusUnprocessableEntity, request(signedIn, http.MethodPost, "/acme/-/pools")},
		{"an error page", http.StatusNotFound, request(signedIn, http.MethodGet, "/acme/proj/none")},
		{"a page that does not exist", http.StatusNotFound, request(signedIn, http.MethodGet, "/acme/-/none/none/none")},
		{"another method", http.StatusMethodNotAllowed, request(signedIn, http.MethodPut, "/acme")},
		{"an error as JSON", http.StatusNotFound, request(signedIn, http.MethodGet, "/acme/proj/none", "Accept", "application/json")},
		{"a refused form", http.StatusUnauthorized, request(signedOut, http.MethodPost, "/acme/-/pools")},
		{"a form of another site", http.StatusForbidden, request(signedIn, http.MethodPost, "/acme/-/pools", "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example")},
		{"a missing asset", http.StatusNotFound, request(signedOut, http.MethodGet, "/-/assets/none/none.js")},
	} {
		if tt.page.Status != tt.status {
			t.Errorf("%s: status %d, want %d: %s", tt.what, tt.page.Status, tt.status, plain(tt.page.Body))
		}
		for name, value := range want {
			if name == "Cache-Control" && tt.what == "an event stream" {
				value = "no-cache" // it is not stored, and keeps no page from the button Back
			}
			if got := tt.page.Header.Values(name); len(got) != 1 || got[0] != value {
				t.Errorf("%s: %s is %q, want %q", tt.what, name, got, value)
			}
		}
	}
}

// TestCompression compresses pages only where the size of the answer cannot tell another site what is on them.
func TestCompression(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	for _, tt := range []struct {
		what, method, path, from string
		packed                   bool
	}{
		{"a link", http.MethodGet, "/acme/-/stacks?q=x", "same-origin", true},
		{"an address that the user has typed", http.MethodGet, "/acme/-/stacks?q=x", "none", true},
		{"a link on another site", http.MethodGet, "/acme/-/stacks?q=x", "cross-site", false},
		{"a link on another host of the domain", http.MethodGet, "/acme/-/stacks?q=x", "same-site", false},
		{"an old browser", http.MethodGet, "/acme/-/stacks?q=x", "", false},
		{"a form", http.MethodPost, "/acme/-/pools", "same-origin", false},
	} {
		var form url.Values
		if tt.method == http.MethodPost {
			form = url.Values{}
		}
		req := b.Request(tt.method, tt.path, form)
		req.Header.Set("Accept-Encoding", "gzip")
		req.Header.Set("Sec-Fetch-Site", tt.from)
		if tt.from == "" {
			req.Header.Del("Sec-Fetch-Site")
		}
		p := b.Do(req)
		if got := p.Header.Get("Content-Encoding") == "gzip"; got != tt.packed {
			t.Errorf("%s: compressed %v, want %v", tt.what, got, tt.packed)
		}
		if plain := strings.Contains(p.Body, "<!doctype html>"); plain == tt.packed {
			t.Errorf("%s: the body begins with %.20q", tt.what, p.Body)
		}
	}
}
