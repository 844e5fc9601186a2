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

type traps struct {
	marker  string // every trap that runs writes its name here
	script  string // path of a script that runs as a trap
	url     string // of a server that counts requests
	asked   atomic.Int32
	environ []string // of a step that tries to change git's behaviour
}

func newTraps(t *testing.T) *traps {
	t.Helper()
	dir := t.TempDir()
	tr := &traps{marker: filepath.Join(dir, "marker"), script: filepath.Join(dir, "trap")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tr.asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	tr.url = server.URL

	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\necho \"$0 $*\" >>" + tr.marker + "\nexit 1\n"
	write(tr.script, script, 0o755)
	hooks := filepath.Join(dir, "hooks")
	for _, hook := range []string{"post-checkout", "post-merge", "reference-transaction", "post-index-change", "pre-auto-gc"} {
		write(filepath.Join(hooks, hook), script, 0o755)
		write(filepath.Join(dir, "template", "hooks", hook), script, 0o755)
	}
	config := strings.NewReplacer("SCRIPT", tr.script, "DIR", dir, "URL", tr.url).Replace(`
[core]
	hooksPath = DIR/hooks
	fsmonitor = SCRIPT
	sshCommand = SCRIPT
	askPass = SCRIPT
	gitProxy = SCRIPT
[init]
	templateDir = DIR/template
[credential]
	helper = "!SCRIPT"
[filter "evil"]
	smudge = SCRIPT
	clean = SCRIPT
[filter "lfs"]
	process = SCRIPT
	smudge = SCRIPT
	required = true
[submodule]
	recurse = true
[transfer]
	bundleURI = true
[protocol]
	allow = always
[trace2]
	eventTarget = DIR/marker
`)
	home := filepath.Join(dir, "home")
	write(filepath.Join(home, ".gitconfig"), config, 0o644)
	write(filepath.Join(home, "git", "config"), config, 0o644)
	tr.environ = append(os.Environ(),
		"HOME="+home, "XDG_CONFIG_HOME="+home, "GIT_CONFIG_GLOBAL="+home+"/.gitconfig", "GIT_CONFIG_SYSTEM="+home+"/.gitconfig",
		"GIT_TEMPLATE_DIR="+filepath.Join(dir, "template"), "GIT_SSH_COMMAND="+tr.script, "GIT_SSH="+tr.script, "GIT_PROXY_COMMAND="+tr.script,
		"GIT_ASKPASS="+tr.script, "SSH_ASKPASS="+tr.script, "GIT_EXTERNAL_DIFF="+tr.script, "GIT_PAGER="+tr.script, "GIT_EDITOR="+tr.script,
		"GIT_TRACE="+tr.marker, "GIT_TRACE2="+tr.marker, "GIT_ALLOW_PROTOCOL=ext:file:http", "GIT_LFS_SKIP_SMUDGE=0",
		"GIT_CONFIG_PARAMETERS='core.hookspath="+hooks+"'",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0="+hooks)
	return tr
}

func (tr *traps) sprung() string {
	out, _ := os.ReadFile(tr.marker)
	_ = os.Remove(tr.marker)
	if n := tr.asked.Swap(0); n > 0 {
		out = fmt.Appendf(out, "%d requests\n", n)
	}
	return string(out)
}

// entry is an entry of a tree that git's own commands would not write.
type entry struct{ mode, kind, path, content string }

func (f *fixture) hostileBranch(t *testing.T, branch string, entries ...entry) {
	t.Helper()
	tree := f.tree(t, entries)
	commit := f.gitInput(t, "", "-c", "user.name=e", "-c", "user.email=e@e", "commit-tree", "-m", branch, tree)
	f.git(t, "update-ref", "refs/heads/"+branch, commit)
}

func (f *fixture) tree(t *testing.T, entries []entry) string {
	t.Helper()
	var list strings.Builder
	for _, e := range entries {
		hash := e.content // of a submodule's commit
		switch dir, rest, nested := strings.Cut(e.path, "/"); {
		case nested:
			below := entry{e.mode, e.kind, rest, e.content}
			if e.kind == "blob" {
				below.mode = "100755"
			}
			e.path, e.mode, e.kind = dir, "040000", "tree"
			hash = f.tree(t, []entry{below})
		case e.kind == "blob":
			hash = f.gitInput(t, e.content, "hash-object", "-w", "--stdin")
		}
		fmt.Fprintf(&list, "%s %s %s\t%s\x00", e.mode, e.kind, hash, e.path)
	}
	return f.gitInput(t, list.String(), "mktree", "-z", "--missing")
}

func (f *fixture) gitInput(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = f.repo.Dir()
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestHostileRepositoriesSpringNoTrap checks that a fetch runs no code from a repository or the
// step's environment, and contacts only the repository's server. If control is set, the test first
// checks that a plain clone triggers the trap.
func TestHostileRepositoriesSpringNoTrap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	tr := newTraps(t)
	link := func(path, target string) entry { return entry{"120000", "blob", path, target} }
	module := func(path string) entry { return entry{"160000", "commit", path, f.first} }
	modules := func(path string) entry {
		return blob(".gitmodules", "[submodule \"m\"]\n\tpath = "+path+"\n\turl = "+tr.url+"/m.git\n\tupdate = checkout\n[submodule \"ext\"]\n\tpath = x\n\turl = ext::"+tr.script+"\n")
	}
	trap := "#!/bin/sh\necho hook >>" + tr.marker + "\n"
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 12\n"

	for _, tt := range []struct {
		name    string
		entries []entry
		control bool   // a plain clone triggers the trap
		err     string // part of the fetch's error, "" for success
	}{
		{"submodule", []entry{modules("sub"), module("sub"), module("x")}, true, ""},
		{"submodule whose name ends in CR", []entry{modules("\"sub\r\""), module("sub\r"), link("sub", ".git/hooks")}, true, ""},
		{"filter", []entry{blob(".gitattributes", "* filter=evil diff=evil merge=evil\n"), blob("a", "x")}, true, ""},
		{"LFS pointer", []entry{blob(".gitattributes", "* filter=lfs\n"), blob(".lfsconfig", "[lfs]\n\turl = "+tr.url+"\n"), blob("a", pointer)}, true, ""},
		{"hooks of the host", []entry{blob("a", "x")}, true, ""},
		{"links to the hooks", []entry{link("A", ".git/hooks"), blob("a/post-checkout", trap)}, true, ""},
		{"a link and a directory of one name", []entry{link("a", ".git/hooks"), blob("a/post-checkout", trap)}, false, ""},
		{"git directory", []entry{blob(".git/hooks", trap)}, false, "cloning"},
		{"git directory in capitals", []entry{blob(".GIT/config", trap)}, false, "cloning"},
		{"git directory by its short name", []entry{blob("git~1/config", trap)}, false, "cloning"},
		{"git directory with an ignored character", []entry{blob(".g\u200cit/config", trap)}, false, "cloning"},
		{"git directory as a stream", []entry{blob(".git::$INDEX_ALLOCATION/config", trap)}, false, "cloning"},
		{"parent directory", []entry{blob("../escaped", trap)}, false, "cloning"},
		{"link as .gitmodules", []entry{link(".gitmodules", "/etc/passwd"), module("sub")}, false, "cloning"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.hostileBranch(t, "hostile", append(tt.entries, blob("Pulumi.yaml", "name: x\nruntime: yaml\n"))...)
			if tt.control {
				plain := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "--recurse-submodules", "--branch=hostile", f.repo.URL, t.TempDir())
				plain.Env = tr.environ
				_ = plain.Run() // can fail because of the traps
				if tr.sprung() == "" {
					t.Error("a plain clone springs no trap, so the test proves nothing")
				}
			}
			f.environ = tr.environ
			got, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "hostile"})
			switch {
			case tt.err == "" && err != nil:
				t.Errorf("%v\n%s", err, f.log.String())
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("got %v, %v, want an error with %q", got, err, tt.err)
			}
			if sprung := tr.sprung(); sprung != "" {
				t.Errorf("the fetch sprang a trap:\n%s", sprung)
			}
			entries, _ := os.ReadDir(filepath.Join(f.dir, ".git", "hooks"))
			if len(entries) > 0 {
				t.Errorf("the checkout contains %d hooks", len(entries))
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(f.dir), "escaped")); err == nil {
				t.Error("a file was written outside the checkout")
			}
		})
	}
}

