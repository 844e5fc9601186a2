package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/host/release"
)

func TestOpen(t *testing.T) {
	keys := release.Keys{&newKey(t).PublicKey}
	for _, tt := range []struct {
		o    Options
		want string // expected part of the error
	}{
		{Options{Home: "https://github.com/owner/repo", Keys: keys}, ""},
		{Options{Home: "https://mirror.example.com/a/b/", Keys: keys, Channel: release.Beta}, ""},
		{Options{Home: "github+https://github.example.com/api/v3/owner/repo", Keys: keys}, ""},
		{Options{Home: "https://mirror.example.com"}, "no release key"},
		{Options{Home: "", Keys: keys}, "no release URL"},
		{Options{Home: "https://mirror.example.com", Keys: keys, Channel: "nightly"}, `"nightly" is unknown`},
		{Options{Home: "https://github.com/owner", Keys: keys}, "must end with OWNER/REPO"},
		{Options{Home: "https://github.com/owner/repo/releases", Keys: keys}, "must end with OWNER/REPO"},
		{Options{Home: "github+https://github.example.com/repo", Keys: keys}, "must end with OWNER/REPO"},
		{Options{Home: "ftp://user:hunter2@mirror.example.com/", Keys: keys}, "must look like"},
		{Options{Home: "https://user:hunter2@mirror.example.com/%zz", Keys: keys}, "must look like"},
		{Options{Home: "mirror.example.com/agent", Keys: keys}, "must look like"},
		{Options{Home: "https://mirror.example.com/?token=hunter2", Keys: keys}, "must look like"},
		{Options{Home: "https://mirror.example.com/", Keys: keys, goos: "plan9", goarch: "386"}, "no release exists for plan9/386"},
	} {
		f, err := Open(tt.o)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("Open(%+v) = %v, %v, want %q", tt.o, f, err, tt.want)
		}
	}
	f, err := Open(Options{Home: "github+https://github.example.com/api/v3/owner/repo", Keys: keys})
	if err != nil || f.home.String() != "https://github.example.com/api/v3/" || f.owner != "owner" || f.repo != "repo" {
		t.Errorf("the API is %v, %s/%s", f.home, f.owner, f.repo)
	}
}

func TestNewer(t *testing.T) {
	for _, tt := range []struct {
		candidate, current string
		want               bool
		err                bool
	}{
		{"v1.2.3", "v1.2.2", true, false},
		{"v1.2.3", "v1.2.3", false, false},
		{"v1.2.3", "v1.2.4", false, false},
		{"v1.10.0", "v1.9.0", true, false},
		{"v1.2.3", "v1.2.3-rc.1", true, false},
		{"v1.2.3-rc.2", "v1.2.3-rc.1", true, false},
		{"v1.2.3-rc.10", "v1.2.3-rc.9", true, false},
		{"v1.2.3-rc.1", "v1.2.3", false, false},
		// A build that is newer than v1.2.3 is not replaced with v1.2.3.
		{"v1.2.3", "v1.2.3-5-gabcdef0", false, false},
		{"v1.2.3", "v1.2.3-5-gabcdef0-dirty", false, false},
		{"v1.2.3", "v1.2.3-dirty", false, false},
		{"v1.2.4", "v1.2.3-5-gabcdef0", true, false},
		{"v1.2.3", "v1.2.3-rc.1-5-gabcdef0", true, false},
		{"v1.2.3", "v0.0.0-dev", false, true},
		{"v1.2.3", "v0.0.0", false, true},
		{"v1.2.3", "abcdef0", false, true},
		{"v1.2.3", "", false, true},
	} {
		got, err := Candidate{Version: tt.candidate}.Newer(tt.current)
		if got != tt.want || errors.Is(err, ErrDevelopment) != tt.err || err != nil != tt.err {
			t.Errorf("%s is newer than %q: %v, %v", tt.candidate, tt.current, got, err)
		}
	}
}

