package source_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(source.AskpassEnv); file != "" {
		answer, err := source.Answer(file, strings.Join(os.Args[1:], " "))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(answer)
		return
	}
	os.Exit(m.Run())
}

const token = "tok-4f8e2b7716aa"

type fixture struct {
	server    *lab.GitServer
	serverDir string
	repo      *lab.Repo
	first     string // commit on main
	dir       string
	environ   []string // of the step; nil for the test's environment
	allowed   []string // repositories
	log       strings.Builder
}

func newFixture(t *testing.T, options lab.GitOptions) *fixture {
	t.Helper()
	base := t.TempDir()
	server, err := lab.StartGitServer(t.Context(), base, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	repo, first, err := server.NewRepo(t.Context(), "group/program", map[string]string{
		"Pulumi.yaml":       "name: program\nruntime: yaml\n",
		"infra/Pulumi.yaml": "name: infra\nruntime: yaml\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{server: server, serverDir: base, repo: repo, first: first, dir: filepath.Join(t.TempDir(), "work")}
}

func (f *fixture) commit(t *testing.T, branch, content string) string {
	t.Helper()
	hash, err := f.repo.Commit(t.Context(), branch, "Change", map[string]string{"file": content})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func (f *fixture) git(t *testing.T, args ...string) string {
	t.Helper()
	name := strings.TrimPrefix(f.repo.URL, f.server.URL+"/")
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = filepath.Join(f.serverDir, name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (f *fixture) fetch(ctx context.Context, t *testing.T, src workflow.GitSource) (*source.Checkout, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if src.RepoURL == "" {
		src.RepoURL = f.repo.URL
	}
	g := source.Git{
		Source:  src,
		Dir:     f.dir,
		Private: filepath.Join(filepath.Dir(f.dir), "private"),
		Askpass: self,
		Environ: f.environ,
		Log:     &f.log,

		AllowedRepositories: f.allowed,
	}
	if g.Environ == nil {
		g.Environ = os.Environ()
	}
	checkout, err := g.Fetch(ctx)
	if _, statErr := os.Stat(g.Private); !errors.Is(statErr, os.ErrNotExist) {
		t.Errorf("the directory of the credentials was not removed: %v", statErr)
	}
	return checkout, err
}

func TestFetchRevisions(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	second := f.commit(t, "main", "two")
	topic := f.commit(t, "feature/x", "topic")
	f.git(t, "tag", "v1", f.first)
	f.git(t, "update-ref", "refs/pull/7/head", topic)

	for _, tt := range []struct {
		name       string
		source     workflow.GitSource
		want, head string
	}{
		{"default branch", workflow.GitSource{}, second, "main"},
		{"short branch", workflow.GitSource{Branch: "feature/x"}, topic, "feature/x"},
		{"full ref", workflow.GitSource{Branch: "refs/heads/main"}, second, "main"},
		{"tag", workflow.GitSource{Branch: "refs/tags/v1"}, f.first, ""},
		{"pull request", workflow.GitSource{Branch: "refs/pull/7/head"}, topic, ""},
		{"commit", workflow.GitSource{Commit: f.first}, f.first, ""},
		{"short commit", workflow.GitSource{Commit: f.first[:9]}, f.first, ""},
		{"commit in capitals", workflow.GitSource{Commit: strings.ToUpper(f.first)}, f.first, ""},
		{"commit wins over branch", workflow.GitSource{Commit: f.first, Branch: "main"}, f.first, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.fetch(t.Context(), t, tt.source)
			if err != nil {
				t.Fatalf("%v\n%s", err, f.log.String())
			}
			if got.Commit != tt.want {
				t.Errorf("checked out %s, want %s", got.Commit, tt.want)
			}
			head, _ := exec.CommandContext(t.Context(), "git", "-C", f.dir, "symbolic-ref", "--quiet", "--short", "HEAD").Output()
			if strings.TrimSpace(string(head)) != tt.head {
				t.Errorf("HEAD is on branch %q, want %q", strings.TrimSpace(string(head)), tt.head)
			}
			if _, err := os.Stat(filepath.Join(got.ProgramDir, "Pulumi.yaml")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFetchHistory fetches a private repository with tags at several depths. Afterwards git must answer
// from the checkout alone, as it does for tools that derive a version from tags.
func TestFetchHistory(t *testing.T) {
	f := newFixture(t, lab.GitOptions{Password: token})
	for i := range 5 {
		f.commit(t, "main", fmt.Sprint(i))
		if i == 1 {
			f.git(t, "tag", "v1.2.0", "main")
			f.git(t, "tag", "main", f.first) // must not be mistaken for the branch
		}
	}
	head := f.git(t, "rev-parse", "refs/heads/main")
	short := head[:7]
	for _, tt := range []struct {
		name    string
		source  workflow.GitSource
		commits string
		version string
	}{
		{"default", workflow.GitSource{}, "1", short},
		{"depth", workflow.GitSource{Depth: 3}, "3", short},
		{"depth of a commit", workflow.GitSource{Depth: 2, Commit: head}, "2", short},
		{"whole history", workflow.GitSource{Depth: workflow.WholeHistory}, "6", short},
		{"tags", workflow.GitSource{Depth: workflow.WholeHistory, Tags: true, Branch: "main"}, "6", "v1.2.0-3-g" + short},
		{"tags of a commit", workflow.GitSource{Depth: workflow.WholeHistory, Tags: true, Commit: head}, "6", "v1.2.0-3-g" + short},
		{"tags within the depth", workflow.GitSource{Depth: 4, Tags: true}, "6", // the depth holds for each tag, too
			"v1.2.0-3-g" + short},
		{"tags beyond the depth", workflow.GitSource{Depth: 2, Tags: true}, "2", short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.source.Auth = &workflow.GitAuth{AccessToken: token}
			got, err := f.fetch(t.Context(), t, tt.source)
			if err != nil {
				t.Fatal(err, f.log.String())
			}
			run := func(args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "git", args...)
				cmd.Dir = f.dir
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("git %v: %v: %s", args, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			if n := run("rev-list", "--count", "HEAD"); got.Commit != head || n != tt.commits {
				t.Errorf("commit %s with %s commits, want %s with %s", got.Commit, n, head, tt.commits)
			}
			if version := run("describe", "--tags", "--always", "--match=v*", "--abbrev=7"); version != tt.version {
				t.Errorf("the version is %s, want %s", version, tt.version)
			}
		})
	}
}

func TestFetchCommitWithoutHelpOfTheServer(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	f.commit(t, "main", "two")
	f.git(t, "config", "uploadpack.allowAnySHA1InWant", "false")
	// With protocol version 0, a server rejects requests for commits that it did not advertise.
	f.git(t, "config", "protocol.version", "0")
	got, err := f.fetch(t.Context(), t, workflow.GitSource{Commit: f.first})
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	if got.Commit != f.first {
		t.Errorf("checked out %s, want %s", got.Commit, f.first)
	}
}

func TestFetchErrors(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	for _, tt := range []struct {
		name   string
		source workflow.GitSource
		want   string
	}{
		{"branch", workflow.GitSource{Branch: "v9"}, `branch "v9" does not exist in the repository; if it is a tag, give refs/tags/v9 as the branch`},
		{"tag", workflow.GitSource{Branch: "refs/tags/v9"}, `tag "refs/tags/v9" does not exist`},
		{"commit", workflow.GitSource{Commit: strings.Repeat("ab", 20)}, "does not exist in the repository"},
		{"short commit", workflow.GitSource{Commit: "abcdef12"}, "commit abcdef12 does not exist"},
		{"not a commit", workflow.GitSource{Commit: "HEAD"}, "is not a commit hash"},
		{"option as branch", workflow.GitSource{Branch: "--upload-pack=touch /tmp/x"}, "not a valid branch name"},
		{"refspec as branch", workflow.GitSource{Branch: "main:refs/heads/evil"}, "not a valid branch name"},
		{"no repository", workflow.GitSource{RepoURL: f.server.URL + "/nope.git"}, "the repository does not exist"},
		{"directory", workflow.GitSource{RepoDir: "missing"}, `directory "missing" does not exist`},
		{"directory above", workflow.GitSource{RepoDir: "../.."}, "outside the repository"},
		{"no url", workflow.GitSource{RepoURL: "  "}, "without a repository URL"},
		{"command as url", workflow.GitSource{RepoURL: "ext::sh -c whoami"}, "characters that are invalid in a URL"},
		{"ext", workflow.GitSource{RepoURL: "ext::whoami"}, "ext:"},
		{"file", workflow.GitSource{RepoURL: "file:///etc"}, "not allowed"},
		{"path", workflow.GitSource{RepoURL: "/etc"}, "no scheme"},
		{"query", workflow.GitSource{RepoURL: "https://example.com/a?token=x"}, "a query or a fragment"},
		{"option as url", workflow.GitSource{RepoURL: "--upload-pack=x"}, "characters that are invalid in a URL"},
		{"option as host", workflow.GitSource{RepoURL: "ssh://-oProxyCommand=x/y"}, "has no valid host"},
		{"option as scp host", workflow.GitSource{RepoURL: "git@-oProxyCommand=x:y"}, "has no valid host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := f.fetch(t.Context(), t, tt.source)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestFetchCredentials(t *testing.T) {
	f := newFixture(t, lab.GitOptions{Username: "x-access-token", Password: token})
	withUser := strings.Replace(f.repo.URL, "http://", "http://x-access-token:"+token+"@", 1)
	for _, tt := range []struct {
		name   string
		source workflow.GitSource
		refuse bool
	}{
		{"token", workflow.GitSource{Auth: &workflow.GitAuth{AccessToken: token}}, false},
		{"basic", workflow.GitSource{Auth: &workflow.GitAuth{UserName: "x-access-token", Password: token}}, false},
		{"token of a file", workflow.GitSource{Auth: &workflow.GitAuth{AccessToken: " " + token + "\r\n"}}, false},
		{"basic, of files", workflow.GitSource{Auth: &workflow.GitAuth{UserName: "x-access-token\n", Password: token + "\n"}}, false},
		{"in the URL", workflow.GitSource{RepoURL: withUser}, false},
		{"none", workflow.GitSource{}, true},
		{"wrong", workflow.GitSource{Auth: &workflow.GitAuth{AccessToken: "tok-wrong-wrong"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := f.fetch(t.Context(), t, tt.source)
			if tt.refuse {
				if err == nil || !strings.Contains(err.Error(), "rejected the credentials") {
					t.Errorf("got %v", err)
				}
			} else if err != nil {
				t.Errorf("%v\n%s", err, f.log.String())
			}
			if strings.Contains(f.log.String(), token) {
				t.Error("the log holds the token")
			}
			if err := filepath.WalkDir(f.dir, func(path string, entry os.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() {
					return err
				}
				content, err := os.ReadFile(path)
				if strings.Contains(string(content), token) {
					t.Errorf("%s holds the token", path)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFetchRedirect checks that a redirect to another host does not pass on the credentials.
func TestFetchRedirect(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	var asked, leaked atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			leaked.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer thief.Close()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL+r.URL.RequestURI(), http.StatusFound)
	}))
	defer front.Close()
	_, err := f.fetch(t.Context(), t, workflow.GitSource{
		RepoURL: front.URL + "/repo.git", Auth: &workflow.GitAuth{AccessToken: token},
	})
	if err == nil || asked.Load() == 0 {
		t.Fatalf("err %v after %d requests", err, asked.Load())
	}
	if leaked.Load() != 0 {
		t.Error("the credentials followed the redirect")
	}
}

func TestFetchTriesAgain(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	var requests atomic.Int32
	flaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		http.Redirect(w, r, f.server.URL+r.URL.RequestURI(), http.StatusFound)
	}))
	defer flaky.Close()
	src := workflow.GitSource{RepoURL: strings.Replace(f.repo.URL, f.server.URL, flaky.URL, 1), Branch: "main"}
	if _, err := f.fetch(t.Context(), t, src); err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	if !strings.Contains(f.log.String(), "Attempt 1 of 4 failed") {
		t.Errorf("the log lacks the failed attempt:\n%s", f.log.String())
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	reached := make(chan struct{}, 8)
	release := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer stuck.Close()
	defer close(release)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by the test")
	go func() {
		<-reached
		cancel(stopped)
	}()
	begin := time.Now()
	_, err := f.fetch(ctx, t, workflow.GitSource{RepoURL: stuck.URL + "/r.git", Branch: "main"})
	if err == nil || !strings.Contains(err.Error(), stopped.Error()) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestFetchHostileRepository fetches a repository that contains links out of it, and a
// .gitattributes file with a filter.
func TestFetchHostileRepository(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	clone := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = clone
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	run("clone", "--quiet", f.repo.URL, ".")
	if err := os.Symlink("/etc", filepath.Join(clone, "escape")); err != nil {
		t.Fatal(err)
	}
	run("add", "escape")
	run("commit", "--quiet", "-m", "escape")
	run("push", "--quiet", filepath.Join(f.serverDir, "group/program.git"), "HEAD:refs/heads/hostile")

	_, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "hostile", RepoDir: "escape"})
	if err == nil || !strings.Contains(err.Error(), "leads out of the repository") {
		t.Errorf("got %v", err)
	}
	got, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "hostile", RepoDir: "/infra/"})
	if err != nil || filepath.Base(got.ProgramDir) != "infra" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatalf("emptying the checkout followed a link: %v", err)
	}
}

func TestHostConfigurationIsNotRead(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	home := t.TempDir()
	config := "[url \"http://127.0.0.1:1/\"]\n\tinsteadOf = " + f.server.URL + "/\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_CONFIG_PARAMETERS", "'url.http://127.0.0.1:1/.insteadOf="+f.server.URL+"/'")
	if _, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "main"}); err != nil {
		t.Error(err)
	}
}
