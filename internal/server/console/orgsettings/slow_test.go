package orgsettings_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// TestSlowForms removes an administrator whose browser has sent only the beginning of forms.
func TestSlowForms(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignInWith(s.AddUser("mal", identity.RoleAdmin))
	type form struct {
		rest func()
		page chan consoletest.Page
	}
	begin := func(size int) form {
		values := url.Values{"name": {"late"}, "description": {strings.Repeat("x", size)}, "admin": {"on"}}
		body := values.Encode()
		r, w := io.Pipe()
		req := b.Request(http.MethodPost, "/acme/-/settings/tokens", nil)
		req.Body, req.ContentLength = r, int64(len(body))
		f := form{
			rest: func() { _, _ = io.WriteString(w, body[len(body)-1:]); _ = w.Close() },
			page: make(chan consoletest.Page, 1),
		}
		go func() {
			defer close(f.page) // also if Do ends this goroutine
			f.page <- b.Do(req)
		}()
		must.Get(io.WriteString(w, body[:len(body)-1]))(t)
		return f
	}
	forms := []form{begin(1), begin(20_000)}
	s.API(http.MethodDelete, "/api/orgs/acme/members/mal", nil, nil)
	for _, f := range forms {
		f.rest()
		if p := <-f.page; p.Status < 400 {
			t.Errorf("the form answers %d", p.Status)
		}
	}
	tokens := must.Get(store.Read(t.Context(), s.DB(), func(tx *store.Tx) ([]store.Token, error) { return tx.Tokens(store.TokenFilter{Kind: store.OrgToken}) }))(t)
	if len(tokens) > 0 {
		t.Errorf("the tokens are %+v", tokens)
	}
}
