package refs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_COMMITTER_NAME=Lab", "GIT_COMMITTER_EMAIL=lab@example.invalid")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// fixture is a repository with branches, an annotated tag, and the head of a pull request.
func fixture(t *testing.T, options lab.GitOptions) (server *lab.GitServer, repo *lab.Repo, want []vcs.Ref) {
	t.Helper()
	server, err := lab.StartGitServer(t.Context(), t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	repo, head, err := server.NewRepo(t.Context(), "app", map[string]string{"a": "1"})
	if err != nil {
		t.Fatal(err)
	}
	feature, err := repo.Commit(t.Context(), "feature/x", "More", map[string]string{"b": "2"})
	if err != nil {
		t.Fatal(err)
	}
	git(t, repo.Dir(), "tag", "light", head)
	git(t, repo.Dir(), "tag", "-a", "-m", "Release", "v1.0.0", feature)
	git(t, repo.Dir(), "update-ref", "refs/pull/7/head", feature)
	return server, repo, []vcs.Ref{
		{Name: "refs/heads/feature/x", Commit: feature},
		{Name: "refs/heads/main", Commit: head},
		{Name: "refs/pull/7/head", Commit: feature},
		{Name: "refs/tags/light", Commit: head},
		{Name: "refs/tags/v1.0.0", Commit: feature},
	}
}

func client(t *testing.T, address string) *Client {
	t.Helper()
	peer, err := outbound.NewPeer(address, "", outbound.Reach{Anywhere: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.Close)
	return &Client{Peer: peer}
}

// TestHTTP lists refs of git's own server, in both versions of the protocol.
func TestHTTP(t *testing.T) {
	server, repo, want := fixture(t, lab.GitOptions{})
	origin, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for name, rewrite := range map[string]func(r *http.Request){
		"version 2":        func(*http.Request) {},
		"version 1":        func(r *http.Request) { r.Header.Set("Git-Protocol", "version=1") },
		"original version": func(r *http.Request) { r.Header.Del("Git-Protocol") },
	} {
		t.Run(name, func(t *testing.T) {
			paths = nil
			proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				paths = append(paths, r.In.URL.Path)
				r.SetURL(origin)
				rewrite(r.Out)
			}})
			defer proxy.Close()
			c, address := client(t, proxy.URL), proxy.URL+"/app.git"
			got, err := c.List(t.Context(), address, vcs.Credential{}, []string{"refs/"})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
			if asked := len(paths) == 2; asked != (name == "version 2") {
				t.Errorf("requests %v", paths)
			}
			got, err = c.List(t.Context(), address, vcs.Credential{}, []string{"refs/heads/main", "refs/tags/v"})
			if diff := cmp.Diff([]vcs.Ref{want[1], want[4]}, got); err != nil || diff != "" {
				t.Errorf("with prefixes: %v\n%s", err, diff)
			}
			if head, err := c.Find(t.Context(), address, vcs.Credential{}, "refs/heads/main"); err != nil || head != want[1].Commit {
				t.Errorf("finding the head: %s, %v", head, err)
			}
			if _, err := c.Find(t.Context(), address, vcs.Credential{}, "refs/heads/mai"); !errors.Is(err, vcs.ErrNotFound) {
				t.Errorf("finding a missing ref: %v", err)
			}
		})
	}
	if _, err := client(t, server.URL).List(t.Context(), server.URL+"/missing.git", vcs.Credential{}, []string{"refs/"}); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("a missing repository: %v", err)
	}
	deleteAll := exec.CommandContext(t.Context(), "sh", "-c", `git for-each-ref --format="delete %(refname)" | git update-ref --stdin`)
	deleteAll.Dir = repo.Dir()
	if out, err := deleteAll.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, err := client(t, server.URL).List(t.Context(), repo.URL, vcs.Credential{}, []string{"refs/"}); err != nil || len(got) > 0 {
		t.Errorf("an empty repository: %v, %v", got, err)
	}
}

func TestHTTPLogin(t *testing.T) {
	server, repo, want := fixture(t, lab.GitOptions{Username: "deploy", Password: "right"})
	c := client(t, server.URL)
	got, err := c.List(t.Context(), repo.URL, vcs.Credential{UserName: "deploy", Password: "right"}, []string{"refs/"})
	if err != nil || len(got) != len(want) {
		t.Errorf("%d refs, %v", len(got), err)
	}
	for _, wrong := range []vcs.Credential{{}, {UserName: "deploy", Password: "wrong-password"}} {
		_, err := c.List(t.Context(), repo.URL, wrong, []string{"refs/"})
		if !errors.Is(err, vcs.ErrRefused) || strings.Contains(err.Error(), "wrong-password") {
			t.Errorf("%v", err)
		}
	}
	other := strings.Replace(repo.URL, "127.0.0.1", "localhost", 1)
	if _, err := c.List(t.Context(), other, vcs.Credential{}, []string{"refs/"}); err == nil {
		t.Error("a repository of another origin was listed")
	}
}