func TestChannels(t *testing.T) {
	key, s := newKey(t), newSite(t)
	keys := release.Keys{&key.PublicKey}
	s.publish(t, key, release.Stable, "v1.1.0", published, newRelease(t, key, "v1.1.0", polls))
	s.publish(t, key, release.Beta, "v1.2.0-rc.1", published, newRelease(t, key, "v1.2.0-rc.1", polls))
	latest := func(channel string) (Candidate, error) {
		f, err := Open(Options{Home: s.url, Keys: keys, Channel: channel})
		if err != nil {
			t.Fatal(err)
		}
		return f.Latest(t.Context())
	}
	for channel, want := range map[string]string{release.Stable: "v1.1.0", release.Beta: "v1.2.0-rc.1"} {
		if c, err := latest(channel); err != nil || c.Version != want {
			t.Errorf("%s: %+v, %v, want %s", channel, c, err, want)
		}
	}

	// The mirror serves the signed file of another channel.
	s.files["stable.txt"], s.files["stable.txt.sig"] = s.files["beta.txt"], s.files["beta.txt.sig"]
	if c, err := latest(release.Stable); err == nil || !strings.Contains(err.Error(), "not a stable release") {
		t.Errorf("beta as stable: %+v, %v", c, err)
	}
	for name, text := range map[string]string{"dated in the future": "version: v9.0.0\npublished: 2999-01-01T00:00:00Z\n", "NAME: VALUE": "nothing\n"} {
		s.files["stable.txt"], s.files["stable.txt.sig"] = []byte(text), sign(t, key, []byte(text))
		if c, err := latest(release.Stable); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	s.files["stable.txt"] = []byte("version: v9.0.0\npublished: 2026-11-02T00:00:00Z\n")
	if _, err := latest(release.Stable); !errors.Is(err, release.ErrSignature) {
		t.Errorf("a changed channel file: %v", err)
	}
	delete(s.files, "stable.txt.sig")
	if _, err := latest(release.Stable); !errors.Is(err, ErrNotFound) {
		t.Errorf("a channel file without a signature: %v", err)
	}
	if c, err := s.finder(t, keys, "").Version(t.Context(), "v1.2.0-rc.1"); err != nil || c.Version != "v1.2.0-rc.1" {
		t.Errorf("a version by name: %+v, %v", c, err)
	}
}

// TestReplay checks that the finder rejects an older state of a mirror.
func TestReplay(t *testing.T) {
	key, s := newKey(t), newSite(t)
	memory := filepath.Join(t.TempDir(), "memory.json")
	f := s.finder(t, release.Keys{&key.PublicKey}, memory)
	publish := func(version string, at time.Time) { s.publish(t, key, release.Stable, version, at, nil) }
	latest := func(want string) {
		t.Helper()
		c, err := f.Latest(t.Context())
		if want == "" && !errors.Is(err, ErrReplay) || want != "" && (err != nil || c.Version != want) {
			t.Errorf("the newest is %q, %v, want %q", c.Version, err, want)
		}
	}
	publish("v1.0.0", published)
	latest("v1.0.0")
	latest("v1.0.0")
	publish("v1.1.0", published.Add(time.Hour))
	latest("v1.1.0")
	publish("v1.0.0", published) // the same file, with its original signature
	latest("")
	publish("v1.2.0", published.Add(time.Hour)) // two channel files with the same time
	latest("")
	publish("v1.0.1", published.Add(2*time.Hour)) // the publisher has withdrawn v1.1.0
	latest("v1.0.1")
	publish("v1.1.0", published.Add(time.Hour))
	latest("")

	// Each mirror and each channel has a separate history.
	other := newSite(t)
	other.publish(t, key, release.Stable, "v0.1.0", published.Add(-time.Hour), nil)
	if c, err := other.finder(t, f.Keys, memory).Latest(t.Context()); err != nil || c.Version != "v0.1.0" {
		t.Errorf("another mirror: %+v, %v", c, err)
	}
	if err := os.WriteFile(memory, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Latest(t.Context()); err == nil || !strings.Contains(err.Error(), "remove "+memory) {
		t.Errorf("a broken memory: %v", err)
	}
	if err := os.Remove(memory); err != nil {
		t.Fatal(err)
	}
	latest("v1.1.0")
}

// TestBounds checks that a search on a slow, huge or broken mirror returns soon with a reason, and
// stages nothing.
func TestBounds(t *testing.T) {
	key := newKey(t)
	for name, tt := range map[string]struct {
		file   string // the file for which the mirror sends the bad response
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"silent channel":   {"stable.txt", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "sent nothing for too long"},
		"huge channel":     {"stable.txt", func(w http.ResponseWriter, _ *http.Request) { endless(w) }, "larger than any file"},
		"endless redirect": {"stable.txt", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "too many redirects"},
		"broken":           {"stable.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "502 Bad Gateway"},
		"huge checksums":   {"v1.1.0/checksums.txt", func(w http.ResponseWriter, _ *http.Request) { endless(w) }, "larger than any file"},
		"huge archive": {"v1.1.0/" + archiveName("v1.1.0"), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(int64(maxArchive)+1))
			w.WriteHeader(http.StatusOK)
		}, "larger than any file"},
		"stalled archive": {"v1.1.0/" + archiveName("v1.1.0"), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "begin")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "sent nothing for too long"},
		"cut off archive": {"v1.1.0/" + archiveName("v1.1.0"), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "begin")
		}, "unexpected EOF"},
		"other archive":   {"v1.1.0/" + archiveName("v1.1.0"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") }, "not the signed one"},
		"no archive":      {"v1.1.0/" + archiveName("v1.1.0"), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "404 Not Found"},
		"other signature": {"v1.1.0/checksums.txt.sig", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") }, "no release key has made"},
		"no signature":    {"v1.1.0/checksums.txt.sig", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "404 Not Found"},
		"other checksums": {"v1.1.0/checksums.txt", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") }, "no release key has made"},
		"checksum page":   {"v1.1.0/checksums.txt", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "no release key has made"},
		"nothing wrong":   {"", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.publish(t, key, release.Stable, "v1.1.0", published, newRelease(t, key, "v1.1.0", polls))
			s.answer = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Accept-Encoding") != "identity" {
					t.Errorf("%s may be compressed on the way", r.URL)
				}
				if tt.answer == nil || r.URL.Path != "/mirror/"+tt.file {
					return false
				}
				tt.answer(w, r)
				return true
			}
			f, err := Open(Options{Home: s.url, Keys: release.Keys{&key.PublicKey}})
			if err != nil {
				t.Fatal(err)
			}
			stage := t.TempDir()
			c, err := f.Latest(t.Context())
			if err == nil {
				err = f.Stage(t.Context(), c, Staging{Dir: stage})
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if entries, _ := os.ReadDir(stage); tt.want != "" && len(entries) > 1 {
				t.Errorf("the stage holds %v", entries)
			}
		})
	}
}

