package server

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
)

// TestUntouched checks that a database is untouched after starts of a server, also while one runs, until it is used.
func TestUntouched(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, url, link, token string) (status, want int){
		"a sign-in": func(t *testing.T, base, link, _ string) (int, int) {
			client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			res := must.Get(client.PostForm(base+"/-/login/link", url.Values{"key": {link}}))(t)
			_ = res.Body.Close()
			return res.StatusCode, http.StatusSeeOther
		},
		"the token": func(t *testing.T, base, _, token string) (int, int) {
			return get(t, base+"/api/user", token), http.StatusOK
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			untouched := func() bool { return must.Get(Untouched(t.Context(), filepath.Join(dir, "server.db")))(t) }
			var notices bytes.Buffer
			must.Get(New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices))(t).closeAll()
			if !untouched() {
				t.Error("the first start counts as use")
			}
			notices.Reset()
			s := must.Get(New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices))(t)
			stop := run(t, s)
			if !untouched() {
				t.Error("a running server counts as use")
			}
			token := strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(dir, "admin-token")))(t)))
			if status, want := use(t, s.URL(), linkPattern.FindStringSubmatch(notices.String())[2], token); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
			must.OK(t, stop())
			if untouched() {
				t.Error("the use is not noticed")
			}
		})
	}
	if _, err := Untouched(t.Context(), filepath.Join(t.TempDir(), "server.db")); err == nil {
		t.Error("a missing database is untouched")
	}
}
