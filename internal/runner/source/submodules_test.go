package source_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

func blob(path, content string) entry   { return entry{"100644", "blob", path, content} }
func gitlink(path, commit string) entry { return entry{"160000", "commit", path, commit} }

func gitmodules(pathsAndURLs ...string) entry {
	var text strings.Builder
	for i := 0; i < len(pathsAndURLs); i += 2 {
		fmt.Fprintf(&text, "[submodule \"m%d\"]\n\tpath = %s\n\turl = %s\n", i, pathsAndURLs[i], pathsAndURLs[i+1])
	}
	return blob(".gitmodules", text.String())
}

// repository adds a repository to the fixture's server, with one commit of the entries on main.
func (f *fixture) repository(t *testing.T, name string, entries ...entry) (url, commit string) {
	t.Helper()
	repo, _, err := f.server.NewRepo(t.Context(), name, map[string]string{"empty": ""})
	if err != nil {
		t.Fatal(err)
	}
	other := &fixture{server: f.server, serverDir: f.serverDir, repo: repo}
	other.hostileBranch(t, "main", entries...)
	return repo.URL, other.gitInput(t, "", "rev-parse", "main")
}

func readIn(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFetchSubmodules(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{Username: "x-access-token", Password: token})
	_, inner := f.repository(t, "group/inner", blob("file", "inner"))
	_, lib := f.repository(t, "group/lib", gitmodules("in/ner", "../inner.git"), blob("file", "lib"), gitlink("in/ner", inner))
	f.hostileBranch(t, "main", blob("Pulumi.yaml", "name: x\nruntime: yaml\n"),
		gitmodules("lib", "../lib.git", "absent", "../lib.git"), gitlink("lib", lib))

	auth := &workflow.GitAuth{AccessToken: token}
	got, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "main", Auth: auth})
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	if entries, err := os.ReadDir(filepath.Join(got.ProgramDir, "lib")); err != nil || len(entries) > 0 {
		t.Errorf("without a request, the submodule has %v, %v", entries, err)
	}
	got, err = f.fetch(t.Context(), t, workflow.GitSource{Branch: "main", Auth: auth, Submodules: true, RepoDir: "lib"})
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	if text := readIn(t, got.ProgramDir, "file"); text != "lib" {
		t.Errorf("the submodule's file has %q", text)
	}
	head, err := exec.CommandContext(t.Context(), "git", "-C", got.ProgramDir, "rev-parse", "HEAD").Output()
	if err != nil || strings.TrimSpace(string(head)) != lib {
		t.Errorf("the submodule is at %s, %v, want %s", head, err, lib)
	}
	if text := readIn(t, got.ProgramDir, "in/ner/file"); text != "inner" {
		t.Errorf("the nested submodule's file has %q", text)
	}
	status, err := exec.CommandContext(t.Context(), "git", "-C", filepath.Dir(got.ProgramDir), "status", "--porcelain").Output()
	if err != nil || len(status) > 0 {
		t.Errorf("git reports changes: %s, %v", status, err)
	}
}

// TestSubmodulesOfOtherServersGetNoCredentials checks that a hostile .gitmodules file cannot send
// the deployment's credentials to another server, not even through a redirect or a name that looks
// like the repository's.
func TestSubmodulesOfOtherServersGetNoCredentials(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{Username: "x-access-token", Password: token})
	var requests, withCredentials atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "" || strings.Contains(r.URL.String(), token) {
			withCredentials.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(thief.Close)
	host := strings.TrimPrefix(f.server.URL, "http://")
	for _, url := range []string{
		thief.URL + "/lib.git",
		strings.Replace(thief.URL, "http://", "http://"+host+"@", 1) + "/lib.git",
		strings.Replace(thief.URL, "http://", "http://x-access-token@", 1) + "/group/program.git",
	} {
		f.hostileBranch(t, "hostile", gitmodules("lib", url), gitlink("lib", f.first))
		before := requests.Load()
		_, err := f.fetch(t.Context(), t, workflow.GitSource{
			Branch: "hostile", Submodules: true, LFS: true, Auth: &workflow.GitAuth{AccessToken: token},
		})
		if err == nil || !strings.Contains(err.Error(), "requires credentials") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v\n%s", url, err, f.log.String())
		}
		if requests.Load() == before {
			t.Errorf("%s: the server got no request, so the test proves nothing", url)
		}
	}
	if n := withCredentials.Load(); n > 0 {
		t.Errorf("another server got the credentials in %d requests", n)
	}
	if strings.Contains(f.log.String(), token) {
		t.Error("the log contains the token")
	}
}

