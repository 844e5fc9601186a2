package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/systemd"
	"workflowagent/internal/sys/initsystem"
)

// fake is a service whose programs contain their version. A version that contains "broken" does not start.
type fake struct {
	i        *installer
	state    initsystem.State
	describe error
	calls    []string
}

func (f *fake) Packaged() bool { return false }

func (f *fake) Describe(context.Context) (initsystem.State, error) { return f.state, f.describe }

func (f *fake) Register(context.Context) error {
	f.calls = append(f.calls, "register "+f.version())
	return nil
}

func (f *fake) Enable(context.Context) error {
	f.calls = append(f.calls, "enable")
	return nil
}

func (f *fake) Uninstall(context.Context) error {
	f.calls = append(f.calls, "uninstall")
	return f.describe
}

func (f *fake) Do(_ context.Context, verb string) error {
	f.calls = append(f.calls, verb+" "+f.version())
	if strings.Contains(f.version(), "broken") {
		return errors.New("exit code 1")
	}
	return nil
}

func (f *fake) version() string {
	text, _ := os.ReadFile(f.i.program()) // "" without a program
	return string(text)
}

func newInstaller(t *testing.T) (*installer, *fake, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	f := &fake{describe: initsystem.ErrNotInstalled}
	i := &installer{
		Options: Options{Dir: filepath.Join(t.TempDir(), "opt"), Out: out, Err: out}, service: f, links: filepath.Join(t.TempDir(), "bin"),
		purge: func(context.Context) error { f.calls = append(f.calls, "purge"); return nil },
	}
	f.i = i
	i.runs = func(_ context.Context, path string, args ...string) (string, error) {
		text, err := os.ReadFile(path)
		if len(args) > 1 {
			f.calls = append(f.calls, strings.Join(args, " ")+" "+string(text))
		}
		return string(text), err
	}
	return i, f, out
}

type member struct {
	name, text string
	kind       byte
}

// archive writes an archive whose programs contain the version.
func archive(t *testing.T, version string, more ...member) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.tar.gz")
	file := must.Get(os.Create(path))(t)
	packed := gzip.NewWriter(file)
	w := tar.NewWriter(packed)
	for _, m := range append([]member{{"top/workflow-server", version, tar.TypeReg}, {"top/workflow-esc", version, tar.TypeReg}, {"top/man/workflow-server.1", "page", tar.TypeReg}, {"top/LICENSE", "text", tar.TypeReg}}, more...) {
		header := &tar.Header{Name: m.name, Typeflag: m.kind, Mode: 0o755}
		if m.kind == tar.TypeReg {
			header.Size = int64(len(m.text))
		} else {
			header.Linkname = m.text
		}
		must.OK(t, w.WriteHeader(header))
		if m.kind == tar.TypeReg {
			must.Get(w.Write([]byte(m.text)))(t)
		}
	}
	must.OK(t, errors.Join(w.Close(), packed.Close(), file.Close()))
	return path
}

func TestInstallUpgradeAndRemove(t *testing.T) {
	i, f, out := newInstaller(t)
	step := func(version string, explicit bool) error {
		i.Archive, i.Version, i.Explicit, f.calls = archive(t, version), version, explicit, nil
		return i.install(t.Context())
	}
	want := func(calls ...string) {
		t.Helper()
		if !slices.Equal(f.calls, calls) {
			t.Errorf("ran %q, want %q", f.calls, calls)
		}
	}
	must.OK(t, step("v1.0.0", false))
	want("register v1.0.0", "enable", "restart v1.0.0")
	if target := must.Get(os.Readlink(filepath.Join(i.links, program)))(t); target != i.program() {
		t.Errorf("the link leads to %s", target)
	}
	info := must.Get(os.Stat(i.program()))(t)
	if info.Mode().Perm() != 0o755 {
		t.Errorf("the program has the mode %s", info.Mode())
	}
	f.state, f.describe = initsystem.State{Active: "active"}, nil
	must.OK(t, step("v1.1.0", false))
	want("register v1.1.0", "enable", "restart v1.1.0")

	// A version that does not start is replaced by the previous one.
	if err := step("v1.2.0-broken", false); err == nil || !strings.Contains(err.Error(), "runs with v1.1.0 again") {
		t.Errorf("a broken version: %v", err)
	}
	want("register v1.2.0-broken", "enable", "restart v1.2.0-broken", "service install --start v1.1.0")
	if restored := must.Get(os.ReadFile(filepath.Join(i.Dir, evaluator)))(t); string(restored) != "v1.1.0" {
		t.Errorf("the evaluator is of %s", restored)
	}
	if err := step("v1.0.5", false); err == nil || !strings.Contains(err.Error(), "--version v1.0.5") || len(f.calls) > 0 {
		t.Errorf("an older version: %v", err)
	}
	must.OK(t, step("v1.0.5", true))

	must.OK(t, os.WriteFile(filepath.Join(i.Dir, "mine"), nil, 0o600))
	f.calls, i.Purge = nil, true
	if err := i.remove(t.Context()); err == nil || !strings.Contains(err.Error(), "--yes") || len(f.calls) > 0 {
		t.Errorf("a purge without --yes: %v, %q", err, f.calls)
	}
	i.Yes = true
	must.OK(t, i.remove(t.Context()))
	want("uninstall", "purge")
	entries := must.Get(os.ReadDir(i.Dir))(t)
	if len(entries) != 1 || entries[0].Name() != "mine" {
		t.Errorf("after the removal, the directory has %v", entries)
	}
	if _, err := os.Lstat(filepath.Join(i.links, program)); !os.IsNotExist(err) {
		t.Errorf("the link remains: %v", err)
	}
	if !strings.Contains(out.String(), "the key of all secrets") {
		t.Errorf("it says\n%s", out)
	}
}