// TestRenamed checks that both requests follow the redirect of a renamed repository.
func TestRenamed(t *testing.T) {
	server, _, want := fixture(t, lab.GitOptions{})
	origin, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(origin)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && strings.HasPrefix(r.URL.Path, "/old.git/") {
			http.Redirect(w, r, strings.Replace(r.URL.RequestURI(), "/old.git", "/app.git", 1), http.StatusMovedPermanently)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	got, err := client(t, front.URL).List(t.Context(), front.URL+"/old.git", vcs.Credential{}, []string{"refs/"})
	if err != nil || len(got) != len(want) {
		t.Errorf("%d refs, %v", len(got), err)
	}
}

func TestHostileServers(t *testing.T) {
	id := strings.Repeat("a", 40)
	packets := func(lines ...string) string {
		var w writer
		for _, l := range lines {
			w.line(l)
		}
		w.flush()
		return w.String()
	}
	for name, tt := range map[string]struct{ contentType, body, want string }{
		"a web page":       {"text/html", "<html>", "content type"},
		"dumb protocol":    {"text/plain", id + "\trefs/heads/main\n", "content type"},
		"no packets":       {advertisementType, "<html>", "does not speak"},
		"cut":              {advertisementType, "00ff" + id, "ended early"},
		"an error":         {advertisementType, packets("ERR access\x1b[2J denied today"), `access\x1b[2J denied`},
		"without ls-refs":  {advertisementType, packets("version 2", "fetch"), "does not list refs"},
		"an odd object":    {advertisementType, packets("nonsense refs/heads/main"), "invalid object id"},
		"an unknown hash":  {advertisementType, packets("version 2", "ls-refs", "object-format=md5"), "unknown format"},
		"a length of 3":    {advertisementType, "0003", "does not speak"},
		"a delimiter":      {advertisementType, "0001", "invalid advertisement"},
		"a negative size":  {advertisementType, "-001", "does not speak"},
		"endless refs":     {advertisementType, strings.Repeat("0042"+id+" refs/heads/some-name\n", maxRefs+1), "more than 100000 refs"},
		"nothing at all":   {advertisementType, "", "ended early"},
		"no line of refs":  {advertisementType, packets("version 2", "ls-refs"), "content type"},
		"a header and cut": {advertisementType, "001e# service=git-upload-pack\n", "invalid advertisement"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", tt.contentType)
			io.WriteString(w, tt.body)
		}))
		if _, err := client(t, server.URL).List(t.Context(), server.URL+"/r.git", vcs.Credential{}, []string{"refs/"}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		server.Close()
	}
	// A name that other programs could mistake for an option or another ref is dropped.
	r := newReader(strings.NewReader(packets(id+" refs/heads/a..b", id+" refs/heads/ok", id+" --upload-pack=x", "unborn HEAD")))
	got, err := readRefs(r, []string{""})
	if err != nil || len(got) != 1 || got[0].Name != "refs/heads/ok" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := new(Client).List(t.Context(), "https://forge.example.com/a/b", vcs.Credential{}, []string{"refs/\n0000"}); err == nil {
		t.Error("a prefix with a line break was accepted")
	}
}

// TestConversation speaks with a process of git, as over ssh.
func TestConversation(t *testing.T) {
	_, repo, want := fixture(t, lab.GitOptions{})
	for _, protocol := range []string{"", "version=1", "version=2"} {
		cmd := exec.CommandContext(t.Context(), "git", "upload-pack", ".")
		cmd.Dir, cmd.Env = repo.Dir(), append(cmd.Environ(), "GIT_PROTOCOL="+protocol)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var got []vcs.Ref
		err = converse(newReader(stdout), stdin, []string{"refs/"}, func(a advertisement, ask ask) error {
			if err := listInto(&got, []string{"refs/"})(a, ask); err != nil || !a.version2 {
				return err
			}
			files, err := readFiles(t.Context(), a, ask, want[0].Commit, "", func(path string) bool { return path == "b" })
			if err != nil || len(files) != 1 || files[0].Content != "2" {
				t.Errorf("%q: the files are %v, %v", protocol, files, err)
			}
			return err
		})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", protocol, err, diff)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: git did not accept the end of the conversation: %v", protocol, err)
		}
	}
}

func TestSHA256(t *testing.T) {
	root := t.TempDir()
	dir := root + "/new.git"
	git(t, root, "init", "--quiet", "--bare", "--object-format=sha256", "--initial-branch=main", dir)
	tree := git(t, dir, "hash-object", "-t", "tree", "-w", "/dev/null")
	commit := git(t, dir, "-c", "user.name=Lab", "-c", "user.email=lab@example.invalid", "commit-tree", "-m", "Begin", tree)
	git(t, dir, "update-ref", "refs/heads/main", commit)
	server, err := lab.StartGitServer(t.Context(), root, lab.GitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	got, err := client(t, server.URL).List(t.Context(), server.URL+"/new.git", vcs.Credential{}, []string{"refs/"})
	if diff := cmp.Diff([]vcs.Ref{{Name: "refs/heads/main", Commit: commit}}, got); err != nil || diff != "" || len(commit) != 64 {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestCanceled(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client(t, server.URL).List(ctx, server.URL+"/r.git", vcs.Credential{}, []string{"refs/"}); err == nil {
		t.Error("listing succeeded without a server")
	}
}

func FuzzPackets(f *testing.F) {
	id := strings.Repeat("a", 40)
	for _, seed := range []string{
		"", "0000", "0001", "0002", "0003", "0004", "ffff", "000eversion 2\n0000", "0032" + id + " HEAD\n0000",
		"003f" + id + " refs/heads/main\x00symref=HEAD\n0000", "0009ERR x", "fff1" + strings.Repeat("x", 65516),
		"0045" + id + " refs/tags/v1 peeled:" + id + "\n0000",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, read := range []func(r *reader) ([]vcs.Ref, error){
			func(r *reader) ([]vcs.Ref, error) {
				a, err := readAdvertisement(r, []string{"refs/"})
				return a.refs, err
			},
			func(r *reader) ([]vcs.Ref, error) { return readRefs(r, []string{"refs/"}) },
		} {
			found, err := read(newReader(bytes.NewReader(body)))
			if err != nil {
				continue
			}
			for _, ref := range found {
				if !isObject(ref.Commit) || !strings.HasPrefix(ref.Name, "refs/") {
					t.Errorf("returned %+v", ref)
				}
			}
		}
	})
}
