package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// newTestMaker returns a maker with its own release key and empty directories. The caller sets the
// version.
func newTestMaker(t *testing.T) *maker {
	t.Helper()
	m := &maker{
		options: options{cache: t.TempDir(), mirror: filepath.Join(t.TempDir(), "mirror"), home: "https://releases.example.com/agent"},
		root:    "../../../..", time: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC),
		files: t.TempDir(), scratch: t.TempDir(),
	}
	t.Cleanup(m.close)
	must.OK(t, m.findReleaseKey())
	return m
}

// need skips a test on a machine that lacks a program.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	must.OK(t, writeFile(path, data))
}

func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestParsePlatforms(t *testing.T) {
	all, err := parsePlatforms("")
	if err != nil || len(all) != 4 {
		t.Errorf("without a list: %v, %v, want all four", all, err)
	}
	some, err := parsePlatforms("darwin/arm64,linux/amd64")
	if want := []platform{{"darwin", "arm64"}, {"linux", "amd64"}}; err != nil || !slices.Equal(some, want) {
		t.Errorf("with a list: %v, %v, want %v", some, err, want)
	}
	for _, list := range []string{"windows/amd64", "linux", "linux/amd64,", "linux/386"} {
		if got, err := parsePlatforms(list); err == nil {
			t.Errorf("%q was accepted as %v", list, got)
		}
	}
}

func TestCheckHome(t *testing.T) {
	for home, want := range map[string]string{
		"": "", "https://example.com/a/": "https://example.com/a", "http://127.0.0.1:8080": "http://127.0.0.1:8080", "http://[::1]:80/x": "http://[::1]:80/x",
	} {
		if got, err := checkHome(home); got != want || err != nil {
			t.Errorf("checkHome(%q) = %q, %v, want %q", home, got, err, want)
		}
	}
	for _, home := range []string{"example.com", "ftp://x", `https://x/"; reboot; "`, "https://x/$(id)", "https://x/a b", "https://x/?q", "https://x/\n", "https://x/'", "https://u:p@x/"} {
		_, err := checkHome(home)
		if usage := new(usageError); !errors.As(err, &usage) {
			t.Errorf("checkHome(%q) = %v, want a mistake in the command line", home, err)
		}
	}
}

// TestPlan checks that a step without its tools is skipped with a note, or is an error if all tools
// are required.
func TestPlan(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	m := &maker{}
	todo := must.Get(m.plan())(t)
	var names []string
	for _, s := range todo {
		names = append(names, s.name)
	}
	if slices.Contains(names, "apt repository") || !slices.Contains(names, "mirror") {
		t.Errorf("without tools the steps are %v", names)
	}
	if left := strings.Join(m.leftOut, "\n"); !strings.Contains(left, "createrepo_c (package createrepo-c)") || !strings.Contains(left, "gpg (package gnupg)") {
		t.Errorf("the skipped steps: %s", left)
	}
	m = &maker{options: options{require: true}}
	if _, err := m.plan(); err == nil || !strings.Contains(err.Error(), "apt-utils") {
		t.Errorf("everything was required, and the error is %v", err)
	}
}

func TestDebianVersion(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3~rc.1", "v1.0.0-a-b": "1.0.0~a-b"} {
		if got := debianVersion(version); got != want {
			t.Errorf("debianVersion(%q) = %q, want %q", version, got, want)
		}
	}
}

// TestVersionOf checks that a commit without a tag gets a valid version below all releases.
func TestVersionOf(t *testing.T) {
	need(t, "git")
	dir := t.TempDir()
	for _, name := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		t.Setenv(name, "/dev/null")
	}
	commit := []string{"git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "commit", "-q", "--allow-empty", "-m", "one"}
	command(t, dir, "git", "init", "-q")
	command(t, dir, commit...)
	when, err := commitTime(t.Context(), dir)
	if err != nil || time.Since(when) > time.Hour {
		t.Fatalf("the commit's time is %v, %v", when, err)
	}
	version, err := versionOf(t.Context(), dir, when, false)
	if err != nil || !strings.HasPrefix(version, "v0.0.0-dev.") {
		t.Errorf("the version without a tag is %q, %v", version, err)
	}
	command(t, dir, "git", "tag", "not-a-version")
	command(t, dir, "git", "tag", "v1.2.3")
	if version, err := versionOf(t.Context(), dir, when, false); version != "v1.2.3" || err != nil {
		t.Errorf("the version of the tag is %q, %v", version, err)
	}
	if changed, err := isChanged(t.Context(), dir); changed || err != nil {
		t.Errorf("the new commit counts as changed: %v, %v", changed, err)
	}
	write(t, filepath.Join(dir, "more"), nil)
	changed, err := isChanged(t.Context(), dir)
	if !changed || err != nil {
		t.Errorf("the commit with an additional file counts as changed: %v, %v", changed, err)
	}
	if version, err := versionOf(t.Context(), dir, when, changed); version == "v1.2.3" || err != nil {
		t.Errorf("a changed checkout has the version %q, %v", version, err)
	}
}

// TestUsage checks that a mistake in the command line is a usage error, before any file is created.
func TestUsage(t *testing.T) {
	t.Chdir("../../../..") // the root of the repository
	for name, args := range map[string][]string{
		"unknown flag":   {"-what"},
		"argument":       {"-cache", "x", "more"},
		"no cache":       {"-key", "x"},
		"version":        {"-cache", "x", "-version", "1.2.3"},
		"build metadata": {"-cache", "x", "-version", "v1.2.3+4"},
		"platform":       {"-cache", "x", "-version", "v1.2.3", "-platforms", "linux/386"},
		"home":           {"-cache", "x", "-version", "v1.2.3", "-home", "here"},
	} {
		err := run(t.Context(), args)
		if usage := new(usageError); !errors.As(err, &usage) {
			t.Errorf("%s: %v, want a mistake in the command line", name, err)
		}
	}
	t.Chdir(t.TempDir())
	err := run(t.Context(), []string{"-cache", "x"})
	if usage := new(usageError); !errors.As(err, &usage) || !strings.Contains(err.Error(), "repository") {
		t.Errorf("in another directory: %v", err)
	}
}
