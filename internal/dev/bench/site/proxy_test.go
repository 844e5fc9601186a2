package site

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestFront(t *testing.T) {
	var servers []string
	for _, name := range []string{"a", "b"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		defer s.Close()
		servers = append(servers, s.URL)
	}
	p := must.Get(startFront(servers, nil))(t)
	defer p.Close()
	last := map[string]string{}
	for _, path := range []string{"/one/update", "/two/update", "/one/update/1", "/one/update/1/events", "/two/update/2", "/one"} {
		resp := must.Get(http.Get(p.URL + "/api/stacks/org/project" + path))(t)
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		stack := path[:4]
		if err != nil || last[stack] == string(body) {
			t.Errorf("%s reached server %q after %q, %v", path, body, last[stack], err)
		}
		last[stack] = string(body)
	}
	if n := p.Requests.Load(); n != 6 {
		t.Errorf("the proxy counted %d requests, want 6", n)
	}
}

func TestAccepted(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer s.Close()
	var got []string
	p := must.Get(startFront([]string{s.URL}, func(path string, body io.Reader) {
		got = append(got, path+" "+string(must.Get(io.ReadAll(body))(t)))
	}))(t)
	defer p.Close()
	for _, path := range []string{"/refused", "/accepted"} {
		resp := must.Get(http.Post(p.URL+path, "text/plain", strings.NewReader("text")))(t)
		_ = resp.Body.Close()
	}
	if !slices.Equal(got, []string{"/accepted text"}) {
		t.Errorf("the proxy reports %q", got)
	}
}