func endless(w http.ResponseWriter) {
	block := make([]byte, 64<<10)
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// TestSecureRedirect checks that an https mirror cannot redirect to http.
func TestSecureRedirect(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secure.Close()
	f, err := Open(Options{Home: secure.URL, Keys: release.Keys{&newKey(t).PublicKey}, Client: secure.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Latest(t.Context()); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("Latest: %v", err)
	}
}

// TestProxy checks that every request uses the client's proxy, and that no error contains the
// password in the URL.
func TestProxy(t *testing.T) {
	key, s := newKey(t), newSite(t)
	s.publish(t, key, release.Stable, "v1.1.0", published, newRelease(t, key, "v1.1.0", polls))
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if user, password, _ := r.BasicAuth(); r.URL.Host != "mirror.example.com" || user != "user" || password != "hunter2" {
			t.Errorf("the proxy received a request for %s from %s", r.URL, user)
		}
		r.URL, _ = url.Parse(s.url + strings.TrimPrefix(r.URL.Path, "/agent"))
		data, ok := s.files[strings.TrimPrefix(r.URL.Path, "/mirror/")]
		if !ok {
			http.NotFound(w, r)
		}
		_, _ = w.Write(data)
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(Options{
		Home: "http://user:hunter2@mirror.example.com/agent", Keys: release.Keys{&key.PublicKey}, Memory: filepath.Join(t.TempDir(), "memory"),
		// The finder must ignore this timeout, because it would also limit the download of
		// archives.
		Client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(address)}, Timeout: time.Nanosecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Stage(t.Context(), c, Staging{Dir: t.TempDir()}); err != nil || len(asked) != 5 {
		t.Errorf("Stage: %v, asked for %v", err, asked)
	}
	c, err = f.Version(t.Context(), "v7.0.0")
	if !errors.Is(err, ErrNotFound) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "mirror.example.com/agent/v7.0.0/checksums.txt: 404") {
		t.Errorf("a missing version: %+v, %v", c, err)
	}
	text, err := os.ReadFile(f.Memory)
	if err != nil || strings.Contains(string(text), "hunter2") {
		t.Errorf("the memory is %s, %v", text, err)
	}
}

// hub returns a server that implements the three GitHub API calls that the finder uses.
func hub(t *testing.T, releases []map[string]any, assets map[string][]byte) *httptest.Server {
	t.Helper()
	t.Setenv("GITHUB_TOKEN", "hunter2")
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("GET /api/v3/repos/owner/repo/releases", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("per_page") != "100" {
			t.Errorf("only %s releases are wanted", r.FormValue("per_page"))
		}
		answer(w, releases)
	})
	mux.HandleFunc("GET /api/v3/repos/owner/repo/releases/tags/{tag}", func(w http.ResponseWriter, r *http.Request) {
		for _, one := range releases {
			if one["tag_name"] == r.PathValue("tag") && one["draft"] != true {
				answer(w, one)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		answer(w, map[string]string{"message": "Not Found"})
	})
	mux.HandleFunc("GET /api/v3/repos/owner/repo/releases/assets/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/octet-stream" {
			t.Errorf("an asset was requested as %s", r.Header.Get("Accept"))
		}
		http.Redirect(w, r, "/storage/"+r.PathValue("id"), http.StatusFound)
	})
	mux.HandleFunc("GET /storage/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(assets[r.PathValue("id")]) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a token of the environment was sent")
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestGitHub(t *testing.T) {
	h := newHouse(t, "v1.0.0")
	assets := map[string][]byte{}
	add := func(version string, f files, more map[string]any) map[string]any {
		list := []map[string]any{}
		for name, data := range f {
			id := len(assets) + 1
			assets[fmt.Sprint(id)] = data
			list = append(list, map[string]any{"id": id, "name": name, "size": len(data), "browser_download_url": "https://example.com/" + name})
		}
		one := map[string]any{"id": len(assets) + 1000, "tag_name": version, "assets": list, "published_at": published, "html_url": "https://example.com/" + version}
		maps.Copy(one, more)
		return one
	}
	half := newRelease(t, h.key, "v1.9.0", polls)
	delete(half, release.ChecksumsFile+release.SignatureSuffix)
	releases := []map[string]any{
		add("v1.0.0", newRelease(t, h.key, "v1.0.0", polls), nil),
		add("v1.10.0", newRelease(t, h.key, "v1.10.0", polls), nil),
		add("v1.2.0", newRelease(t, h.key, "v1.2.0", polls), nil),
		add("v2.0.0", newRelease(t, h.key, "v2.0.0", polls), map[string]any{"draft": true}),
		add("v1.11.0-rc.1", newRelease(t, h.key, "v1.11.0-rc.1", polls), map[string]any{"prerelease": true}),
		add("v1.11.0-rc.2", newRelease(t, h.key, "v1.11.0-rc.2", polls), nil), // a prerelease that is not marked as one
		add("v1.9.9", newRelease(t, h.key, "v1.9.8", polls), nil),             // contains the files of another release
		add("v1.9.0", half, nil), // the upload is not complete
		add("nightly", files{"v9.9.9.tar.gz": nil}, nil),
		add("release-9.0.0", newRelease(t, h.key, "v9.0.0", polls), nil),
	}
	server := hub(t, releases, assets)
	open := func(channel string) *Finder {
		f, err := Open(Options{Home: "github+" + server.URL + "/api/v3/owner/repo", Keys: h.keys(), Channel: channel})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for channel, want := range map[string]string{release.Stable: "v1.10.0", release.Beta: "v1.11.0-rc.2"} {
		if c, err := open(channel).Latest(t.Context()); err != nil || c.Version != want || !c.Published.Equal(published) || c.Notes != "https://example.com/"+want {
			t.Errorf("%s: %+v, %v, want %s", channel, c, err, want)
		}
	}
	f := open(release.Stable)
	for _, version := range []string{"v1.9.9", "v1.9.0", "v2.0.0", "v3.0.0"} {
		if c, err := f.Version(t.Context(), version); !errors.Is(err, ErrNotFound) {
			t.Errorf("Version(%s): %+v, %v", version, c, err)
		}
	}
	if _, err := f.Version(t.Context(), "../../x"); err == nil {
		t.Error("an invalid version was requested")
	}
	c, err := f.Version(t.Context(), "v1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	if err := f.Stage(t.Context(), c, Staging{Dir: h.stage, Progress: func(_, all int64) { total = all }}); err != nil || total <= 0 {
		t.Fatalf("Stage: %v; the size is %d", err, total)
	}
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Fatalf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.2.0")

	none := httptest.NewServer(http.NotFoundHandler())
	defer none.Close()
	if f, err = Open(Options{Home: "github+" + none.URL + "/owner/repo", Keys: h.keys()}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Latest(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such repository: %v", err)
	}
}

// TestAgain checks that a second staging downloads no file again and removes old files.
func TestAgain(t *testing.T) {
	key, s, dir := newKey(t), newSite(t), t.TempDir()
	f := s.finder(t, release.Keys{&key.PublicKey}, "")
	stage := func(version string) {
		t.Helper()
		c, err := f.Version(t.Context(), version)
		if err == nil {
			err = f.Stage(t.Context(), c, Staging{Dir: dir})
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
			t.Errorf("the stage holds %v, %v", entries, err)
		}
	}
	for _, version := range []string{"v1.1.0", "v1.2.0"} {
		s.publish(t, key, release.Stable, version, published, newRelease(t, key, version, polls))
		stage(version)
		stage(version)
		archive := archiveName(version)
		if n := s.hits(version + "/" + archive); n != 1 {
			t.Errorf("the archive was downloaded %d times", n)
		}
		if err := os.WriteFile(filepath.Join(dir, archive), []byte("damaged"), 0o644); err != nil {
			t.Fatal(err)
		}
		stage(version)
		if n := s.hits(version + "/" + archive); n != 2 {
			t.Errorf("the damaged archive was downloaded %d times", n)
		}
	}
}