// TestAdministratorsDecision checks that an upgrade neither enables nor starts what the administrator has
// disabled or masked.
func TestAdministratorsDecision(t *testing.T) {
	for enabled, want := range map[string][]string{"disabled": {"register v1.0.0"}, "masked": nil} {
		i, f, out := newInstaller(t)
		f.state, f.describe = initsystem.State{Active: "inactive", Enabled: enabled}, nil
		i.Archive, i.Version = archive(t, "v1.0.0"), "v1.0.0"
		must.OK(t, i.install(t.Context()))
		if !slices.Equal(f.calls, want) || !strings.Contains(out.String(), "The service is "+enabled+", so it was not started.") {
			t.Errorf("%s: ran %q, said\n%s", enabled, f.calls, out)
		}
	}
	i, f, _ := newInstaller(t)
	f.state, f.describe = initsystem.State{Active: "active", Enabled: "disabled"}, nil
	i.Archive, i.Version = archive(t, "v1.0.0"), "v1.0.0"
	must.OK(t, i.install(t.Context()))
	if want := []string{"register v1.0.0", "restart v1.0.0"}; !slices.Equal(f.calls, want) {
		t.Errorf("disabled, but running: ran %q, want %q", f.calls, want)
	}
}

// TestDirectoryOfOthers checks that root runs and installs no program that another user could replace.
func TestDirectoryOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	i, f, _ := newInstaller(t)
	i.Archive, i.Version = archive(t, "v1.1.0"), "v1.1.0"
	must.OK(t, errors.Join(os.Mkdir(i.Dir, 0o755), os.WriteFile(i.program(), []byte("v1.0.0"), 0o755), os.Chown(i.Dir, 12345, -1)))
	if err := i.install(t.Context()); err == nil || !strings.Contains(err.Error(), "another user can change "+i.Dir) || len(f.calls) > 0 {
		t.Errorf("in a directory of another user: %v, ran %q", err, f.calls)
	}
	if text := must.Get(os.ReadFile(i.program()))(t); string(text) != "v1.0.0" {
		t.Errorf("the program is now %q", text)
	}
}

func TestWithoutAServiceManager(t *testing.T) {
	i, f, out := newInstaller(t)
	f.describe = systemd.ErrNoManager
	i.Archive, i.Version = archive(t, "v1.0.0"), "v1.0.0"
	must.OK(t, i.install(t.Context()))
	if len(f.calls) > 0 || !strings.Contains(out.String(), "systemd does not run this machine") {
		t.Errorf("ran %q, said\n%s", f.calls, out)
	}
	must.OK(t, i.remove(t.Context()))
}

// TestHostileArchives unpacks archives that a broken release could contain.
func TestHostileArchives(t *testing.T) {
	for name, hostile := range map[string]member{
		"parent":   {"top/../../outside", "x", tar.TypeReg},
		"absolute": {"top//etc/outside", "x", tar.TypeReg},
		"twice":    {"top/LICENSE", "x", tar.TypeReg},
	} {
		i, f, _ := newInstaller(t)
		i.Archive, i.Version = archive(t, "v1.0.0", hostile), "v1.0.0"
		if err := i.install(t.Context()); err == nil || len(f.calls) > 0 {
			t.Errorf("%s: %v, ran %q", name, err, f.calls)
		}
		entries := must.Get(os.ReadDir(i.Dir))(t)
		if len(entries) > 0 {
			t.Errorf("%s: left behind %v", name, entries)
		}
	}
	i, _, _ := newInstaller(t)
	i.Archive, i.Version = archive(t, "v1.0.0", member{"top/link", "/etc/passwd", tar.TypeSymlink}), "v1.0.0"
	must.OK(t, i.install(t.Context()))
	if _, err := os.Lstat(filepath.Join(i.Dir, "link")); !os.IsNotExist(err) {
		t.Errorf("the link was unpacked: %v", err)
	}
}