// TestObjectsComeFromOneServerOnly checks that a fetch ignores a server's references to other
// servers: bundles, alternates, and promisors of a partial clone.
func TestObjectsComeFromOneServerOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	tr := newTraps(t)
	for _, setting := range [][2]string{
		{"uploadpack.advertiseBundleURIs", "true"},
		{"bundle.version", "1"},
		{"bundle.mode", "all"},
		{"bundle.b.uri", tr.url + "/b.bundle"},
		{"promisor.advertise", "true"},
		{"remote.p.promisor", "true"},
		{"remote.p.url", tr.url + "/p.git"},
	} {
		f.git(t, "config", setting[0], setting[1])
	}
	f.environ = tr.environ
	if _, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "main"}); err != nil {
		t.Errorf("%v\n%s", err, f.log.String())
	}
	if sprung := tr.sprung(); sprung != "" {
		t.Errorf("bundles and promises led elsewhere:\n%s", sprung)
	}

	// The dumb protocol supports alternates by URL.
	f.git(t, "update-server-info")
	objects := filepath.Join(f.repo.Dir(), "objects")
	if err := os.WriteFile(filepath.Join(objects, "info", "http-alternates"), []byte(tr.url+"/alt.git/objects\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// This server lacks the objects, so git searches elsewhere.
		if strings.Contains(r.URL.Path, "/objects/") && !strings.Contains(r.URL.Path, "/info/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.FileServer(http.Dir(f.repo.Dir())).ServeHTTP(w, r)
	}))
	defer files.Close()
	if got, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: files.URL + "/r", Branch: "main"}); err == nil {
		t.Errorf("fetched %v without its objects", got)
	}
	if sprung := tr.sprung(); sprung != "" {
		t.Errorf("alternates led elsewhere:\n%s", sprung)
	}
}

