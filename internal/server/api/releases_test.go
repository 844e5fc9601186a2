package api_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
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
	f := newFixture(t, options{releases: dir})
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
			t.Errorf("%s: status %d, body %q, want %d, %q", tt.path, a.Status, a.Body, tt.status, tt.body)
		}
	}
	a := f.send(call{Method: "GET", Path: "/releases/v1.2.3/agent.tar.gz", Auth: "none", Header: map[string]string{"Range": "bytes=7-"}})
	if a.Status != http.StatusPartialContent || string(a.Body) != "789" {
		t.Errorf("a range request: status %d, body %q", a.Status, a.Body)
	}
	a = f.send(call{Method: "HEAD", Path: "/releases/v1.2.3/agent.tar.gz", Auth: "none"})
	if a.Status != 200 || a.Header.Get("Content-Length") != "10" || a.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("HEAD: status %d, headers %v", a.Status, a.Header)
	}
	a = f.send(call{Method: "PUT", Path: "/releases/stable.txt", Auth: "token " + f.admin, Body: "version: v9.9.9\n"})
	if a.Status != http.StatusMethodNotAllowed {
		t.Errorf("PUT: status %d", a.Status)
	}
	// The server must not send an unchanged file again; apt relies on this.
	since := f.send(call{Method: "GET", Path: "/releases/stable.txt", Auth: "none"}).Header.Get("Last-Modified")
	a = f.send(call{Method: "GET", Path: "/releases/stable.txt", Auth: "none", Header: map[string]string{"If-Modified-Since": since}})
	if a.Status != http.StatusNotModified {
		t.Errorf("an unchanged file: status %d", a.Status)
	}
}

// TestSlowDownloadsGiveWay fills all download slots with clients that read nothing, and then
// requests a file from another address. That download must replace one of theirs.
func TestSlowDownloadsGiveWay(t *testing.T) {
	dir := t.TempDir()
	const size = 16 << 20 // more than the buffers of a connection
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, options{releases: dir})
	var slow []net.Conn
	for range 32 {
		conn := f.dial()
		if _, err := io.WriteString(conn, "GET /releases/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		var first [1]byte
		if _, err := io.ReadFull(conn, first[:]); err != nil { // the download has its slot
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/releases/big", nil)
	r.RemoteAddr = "192.0.2.1:5"
	if f.server.Config.Handler.ServeHTTP(w, r); w.Code != http.StatusOK || w.Body.Len() != size {
		t.Errorf("a download from another address: status %d, %d bytes", w.Code, w.Body.Len())
	}
	cut := 0
	for _, conn := range slow {
		if n, _ := io.Copy(io.Discard, conn); n < size {
			cut++
		}
	}
	if cut != 1 {
		t.Errorf("%d of the slow downloads were cut off, want 1", cut)
	}
}
