package source_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

// lfsHost is a git server with Git LFS.
type lfsHost struct {
	*httptest.Server
	objects  map[string]string // content by oid
	password string            // "" for none
	storage  string            // base URL of the addresses of objects; "" for the server itself
	header   map[string]string // with each address

	uses    int // after which the addresses of a batch have expired; 0 for none
	batches int
	used    int // of the addresses of the newest batch
}

func newLFSHost(t *testing.T, f *fixture) *lfsHost {
	t.Helper()
	to, err := url.Parse(f.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := &lfsHost{objects: map[string]string{}}
	mux := http.NewServeMux()
	mux.Handle("/", httputil.NewSingleHostReverseProxy(to))
	mux.HandleFunc("POST /group/program.git/info/lfs/objects/batch", h.batch)
	mux.HandleFunc("GET /objects/{oid}", h.object)
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != h.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *lfsHost) object(w http.ResponseWriter, r *http.Request) {
	if h.uses > 0 {
		if h.used++; h.used > h.uses || r.URL.Query().Get("batch") != strconv.Itoa(h.batches) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
	}
	fmt.Fprint(w, h.objects[r.PathValue("oid")])
}

func (h *lfsHost) batch(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Operation string
		Objects   []struct{ OID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Operation != "download" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	storage := h.storage
	if storage == "" {
		storage = h.URL
	}
	h.batches++
	h.used = 0
	var objects []map[string]any
	for _, o := range request.Objects {
		answer := map[string]any{"oid": o.OID}
		if _, ok := h.objects[o.OID]; ok {
			answer["actions"] = map[string]any{"download": map[string]any{"href": fmt.Sprintf("%s/objects/%s?batch=%d", storage, o.OID, h.batches), "header": h.header}}
		} else {
			answer["error"] = map[string]any{"code": 404, "message": "missing"}
		}
		objects = append(objects, answer)
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(w).Encode(map[string]any{"objects": objects})
}

// pointer stores content on the host and returns its pointer.
func (h *lfsHost) pointer(content string) string {
	oid := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	h.objects[oid] = content
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", oid, len(content))
}

const lfsAttributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"

func TestFetchLFS(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	tr := newTraps(t)
	f.environ = tr.environ
	h := newLFSHost(t, f)
	h.password = token
	large, shared := strings.Repeat("large ", 100_000), "shared"
	f.hostileBranch(t, "main",
		blob(".gitattributes", lfsAttributes), blob(".lfsconfig", "[lfs]\n\turl = "+tr.url+"\n"),
		blob("large.bin", h.pointer(large)), blob("a.bin", h.pointer(shared)), blob("dir/b.bin", h.pointer(shared)),
		blob("text", h.pointer("not attributed")), blob("plain.bin", "no pointer"))
	src := workflow.GitSource{RepoURL: h.URL + "/group/program.git", Branch: "main", Auth: &workflow.GitAuth{AccessToken: token}}

	got, err := f.fetch(t.Context(), t, src)
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	if text := readIn(t, got.ProgramDir, "a.bin"); !strings.HasPrefix(text, "version ") {
		t.Errorf("without a request, a.bin has %q", text)
	}
	src.LFS = true
	if got, err = f.fetch(t.Context(), t, src); err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	for name, want := range map[string]string{"large.bin": large, "a.bin": shared, "dir/b.bin": shared, "plain.bin": "no pointer"} {
		if text := readIn(t, got.ProgramDir, name); text != want {
			t.Errorf("%s has %d bytes, want %d", name, len(text), len(want))
		}
	}
	if text := readIn(t, got.ProgramDir, "text"); !strings.HasPrefix(text, "version ") {
		t.Errorf("a file without the attribute was replaced by %q", text)
	}
	if info, err := os.Stat(filepath.Join(got.ProgramDir, "dir/b.bin")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("the executable file has the mode %v, %v", info.Mode(), err)
	}
	status, err := exec.CommandContext(t.Context(), "git", "-C", got.ProgramDir, "status", "--porcelain").Output()
	if err != nil || len(status) > 0 {
		t.Errorf("git reports changes: %s, %v", status, err)
	}
	if sprung := tr.sprung(); sprung != "" {
		t.Errorf("the fetch sprang a trap:\n%s", sprung)
	}
}

// TestLFSOfOtherServersGetsNoCredentials checks that a server can store objects elsewhere, and that
// the deployment's credentials stay with the repository's server.
func TestLFSOfOtherServersGetsNoCredentials(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	h := newLFSHost(t, f)
	h.password = token
	h.header = map[string]string{"X-Signature": "signed"}
	var withCredentials, signed, redirected atomic.Int32
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		redirected.Add(1)
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Signature") != "" || r.Header.Get("Referer") != "" {
			withCredentials.Add(1)
		}
		fmt.Fprint(w, h.objects[filepath.Base(r.URL.Path)])
	}))
	t.Cleanup(second.Close)
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			withCredentials.Add(1)
		}
		if r.Header.Get("X-Signature") == "signed" {
			signed.Add(1)
		}
		http.Redirect(w, r, second.URL+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(storage.Close)
	h.storage = storage.URL
	f.hostileBranch(t, "main", blob(".gitattributes", lfsAttributes), blob("a.bin", h.pointer("content")))
	got, err := f.fetch(t.Context(), t, workflow.GitSource{
		RepoURL: h.URL + "/group/program.git", Branch: "main", LFS: true, Auth: &workflow.GitAuth{AccessToken: token},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	if text := readIn(t, got.ProgramDir, "a.bin"); text != "content" {
		t.Errorf("a.bin has %q", text)
	}
	if signed.Load() != 1 || redirected.Load() != 1 || withCredentials.Load() != 0 {
		t.Errorf("%d signed and %d redirected requests, %d with foreign credentials", signed.Load(), redirected.Load(), withCredentials.Load())
	}
}

// TestLFSAddressesExpire checks that files arrive whose addresses have expired while earlier files of the
// same batch were transferred.
func TestLFSAddressesExpire(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	h := newLFSHost(t, f)
	entries := []entry{blob(".gitattributes", lfsAttributes)}
	for i := range 5 {
		entries = append(entries, blob(fmt.Sprintf("%d.bin", i), h.pointer(fmt.Sprintf("content %d", i))))
	}
	f.hostileBranch(t, "main", entries...)
	src := workflow.GitSource{RepoURL: h.URL + "/group/program.git", Branch: "main", LFS: true}
	h.uses = 2
	got, err := f.fetch(t.Context(), t, src)
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	for i := range 5 {
		if text, want := readIn(t, got.ProgramDir, fmt.Sprintf("%d.bin", i)), fmt.Sprintf("content %d", i); text != want {
			t.Errorf("%d.bin has %q, want %q", i, text, want)
		}
	}
	if h.batches != 3 {
		t.Errorf("the server received %d batches, want 3", h.batches)
	}
}

// TestLFSWithNamesInOtherEncodings checks that files arrive whose names, or the names of whose directories,
// are not UTF-8.
func TestLFSWithNamesInOtherEncodings(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	h := newLFSHost(t, f)
	f.hostileBranch(t, "main", blob(".gitattributes", lfsAttributes),
		blob("caf\xe9.bin", h.pointer("file")), blob("stra\xdfe/a.bin", h.pointer("directory")))
	got, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: h.URL + "/group/program.git", Branch: "main", LFS: true})
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	for name, want := range map[string]string{"caf\xe9.bin": "file", "stra\xdfe/a.bin": "directory"} {
		if text := readIn(t, got.ProgramDir, name); text != want {
			t.Errorf("%q has %q, want %q", name, text, want)
		}
	}
}

func TestLFSErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	h := newLFSHost(t, f)
	good := h.pointer("content")
	missing := h.pointer("gone")
	delete(h.objects, fmt.Sprintf("%x", sha256.Sum256([]byte("gone"))))
	huge := strings.Replace(good, "size 7", "size 34359738368", 1)
	for _, tt := range []struct {
		name    string
		repo    string
		pointer string
		storage string
		want    string
	}{
		{"missing object", h.URL, missing, "", "does not have the object"},
		{"too large", h.URL, huge, "", "the server sent another content"},
		{"no LFS", f.server.URL, good, "", "no Git LFS for this repository"},
		{"address of a file", h.URL, good, "file:///etc", "not usable"},
		{"address without a host", h.URL, good, "/etc", "not usable"},
	} {
		h.storage = tt.storage
		f.hostileBranch(t, "main", blob(".gitattributes", lfsAttributes), blob("a.bin", tt.pointer))
		_, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: tt.repo + "/group/program.git", Branch: "main", LFS: true})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", tt.name, err, tt.want)
		}
	}
	// Two files of the permitted size together exceed the limit.
	f.hostileBranch(t, "main", blob(".gitattributes", lfsAttributes), blob("a.bin", huge), blob("b.bin", huge))
	_, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: h.URL + "/group/program.git", Branch: "main", LFS: true})
	if err == nil || !strings.Contains(err.Error(), "more than 32 GiB") {
		t.Errorf("too much: got %v", err)
	}
}
