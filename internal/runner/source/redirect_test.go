package source_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

// redirector returns the address of a server that redirects to another one.
func redirector(t *testing.T, to string) string {
	t.Helper()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// TestRedirectsNameTheirTarget fetches a program, a submodule and a file of Git LFS, each of which
// the server redirects to another one.
func TestRedirectsNameTheirTarget(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	_, lib := f.repository(t, "group/lib", blob("file", "lib"))
	front := redirector(t, f.server.URL)

	lfs := newLFSHost(t, f)
	lfs.storage = redirector(t, lfs.URL)
	f.hostileBranch(t, "main", blob("file", "program"))
	f.hostileBranch(t, "module", gitmodules("lib", front+"/group/lib.git"), gitlink("lib", lib))
	f.hostileBranch(t, "large", blob(".gitattributes", lfsAttributes), blob("a.bin", lfs.pointer("content")))
	for _, tt := range []struct {
		name   string
		src    workflow.GitSource
		target string
	}{
		{"program", workflow.GitSource{RepoURL: front + "/group/program.git", Branch: "main"}, f.server.URL + "/group/program.git"},
		{"default branch", workflow.GitSource{RepoURL: front + "/group/program.git"}, f.server.URL + "/group/program.git"},
		{"commit", workflow.GitSource{RepoURL: front + "/group/program.git", Commit: f.first}, f.server.URL + "/group/program.git"},
		{"submodule", workflow.GitSource{Branch: "module", Submodules: true}, f.server.URL + "/group/lib.git"},
		{"LFS", workflow.GitSource{RepoURL: lfs.URL + "/group/program.git", Branch: "large", LFS: true}, lfs.URL},
	} {
		f.allowed = nil
		f.log.Reset()
		if _, err := f.fetch(t.Context(), t, tt.src); err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, f.log.String())
		}
		if text := f.log.String(); strings.Count(text, "redirects to "+tt.target) != 1 {
			t.Errorf("%s: the log does not name %s once:\n%s", tt.name, tt.target, text)
		}
		f.allowed = []string{host(front) + "/**", host(f.server.URL) + "/**", host(lfs.URL) + "/**"}
		_, err := f.fetch(t.Context(), t, tt.src)
		if err == nil || !strings.Contains(err.Error(), tt.target) || !strings.Contains(err.Error(), "permits no redirects") {
			t.Errorf("%s with allowed_repositories: %v", tt.name, err)
		}
	}
}

// TestRedirectsToTheSameRepository covers servers that add the suffix .git.
func TestRedirectsToTheSameRepository(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	server, err := url.Parse(f.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := httputil.NewSingleHostReverseProxy(server)
	var front *httptest.Server
	var hidden atomic.Bool
	front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.URL.Path, ".git/"):
			w.Header().Set("Location", front.URL+strings.Replace(r.URL.RequestURI(), "/info/", ".git/info/", 1))
			if hidden.Load() {
				w.Header().Del("Location")
			}
			w.WriteHeader(http.StatusMovedPermanently)
		default:
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	f.allowed = []string{strings.TrimPrefix(front.URL, "http://") + "/group/program"}
	src := workflow.GitSource{RepoURL: front.URL + "/group/program", Branch: "main"}
	if _, err := f.fetch(t.Context(), t, src); err != nil {
		t.Errorf("%v\n%s", err, f.log.String())
	}
	hidden.Store(true)
	if _, err := f.fetch(t.Context(), t, src); err == nil || !strings.Contains(err.Error(), "permits no redirects") {
		t.Errorf("with a hidden target: %v", err)
	}
}
