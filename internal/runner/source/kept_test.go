package source_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/runner/fileid"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

// keptFixture is a checkout that can be kept.
type keptFixture struct {
	*fixture
	git, private string
	src          workflow.GitSource
	dependencies bool // keep them
}

func newKept(t *testing.T, src workflow.GitSource) *keptFixture {
	t.Helper()
	f := newFixture(t, lab.GitOptions{})
	src.RepoURL = f.repo.URL
	return &keptFixture{fixture: f, git: filepath.Join(t.TempDir(), "git"), private: filepath.Join(t.TempDir(), "private"), src: src}
}

func (k *keptFixture) job(t *testing.T, kept *source.Kept) *source.Checkout {
	t.Helper()
	k.log.Reset()
	g := source.Git{
		Source: k.src, Dir: k.dir, Private: k.private, Askpass: must.Get(os.Executable())(t), Environ: os.Environ(),
		Log: &k.log, Keep: &source.Keep{Git: k.git, Kept: kept, Dependencies: k.dependencies},
	}
	checkout, err := g.Fetch(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, k.log.String())
	}
	return checkout
}

func (k *keptFixture) store(t *testing.T, kept *source.Kept) (*source.Kept, error) {
	t.Helper()
	s := source.Store{
		Dir: k.dir, Git: k.git, Private: k.private, Environ: os.Environ(), Kept: kept, Dependencies: k.dependencies,
	}
	return s.Run(t.Context())
}

// TestKeptRevisions fetches one revision after another in one kept checkout.
func TestKeptRevisions(t *testing.T) {
	for name, src := range map[string]workflow.GitSource{
		"shallow": {}, "whole history": {Depth: workflow.WholeHistory, Tags: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKept(t, src)
			k.fixture.git(t, "tag", "v1", k.first)
			topic := k.commit(t, "topic", "topic")
			var kept *source.Kept
			for i, branch := range []string{"main", "topic", "refs/tags/v1", "main", topic, "main", topic[:8]} {
				want := k.commit(t, "main", strings.Repeat("x", i+1))
				k.src.Branch, k.src.Commit = branch, ""
				if strings.HasPrefix(topic, branch) {
					k.src.Branch, k.src.Commit = "", branch
				}
				checkout := k.job(t, kept)
				switch branch {
				case "topic", topic, topic[:8]:
					want = topic
				case "refs/tags/v1":
					want = k.first
				}
				if checkout.Commit != want || checkout.Reused != (i > 0 && branch != topic[:8] && (branch != topic || src.Depth == 0)) {
					t.Fatalf("%s: commit %s, want %s; reused %t\n%s", branch, checkout.Commit, want, checkout.Reused, k.log.String())
				}
				kept = must.Get(k.store(t, checkout.Kept))(t)
			}
		})
	}
}

// TestKeptChanged checks that a pack that is not the one that git received is neither kept nor used.
func TestKeptChanged(t *testing.T) {
	k := newKept(t, workflow.GitSource{Branch: "main"})
	checkout := k.job(t, nil)
	touch := func(pattern string) {
		t.Helper()
		packs := must.Get(filepath.Glob(pattern))(t)
		if len(packs) == 0 {
			t.Fatal("no pack")
		}
		must.OK(t, os.Chmod(packs[0], 0o600)) // content and times that a program can set stay
	}
	touch(filepath.Join(k.dir, ".git", "objects", "pack", "*.pack"))
	if _, err := k.store(t, checkout.Kept); !errors.Is(err, fileid.ErrOther) {
		t.Errorf("a changed pack is kept: %v", err)
	}
	kept := must.Get(k.store(t, k.job(t, nil).Kept))(t)
	touch(filepath.Join(k.git, "pack", "*.pack"))
	if checkout := k.job(t, kept); checkout.Reused || !strings.Contains(k.log.String(), "not the file that was written") {
		t.Errorf("a changed pack is used: %s", k.log.String())
	}
}

func TestKeptOtherSource(t *testing.T) {
	k := newKept(t, workflow.GitSource{})
	kept := must.Get(k.store(t, k.job(t, nil).Kept))(t)
	k.src.Depth = 2
	if checkout := k.job(t, kept); checkout.Reused || !strings.Contains(k.log.String(), "settings changed") {
		t.Errorf("reused with other settings: %s", k.log.String())
	}
	k.src.Submodules = true
	if checkout := k.job(t, nil); checkout.Kept != nil {
		t.Error("a checkout with submodules is kept")
	}
}

