package api_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"workflowagent/internal/server/api"
)

func TestReleases(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	files := map[string]string{
		filepath.Join(dir, "stable.txt"):              "version: v1.2.3\n",
		filepath.Join(dir, "v1.2.3", "agent.tar.gz"):  "0123456789",
		filepath.Join(dir, "pool", "a+b~1_amd64.deb"): "deb",
		filepath.Join(dir, ".secret"):                 "secret",
		filepath.Join(dir, "v1.2.3", ".secret"):       "secret",
		filepath.Join(outside, "secret"):              "secret",
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"out": filepath.Join(outside, "secret"), "up": "../" + filepath.Base(outside) + "/secret", "latest": "v1.2.3"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, options{domains: func(*fixture) []api.Domain { return []api.Domain{api.ReleaseRoutes(dir)} }})
	for _, tt := range []struct {
		path, auth string
		status     int
		body       string
	}{
		{"/releases/stable.txt", "none", 200, "version: v1.2.3\n"},
		{"/releases/v1.2.3/agent.tar.gz", "none", 200, "0123456789"},
		{"/releases/v1.2.3/agent.tar.gz", "token garbage", 200, "0123456789"},
		{"/releases/latest/agent.tar.gz", "none", 200, "0123456789"},
		{"/releases/pool/a%2Bb~1_amd64.deb", "none", 200, "deb"},
		{"/releases/", "none", 404, ""},
		{"/releases", "none", 404, ""},
		{"/releases/v1.2.3", "none", 404, ""},
		{"/releases/v1.2.3/", "none", 404, ""},
		{"/releases/none.txt", "none", 404, ""},
		{"/releases/stable.txt/x", "none", 404, ""},
		{"/releases/.secret", "none", 404, ""},
		{"/releases/v1.2.3/.secret", "none", 404, ""},
		{"/releases/pipe", "none", 404, ""},
		{"/releases/%2e%2e/secret", "none", 404, ""},
		{"/releases/v1.2.3/%2e%2e/.secret", "none", 404, ""},
		{"/releases/v1.2.3%2f..%2f..%2fsecret", "none", 404, ""},
		{"/releases/out", "none", 500, ""},
		{"/releases/up", "none", 500, ""},
	} {
		a := f.send(call{Method: "GET", Path: tt.path, Auth: tt.auth})
		if a.Status != tt.status || tt.body != "" && string(a.Body) != tt.body {
			t.Errorf("%s answers %d %q, want %d %q", tt.path, a.Status, a.Body, tt.status, tt.body)
		}
	}
	// A download that broke off goes on where it was.
	a := f.send(call{Method: "GET", Path: "/releases/v1.2.3/agent.tar.gz", Auth: "none", Header: map[string]string{"Range": "bytes=7-"}})
	if a.Status != http.StatusPartialContent || string(a.Body) != "789" {
		t.Errorf("a range is answered by %d %q", a.Status, a.Body)
	}
	a = f.send(call{Method: "HEAD", Path: "/releases/v1.2.3/agent.tar.gz", Auth: "none"})
	if a.Status != 200 || a.Header.Get("Content-Length") != "10" || a.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("HEAD is answered by %d %v", a.Status, a.Header)
	}
	a = f.send(call{Method: "PUT", Path: "/releases/stable.txt", Auth: "token " + f.admin, Body: "version: v9.9.9\n"})
	if a.Status != http.StatusMethodNotAllowed {
		t.Errorf("PUT is answered by %d", a.Status)
	}
	// What was not changed is not sent again, which apt counts on.
	since := f.send(call{Method: "GET", Path: "/releases/stable.txt", Auth: "none"}).Header.Get("Last-Modified")
	a = f.send(call{Method: "GET", Path: "/releases/stable.txt", Auth: "none", Header: map[string]string{"If-Modified-Since": since}})
	if a.Status != http.StatusNotModified {
		t.Errorf("an unchanged file is answered by %d", a.Status)
	}
}

// TestReleasesAreBounded holds as many downloads as there may be.
func TestReleasesAreBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, options{domains: func(*fixture) []api.Domain { return []api.Domain{api.ReleaseRoutes(dir)} }})
	handler := f.server.Config.Handler
	get := func(w http.ResponseWriter) {
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/releases/big", nil))
	}
	started, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	const most = 32
	for range most {
		go func() {
			get(&slowTaker{ResponseWriter: httptest.NewRecorder(), started: started, release: release})
			done <- struct{}{}
		}()
	}
	for range most {
		<-started
	}
	w := httptest.NewRecorder()
	get(w)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more is answered by %d %v", w.Code, w.Header())
	}
	close(release)
	for range most {
		<-done
	}
	w = httptest.NewRecorder()
	if get(w); w.Code != http.StatusOK {
		t.Errorf("after them one is answered by %d", w.Code)
	}
}

// slowTaker takes nothing until it is released.
type slowTaker struct {
	http.ResponseWriter
	started chan<- struct{}
	release <-chan struct{}
	told    bool
}

// Write waits.
func (s *slowTaker) Write(p []byte) (int, error) {
	if !s.told {
		s.told = true
		s.started <- struct{}{}
		<-s.release
	}
	return s.ResponseWriter.Write(p)
}