// TestHostileSubmodules requests the submodules of repositories that try to leave the checkout, run
// a command or read the job's machine.
func TestHostileSubmodules(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	tr := newTraps(t)
	f.environ = tr.environ
	_, trapped := f.repository(t, "group/trapped",
		blob(".gitattributes", "* filter=evil diff=evil merge=evil\n"), blob("post-checkout", "#!/bin/sh\necho hook >>"+tr.marker+"\n"), blob("a", "x"))
	const good = "../trapped.git"
	for _, tt := range []struct {
		name    string
		entries []entry
		err     string // "" for success
	}{
		{"hooks and filters", []entry{gitmodules("lib", good), gitlink("lib", trapped)}, ""},
		{"update command", []entry{blob(".gitmodules", "[submodule \"x\"]\n\tpath = lib\n\turl = "+good+"\n\tupdate = !"+tr.script+"\n"), gitlink("lib", trapped)}, ""},
		{"no entry in .gitmodules", []entry{gitlink("lib", trapped)}, ""},
		{"no submodule at the path", []entry{gitmodules("lib", good), blob("lib/file", "x")}, ""},
		{"command", []entry{gitmodules("lib", "ext::"+tr.script), gitlink("lib", trapped)}, "not usable"},
		{"local path", []entry{gitmodules("lib", f.repo.Dir()), gitlink("lib", f.first)}, "not usable"},
		{"file", []entry{gitmodules("lib", "file://"+f.repo.Dir()), gitlink("lib", f.first)}, "not usable"},
		{"option", []entry{gitmodules("lib", "--upload-pack="+tr.script), gitlink("lib", trapped)}, "not usable"},
		{"ssh option", []entry{gitmodules("lib", "ssh://-oProxyCommand="+tr.script+"/x"), gitlink("lib", trapped)}, "not usable"},
		{"above the server", []entry{gitmodules("lib", "../../../../../../etc/passwd"), gitlink("lib", trapped)}, "cloning " + f.server.URL + "/etc/passwd"},
		{"missing commit", []entry{gitmodules("lib", good), gitlink("lib", strings.Repeat("ab", 20))}, "does not exist in the repository"},
		{"include", []entry{blob(".gitmodules", "[include]\n\tpath = "+tr.environ[0]+"\n[submodule \"x\"]\n\tpath = lib\n\turl = "+good+"\n"), gitlink("lib", trapped)}, ""},
		{"large file", []entry{blob(".gitmodules", strings.Repeat("# comment\n", 7000)), gitlink("lib", trapped)}, "more than 64 KiB"},
		{"directory as .gitmodules", []entry{blob(".gitmodules/x", "x"), gitlink("lib", trapped)}, "not a regular file"},
		{"not a configuration", []entry{blob(".gitmodules", "[submodule"), gitlink("lib", trapped)}, "reading .gitmodules"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.hostileBranch(t, "hostile", tt.entries...)
			_, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "hostile", Submodules: true})
			switch {
			case tt.err == "" && err != nil:
				t.Errorf("%v\n%s", err, f.log.String())
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want one line with %q", err, tt.err)
			}
			if sprung := tr.sprung(); sprung != "" {
				t.Errorf("the fetch sprang a trap:\n%s", sprung)
			}
		})
	}
}

func TestLimitsOfSubmodules(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	_, commit := f.repository(t, "group/level0", blob("file", "x"))
	for level := range 9 {
		_, commit = f.repository(t, fmt.Sprintf("group/level%d", level+1), gitmodules("m", fmt.Sprintf("../level%d.git", level)), gitlink("m", commit))
	}
	f.hostileBranch(t, "deep", gitmodules("m", "../level9.git"), gitlink("m", commit))
	for _, tt := range []struct {
		name    string
		branch  string
		allowed []string
		want    string
	}{
		{"nested too deep", "deep", nil, "more than 8 levels"},
		{"not in allowed_repositories", "deep", []string{"*/group/program"}, "not in the host's allowed_repositories"},
	} {
		f.allowed = tt.allowed
		if _, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: tt.branch, Submodules: true}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}