func TestIsFull(t *testing.T) {
	for text, want := range map[string]bool{
		"fatal: write error: No space left on device": true, "Disk quota exceeded": true, "not found": false,
	} {
		if got := source.IsFull(errors.New(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	if source.IsFull(nil) {
		t.Error("no error means a full disk")
	}
}

// TestKeptGitlink checks that a checkout with a submodule is neither kept nor used: git does not clean the
// directory of a submodule, so files and git's settings of one job would reach the next.
func TestKeptGitlink(t *testing.T) {
	for _, name := range []string{"sub", "node_modules"} {
		k := newKept(t, workflow.GitSource{})
		kept := must.Get(k.store(t, k.job(t, nil).Kept))(t)
		k.fixture.git(t, "read-tree", "main")
		k.fixture.git(t, "--work-tree=.", "update-index", "--add", "--cacheinfo", "160000,"+k.first+","+name)
		author := []string{"-c", "user.name=a", "-c", "user.email=a@example.invalid"}
		commit := k.fixture.git(t, append(author, "commit-tree", "-p", "main", "-m", "sub", k.fixture.git(t, "write-tree"))...)
		k.fixture.git(t, "update-ref", "refs/heads/main", commit)
		if checkout := k.job(t, kept); checkout.Reused || checkout.Kept != nil {
			t.Errorf("%s: a checkout with a submodule: reused %t, kept %t", name, checkout.Reused, checkout.Kept != nil)
		}
	}
}

// TestKeptIsRestored checks that a job finds in a kept checkout what a clone would contain, and dependencies,
// whatever an earlier job has left.
func TestKeptIsRestored(t *testing.T) {
	for name, dependencies := range map[string]bool{"dependencies": true, "nothing": false} {
		t.Run(name, func(t *testing.T) {
			k := newKept(t, workflow.GitSource{})
			must.Get(k.repo.Commit(t.Context(), "main", "Change", map[string]string{
				"app/main.txt": "a\nb\n", "same.txt": "a\n", "file": "x", ".gitattributes": "", "venv/tracked": "x",
			}))(t)
			checkout := k.job(t, nil)
			path := func(name string) string { return filepath.Join(k.dir, filepath.FromSlash(name)) }
			main := path("app/main.txt")
			info := must.Get(os.Stat(main))(t)
			must.OK(t, os.WriteFile(main, []byte("A\nB\n"), 0o600))
			must.OK(t, os.Chtimes(main, info.ModTime(), info.ModTime()))
			must.OK(t, os.Remove(path("file")))
			must.OK(t, os.Symlink("/", path("link")))
			left := []string{
				".git/hooks/post-checkout", "app/.git/config", "app/.git/hooks/pre-commit", "bin/left", "venv/left", "app/sub/.git",
				"venv/.git/config", "gen/.git/config", "gen/sub/.git/config", "gen/sub/node_modules/p/index.js",
				"node_modules/p/index.js", "app/node_modules/p/index.js",
			}
			for _, file := range left {
				must.OK(t, os.MkdirAll(filepath.Dir(path(file)), 0o700))
				must.OK(t, os.WriteFile(path(file), []byte("#!/bin/sh\ntouch "+path("attacked")+"\n"), 0o700))
			}
			// A step could have replaced git.
			bin, search := t.TempDir(), os.Getenv("PATH")
			lazy := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = init ]; then exec %s \"$@\"; fi\n", must.Get(exec.LookPath("git"))(t))
			must.OK(t, os.WriteFile(filepath.Join(bin, "git"), []byte(lazy), 0o700))
			t.Setenv("PATH", bin)
			kept := must.Get(k.store(t, checkout.Kept))(t)
			t.Setenv("PATH", search)

			must.Get(k.repo.Commit(t.Context(), "main", "Change", map[string]string{".gitattributes": "*.txt text eol=crlf\n"}))(t)
			k.dependencies = dependencies
			if checkout = k.job(t, kept); !checkout.Reused || checkout.Kept == nil {
				t.Fatalf("the checkout was not reused:\n%s", k.log.String())
			}
			if got := string(must.Get(os.ReadFile(main))(t)); got != "a\r\nb\r\n" {
				t.Errorf("the file has the content %q", got)
			}
			if got := string(must.Get(os.ReadFile(path("same.txt")))(t)); got != "a\r\n" {
				t.Errorf("the unchanged file has the content %q", got)
			}
			if _, err := os.Lstat(path("file")); err != nil {
				t.Error(err)
			}
			for _, file := range append(left, "link", "attacked") {
				_, err := os.Lstat(path(file))
				if exists := err == nil; exists != (dependencies && strings.Contains(file, "node_modules")) {
					t.Errorf("%s exists: %t", file, exists)
				}
			}
		})
	}
}
