package lab

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
)

func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Env = append(gitEnv(), "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustGit(t *testing.T, args ...string) string {
	t.Helper()
	out, err := git(t, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func startGitServer(t *testing.T, options GitOptions) *GitServer {
	t.Helper()
	server := must.Get(StartGitServer(t.Context(), t.TempDir(), options))(t)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("closing the git server: %v", err)
		}
	})
	return server
}

func TestGitServerServesCommits(t *testing.T) {
	t.Parallel()
	server := startGitServer(t, GitOptions{})
	first := map[string]string{"Pulumi.yaml": "name: a\n", "infra/with space \"é\".txt": "x", "run.sh": "#!/bin/sh\n"}
	repo, begin, err := server.NewRepo(t.Context(), "team/demo", first)
	must.OK(t, err)
	next := must.Get(repo.Commit(t.Context(), MainBranch, "Change", map[string]string{"Pulumi.yaml": "name: b\n"}))(t)
	must.Get(repo.Commit(t.Context(), "feature/x", "Branch", map[string]string{"new": "n"}))(t)

	shallow := filepath.Join(t.TempDir(), "shallow")
	mustGit(t, "clone", "--quiet", "--depth=1", repo.URL, shallow)
	if got := mustGit(t, "-C", shallow, "rev-list", "HEAD"); got != next {
		t.Errorf("a shallow clone of main holds %q, want only %q", got, next)
	}
	branch := filepath.Join(t.TempDir(), "branch")
	mustGit(t, "clone", "--quiet", "--depth=1", "--branch=feature/x", repo.URL, branch)
	want := map[string]string{"Pulumi.yaml": "name: b\n", "infra/with space \"é\".txt": "x", "run.sh": "#!/bin/sh\n", "new": "n"}
	must.OK(t, os.RemoveAll(filepath.Join(branch, ".git")))
	got := must.Get(ReadFiles(branch))(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files of the branch differ (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(branch, "run.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("the script is not executable: %v, %v", info, err)
	}

	byCommit := t.TempDir()
	mustGit(t, "-C", byCommit, "init", "--quiet")
	mustGit(t, "-C", byCommit, "fetch", "--quiet", "--depth=1", repo.URL, begin)
	if got := mustGit(t, "-C", byCommit, "show", "FETCH_HEAD:Pulumi.yaml"); got != "name: a" {
		t.Errorf("the first commit holds %q, want %q", got, "name: a")
	}
	mustGit(t, "-C", shallow, "config", "user.email", "x@example.invalid")
	if out, err := git(t, "-C", shallow, "push", "--quiet", "origin", "HEAD:refs/heads/evil"); err == nil {
		t.Errorf("a push was accepted:\n%s", out)
	}
}

func TestGitServerRequiresCredentials(t *testing.T) {
	t.Parallel()
	server := startGitServer(t, GitOptions{Username: "me", Password: "s3cret/@"})
	repo, commit, err := server.NewRepo(t.Context(), "private", map[string]string{"a": "b"})
	must.OK(t, err)
	for _, test := range []struct {
		name string
		user *url.Userinfo
		want bool
	}{
		{"none", nil, false},
		{"wrong password", url.UserPassword("me", "wrong"), false},
		{"wrong user", url.UserPassword("you", "s3cret/@"), false},
		{"right", url.UserPassword("me", "s3cret/@"), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := must.Get(url.Parse(repo.URL))(t)
			u.User = test.user
			out, err := git(t, "ls-remote", u.String(), "refs/heads/main")
			if got := err == nil && strings.HasPrefix(out, commit); got != test.want {
				t.Errorf("listing the repository succeeded: %v, want %v (%v)\n%s", got, test.want, err, out)
			}
		})
	}
}