// TestManyRefs fetches every kind of revision from a repository with very many refs. The many refs
// whose names end in HEAD must not hide the default branch.
func TestManyRefs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{})
	var refs strings.Builder
	refs.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range 300 {
		fmt.Fprintf(&refs, "%s refs/heads/%06d/%s/HEAD\n", f.first, i, strings.Repeat("long", 40))
	}
	fmt.Fprintf(&refs, "%s refs/heads/main\n", f.first)
	if err := os.WriteFile(filepath.Join(f.repo.Dir(), "packed-refs"), []byte(refs.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, src := range []workflow.GitSource{{}, {Branch: "main"}, {Commit: f.first}, {Commit: f.first[:8]}} {
		got, err := f.fetch(t.Context(), t, src)
		if err != nil || got.Commit != f.first {
			t.Errorf("%+v: %v, %v", src, got, err)
		}
	}
}

// TestConfigurationReachesOldGit checks that a git without support for GIT_CONFIG_COUNT, as in some
// images, still receives the configuration.
func TestConfigurationReachesOldGit(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	bin := t.TempDir()
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(bin, "seen")
	// Git before 2.31 ignores GIT_CONFIG_COUNT, and git before 2.32 ignores GIT_CONFIG_GLOBAL.
	wrapper := "#!/bin/sh\nunset GIT_CONFIG_COUNT GIT_CONFIG_GLOBAL\n" + real + " config --list >>" + seen + "\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if _, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "main"}); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"core.hookspath=/dev/null", "core.protectntfs=true", "core.protecthfs=true", "submodule.recurse=false", "safe.directory=*", "transfer.bundleuri=false"} {
		if !strings.Contains(strings.ToLower(string(config)), want) {
			t.Errorf("git does not get %s", want)
		}
	}
}
