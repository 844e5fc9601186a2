package source_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

// TestAnswerOnlyToTheOrigin checks that the password is given only to one scheme, host and port. A
// server can choose the text of git's prompt, for example by a redirect, and git before 2.48.1
// shows it decoded.
func TestAnswerOnlyToTheOrigin(t *testing.T) {
	for _, tt := range []struct {
		origin, user, prompt string
		want                 string // "" if the prompt must get no answer
	}{
		{"https://git.example.com", "me", "Username for 'https://git.example.com': ", "me"},
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com': ", "s3cret"},
		{"https://git.example.com", "", "Password for 'https://git.example.com': ", "s3cret"},
		{"https://git.example.com:8443", "me", "Password for 'https://me@git.example.com:8443': ", "s3cret"},
		{"https://[::1]:8443", "me", "Password for 'https://me@[::1]:8443': ", "s3cret"},
		{"https://git.example.com", "me@corp.example", "Password for 'https://me@corp.example@git.example.com': ", "s3cret"},
		{"https://git.example.com", "me@corp.example", "Password for 'https://me%40corp.example@git.example.com': ", "s3cret"},

		// A redirect to https://git.example.com%2F@evil.example/ as git shows it.
		{"https://git.example.com", "me", "Username for 'https://git.example.com/@evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://git.example.com/@evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://git.example.com?@evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://git.example.com#@evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com\n.evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com%0a.evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://git.example.com@evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com@evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com': ' for 'https://evil.example': ", ""},
		{"https://git.example.com", "me", "Password for 'https://evil@git.example.com': ", ""},
		{"https://git.example.com", "me", "Password for 'http://me@git.example.com': ", ""},
		{"https://git.example.com", "me", "Password for 'ssh://me@git.example.com': ", ""},
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com:444': ", ""},
		{"https://git.example.com:8443", "me", "Password for 'https://me@git.example.com': ", ""},
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com.': ", ""},
		{"https://git.example.com", "me", "Password for 'https://me@GİT.example.com': ", ""},
		{"https://kit.example.com", "me", "Password for 'https://me@\u212Ait.example.com': ", ""}, // the Kelvin sign folds to k
		{"https://git.example.com", "me", "Password for 'https://me@git.example.com/path': ", ""},
		{"https://git.example.com", "me", "me@git.example.com's password: ", ""},
		{"https://git.example.com", "me", "Passwort for 'https://me@git.example.com': ", ""},
		{"", "", "Username for '': ", ""},
		{"", "", "", ""},
	} {
		file := filepath.Join(t.TempDir(), "answers.json")
		data, err := json.Marshal(map[string]string{"origin": tt.origin, "username": tt.user, "password": "s3cret"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := source.Answer(file, tt.prompt)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s asks %q: got %q, %v, want %q", tt.origin, tt.prompt, got, err, tt.want)
		}
	}
}

// TestRedirectsGetNoCredentials checks that git's real prompts after a server's redirects get no
// credentials.
func TestRedirectsGetNoCredentials(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	var asked, leaked atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if user, password, ok := r.BasicAuth(); ok && strings.Contains(user+password, token) {
			leaked.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(thief.Close)
	thiefHost := strings.TrimPrefix(thief.URL, "http://")
	for _, userinfo := range []string{"", "FRONT@", "FRONT%2F@", "FRONT%3F@", "FRONT%23@", "x-access-token@", "FRONT%0A@"} {
		t.Run("as "+userinfo, func(t *testing.T) {
			var front *httptest.Server
			front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				host := strings.TrimPrefix(front.URL, "http://")
				w.Header().Set("Location", "http://"+strings.ReplaceAll(userinfo, "FRONT", host)+thiefHost+r.URL.RequestURI())
				w.WriteHeader(http.StatusFound)
			}))
			defer front.Close()
			before := asked.Load()
			_, err := f.fetch(t.Context(), t, workflow.GitSource{
				RepoURL: front.URL + "/repo.git", Branch: "main", Auth: &workflow.GitAuth{AccessToken: token},
			})
			if err == nil {
				t.Error("the fetch succeeded")
			}
			if leaked.Load() != 0 {
				t.Errorf("the credentials followed the redirect (%d requests)", asked.Load()-before)
			}
		})
	}
}

// TestFetchOfLookAlikeHosts checks that a user name, or text that looks like one, never changes the
// host that git connects to.
func TestFetchOfLookAlikeHosts(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	host := strings.TrimPrefix(f.server.URL, "http://")
	for _, raw := range []string{
		"http://" + host + "%0a.evil.example/r", "http://" + host + "%00.evil.example/r", "http://" + host + "%2f@evil.example/r\\x",
		"http://" + host + "\\@evil.example/r", "http://" + host + "/../r", "http://" + host + "/%2e%2e/r", "http://" + host + "/a%2f..%2fr",
		"http://evil.example／" + host + "/r", "http://" + host + "#@evil.example/r", "http://" + host + "?@evil.example/r",
		"http://evil.example:80:80/r", "http:///r", "http://@/r", "git@" + host + "@evil.example:r\nx", "git@evil.example;id:r", "git@$(id):r",
		"ssh://$(id)@example.com/r", "ssh://a%20b@example.com/r", "ssh://example.com:-oX/r", "http:/" + host + "/r", "ext::sh", "fd::7/x", "file:///etc",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := f.fetch(ctx, t, workflow.GitSource{RepoURL: raw}); err == nil || !strings.Contains(err.Error(), "parsing the repository URL") {
			t.Errorf("%q: got %v", raw, err)
		}
		cancel()
	}
}
