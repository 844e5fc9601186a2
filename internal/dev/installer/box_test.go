package installer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

type shell []string

// shells are the shells into which users pipe install.sh. zsh occurs twice: in its native mode and
// as sh.
var shells = map[string]shell{
	"dash":      {"dash"},
	"ash":       {"busybox", "ash"},
	"bash":      {"bash"},
	"zsh":       {"zsh"},
	"zsh as sh": {"zsh", "--emulate", "sh"},
}

func inShells(t *testing.T, test func(t *testing.T, sh shell)) {
	t.Helper()
	found := 0
	for name, sh := range shells {
		path, err := exec.LookPath(sh[0])
		if err != nil {
			if os.Getenv("WORKFLOW_REQUIRE_TIERS") == "all" {
				t.Errorf("%s is not installed", sh[0])
			}
			t.Logf("%s is not installed", sh[0])
			continue
		}
		found++
		sh = append(shell{path}, sh[1:]...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, sh)
		})
	}
	if found == 0 {
		t.Skip("no shell")
	}
}

// box is one user's environment on a machine, in which tests run install.sh.
type box struct {
	m      *mirror
	sh     shell
	home   string
	tmp    string   // TMPDIR
	fake   string   // state of the fake service
	path   []string // directories before the machine's own
	only   string   // if not "", replaces the machine's own directories
	env    []string
	script []byte // nil means the script of the mirror's releases
	piped  bool   // the shell reads the script from standard input, as from curl
	before string // shell code that runs before the script
}

func newBox(t *testing.T, m *mirror, sh shell) *box {
	t.Helper()
	return &box{m: m, sh: sh, home: filepath.Join(t.TempDir(), "home of me"), tmp: t.TempDir(), fake: t.TempDir()}
}

// inShells runs a test in each shell, with a new box.
func (m *mirror) inShells(t *testing.T, test func(t *testing.T, b *box)) {
	t.Helper()
	inShells(t, func(t *testing.T, sh shell) { test(t, newBox(t, m, sh)) })
}

func (b *box) root() string { return filepath.Join(b.home, ".pulumi", "bin", release.Program) }

// command returns a command that runs the installer with args. Unless args contain --system or
// --help, it installs for a user and without a service, so that tests running as root do not change
// the machine.
func (b *box) command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	for _, dir := range []string{b.home, b.fake} {
		if dir != "" {
			must.OK(t, os.MkdirAll(dir, 0o755))
		}
	}
	script := b.script
	if script == nil {
		script = b.m.script(t)
	}
	if !slices.Contains(args, "--help") && !slices.Contains(args, "--system") {
		// The machine might have its own service.
		args = append([]string{"--user", "--no-service"}, args...)
	}
	line := slices.Clone(b.sh)
	var file string
	if b.piped {
		line = append(append(line, "-s", "--"), args...)
	} else {
		file = filepath.Join(t.TempDir(), "install.sh")
		writeFile(t, file, script, 0o644)
		if b.before != "" {
			line = append(line, "-c", b.before+`. "$INSTALL"`)
		}
		line = append(append(line, file), args...)
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.WaitDelay = 10 * time.Second
	if b.piped {
		cmd.Stdin = bytes.NewReader(script)
	}
	path := append(slices.Clone(b.path), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
	if b.only != "" {
		path = append(slices.Clone(b.path), b.only)
	}
	cmd.Env = append([]string{
		"PATH=" + strings.Join(path, ":"), "TMPDIR=" + b.tmp, "FAKE=" + b.fake, "AGENT=" + agent(t), "SHELL=/bin/bash", "INSTALL=" + file,
	}, b.env...)
	if b.home != "" {
		cmd.Env = append(cmd.Env, "HOME="+b.home)
		cmd.Dir = b.home
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
	return cmd
}

// run runs the installer and returns its output and exit code. It reports an error if the installer
// left files in TMPDIR.
func (b *box) run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	out, code := output(t, b.command(t.Context(), t, args...))
	if left, err := os.ReadDir(b.tmp); err != nil || len(left) > 0 {
		t.Errorf("%q left %v in TMPDIR (%v)", args, left, err)
	}
	return out, code
}

func output(t *testing.T, cmd *exec.Cmd) (string, int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (b *box) want(t *testing.T, code int, words []string, args ...string) string {
	t.Helper()
	out, got := b.run(t, args...)
	if got != code {
		t.Fatalf("%q: exit code %d, want %d\n%s", args, got, code, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("%q does not print %q:\n%s", args, word, out)
		}
	}
	return out
}

func (b *box) installed(t *testing.T) string {
	t.Helper()
	versions := ""
	for _, name := range append(release.Programs()[:3:3], release.OldName) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(b.root(), name), "version")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "FAKE=" + b.fake}
		out, err := cmd.Output()
		if err != nil {
			return "none: " + err.Error()
		}
		switch got := strings.TrimSpace(string(out)); versions {
		case "", got:
			versions = got
		default:
			t.Errorf("%s has version %s next to %s", name, got, versions)
		}
	}
	return versions
}

// whole checks that version is installed and that only version and before are on disk.
func (b *box) whole(t *testing.T, version, before string) {
	t.Helper()
	if got := b.installed(t); got != version {
		t.Errorf("installed is %s, want %s", got, version)
	}
	want := []string{version}
	if before != "" {
		want = append(want, before)
	}
	slices.Sort(want)
	if got := names(t, filepath.Join(b.root(), "versions")); !slices.Equal(got, want) {
		t.Errorf("versions/ has %q, want %q", got, want)
	}
	for _, name := range names(t, b.root()) {
		if strings.HasPrefix(name, ".") && name != ".update.lock" {
			t.Errorf("%s was left behind", name)
		}
	}
	if target, err := os.Readlink(filepath.Join(b.root(), "current")); err != nil || target != "versions/"+version {
		t.Errorf("current leads to %q (%v)", target, err)
	}
	err := filepath.Walk(filepath.Join(b.root(), "versions", version), func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if info.Mode()&os.ModeSymlink == 0 && info.Mode().Perm()&0o022 != 0 || !ok || int(stat.Uid) != os.Geteuid() {
			t.Errorf("%s is %v of %d", path, info.Mode(), stat.Uid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func (b *box) nothing(t *testing.T) {
	t.Helper()
	if left := names(t, b.home); len(left) > 0 {
		t.Errorf("%q were left in the home directory", left)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var list []string
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}

// tools returns a new directory with links to the named programs of this machine.
func tools(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		must.OK(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	return dir
}

var used = []string{
	"sh", "awk", "cat", "chmod", "cp", "curl", "grep", "gzip", "id", "ls", "mktemp", "openssl", "rm", "sed", "sleep", "tail", "tar", "timeout", "uname",
}

func without(list []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(names, name) })
}

// machine returns a new directory with a uname program that reports the given operating system and
// processor.
func machine(t *testing.T, system, processor string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "uname"), []byte("#!/bin/sh\ncase $1 in -s) echo "+system+" ;; -m) echo "+processor+" ;; esac\n"), 0o755)
	return dir
}

func host(t *testing.T, version string) string {
	t.Helper()
	name, err := release.Archive(version, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	return name
}
