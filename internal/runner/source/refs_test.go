package source_test

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

// TestRefsAreNotConfused checks that a user who may push a tag or a branch cannot change the
// meaning of a commit or of another branch. Each case requests a revision that resembles one of the
// pushed names.
func TestRefsAreNotConfused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	second := f.commit(t, "main", "two")
	evil := f.commit(t, "evil", "evil")
	f.git(t, "update-ref", "-d", "refs/heads/evil")
	f.git(t, "update-ref", "refs/heads/odd-ü#!$&'()%2f", f.first)
	missing := "abcdef12"
	for _, ref := range []string{
		"refs/tags/" + f.first[:7], "refs/heads/" + f.first[:7], "refs/heads/" + missing, "refs/tags/" + missing, // abbreviated hashes
		"refs/heads/" + second, "refs/tags/" + second, // whole hashes
		"refs/tags/main", "refs/heads/refs/heads/main", "refs/heads/origin/main", // names of a branch
		"refs/heads/refs/heads/gone", "refs/tags/refs/heads/gone", "refs/refs/heads/gone", // a branch that does not exist
		"refs/heads/refs/tags/gone", "refs/tags/refs/tags/gone", "refs/heads/gone/HEAD",
		"refs/heads/HEAD", "refs/tags/HEAD", "refs/remotes/origin/HEAD", "refs/heads/FETCH_HEAD", "refs/heads/@",
	} {
		f.git(t, "update-ref", ref, evil)
	}
	if out := f.git(t, "rev-parse", f.first[:7]+"^{commit}"); !strings.HasPrefix(out, "warning: refname") || !strings.HasSuffix(out, evil) {
		t.Logf("git resolves the tag as %q", out) // this demonstrates the confusion, which depends on git's version
	}

	for _, tt := range []struct {
		name   string
		source workflow.GitSource
		want   string // hash, or "" for an error
		err    string
	}{
		{"default branch", workflow.GitSource{}, second, ""},
		{"abbreviated commit", workflow.GitSource{Commit: f.first[:7]}, f.first, ""},
		{"abbreviated commit in capitals", workflow.GitSource{Commit: strings.ToUpper(f.first[:9])}, f.first, ""},
		{"commit that is a name only", workflow.GitSource{Commit: missing}, "", "commit abcdef12 does not exist"},
		{"whole commit", workflow.GitSource{Commit: second}, second, ""},
		{"whole commit that is a name only", workflow.GitSource{Commit: strings.Repeat("ab", 20)}, "", "does not exist"},
		{"branch with the name of a tag", workflow.GitSource{Branch: "main"}, second, ""},
		{"full name", workflow.GitSource{Branch: "refs/heads/main"}, second, ""},
		{"tag with the name of a branch", workflow.GitSource{Branch: "refs/tags/main"}, evil, ""},
		{"branch that is gone", workflow.GitSource{Branch: "gone"}, "", `branch "gone" does not exist`},
		{"full name that is gone", workflow.GitSource{Branch: "refs/heads/gone"}, "", `does not exist`},
		{"tag that is gone", workflow.GitSource{Branch: "refs/tags/gone"}, "", `tag "refs/tags/gone" does not exist`},
		{"branch named like a full name", workflow.GitSource{Branch: "refs/heads/refs/heads/main"}, evil, ""},
		{"branch named like a commit", workflow.GitSource{Branch: f.first[:7]}, evil, ""},
		{"branch named like a whole commit", workflow.GitSource{Branch: second}, evil, ""},
		{"branch named like a remote's", workflow.GitSource{Branch: "origin/main"}, evil, ""},
		{"branch with odd characters", workflow.GitSource{Branch: "odd-ü#!$&'()%2f"}, f.first, ""},
		{"HEAD", workflow.GitSource{Branch: "HEAD"}, "", "not a valid branch name"},
		{"full HEAD", workflow.GitSource{Branch: "refs/heads/HEAD"}, "", "not a valid branch name"},
		{"at", workflow.GitSource{Branch: "@"}, "", "not a valid branch name"},
		{"full at", workflow.GitSource{Branch: "refs/heads/@"}, "", "not a valid branch name"},
		{"FETCH_HEAD", workflow.GitSource{Branch: "FETCH_HEAD"}, evil, ""},
		{"previous branch", workflow.GitSource{Branch: "@{-1}"}, "", "not a valid branch name"},
		{"glob", workflow.GitSource{Branch: "ma*"}, "", "not a valid branch name"},
		{"negative refspec", workflow.GitSource{Branch: "^main"}, "", "not a valid branch name"},
		{"line break", workflow.GitSource{Branch: "ma\nin"}, "", "not a valid branch name"},
		{"not UTF-8", workflow.GitSource{Branch: "ma\xffin"}, "", "not a valid branch name"},
		{"refs only", workflow.GitSource{Branch: "refs/heads/"}, "", "not a valid branch name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.log.Reset()
			got, err := f.fetch(t.Context(), t, tt.source)
			switch {
			case tt.want == "" && err == nil:
				t.Fatalf("checked out %s, want an error with %q", name(got.Commit, f.first, second, evil), tt.err)
			case tt.want == "":
				if !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %q, want %q", err, tt.err)
				}
				return
			case err != nil:
				t.Fatalf("%v\n%s", err, f.log.String())
			case got.Commit != tt.want:
				t.Errorf("checked out %s, want %s", name(got.Commit, f.first, second, evil), name(tt.want, f.first, second, evil))
			}
			content, err := os.ReadFile(filepath.Join(f.dir, "file"))
			if isEvil := string(content) == "evil"; isEvil != (tt.want == evil) {
				t.Errorf("the checkout holds %q, %v", content, err)
			}
		})
	}
}

func name(hash, first, second, evil string) string {
	switch hash {
	case first:
		return "the first commit"
	case second:
		return "the second commit"
	case evil:
		return "evil's commit"
	}
	return hash
}

// TestCommitOfRef checks that a commit of a pull request, which is in no branch, is found by its ref
// on servers that offer only the commits of refs.
func TestCommitOfRef(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	head := f.commit(t, "change", "two")
	f.git(t, "config", "uploadpack.allowAnySHA1InWant", "false")
	f.git(t, "update-ref", "refs/pull/7/head", f.commit(t, "change", "three")) // the tip of a ref is offered
	f.git(t, "update-ref", "-d", "refs/heads/change")
	target, err := url.Parse(f.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	// Without the header, the server uses protocol version 0, in which it offers no other commits.
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Del("Git-Protocol")
	}})
	defer proxy.Close()
	address := strings.Replace(f.repo.URL, f.server.URL, proxy.URL, 1)
	if _, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: address, Commit: strings.Repeat("ab", 20), Branch: "refs/pull/7/head"}); err == nil {
		t.Error("fetched a commit that the ref does not contain")
	}
	if _, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: address, Commit: head}); err == nil {
		t.Fatal("fetched the commit without its ref, so that this test shows nothing")
	}
	got, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: address, Commit: head, Branch: "refs/pull/7/head"})
	if err != nil || got.Commit != head {
		t.Fatalf("got %+v, %v\n%s", got, err, f.log.String())
	}
}
