package systemd

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/config"
	"workflowagent/internal/sys/initsystem"
)

// fake answers in place of this machine's programs.
type fake struct {
	calls []string
	fail  string // prefix of the command that fails
	state string // LoadState of the unit
}

func (f *fake) Run(_ context.Context, name string, args ...string) (string, error) {
	line := initsystem.CommandLine(name, args)
	f.calls = append(f.calls, line)
	if f.fail != "" && strings.HasPrefix(line, f.fail) {
		return "", &initsystem.ExitError{Command: line, Code: 1, Said: "no"}
	}
	return f.state, nil
}

func (f *fake) Stream(context.Context, io.Writer, string, ...string) error { return nil }

func machine(t *testing.T) (*Service, *fake) {
	t.Helper()
	f := &fake{state: "loaded"}
	return &Service{Executable: "/opt/workflow-server/workflow-server", commands: f, root: t.TempDir(), account: "nobody"}, f
}

func text(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(path))(t))
}

// TestOneText checks that a package and an installation from an archive have the same files, except for
// the program's path.
func TestOneText(t *testing.T) {
	s, _ := machine(t)
	dir := filepath.Join(t.TempDir(), "files")
	must.OK(t, WritePackage(dir))
	packaged := text(t, filepath.Join(dir, "workflow-server.service"))
	if own := strings.ReplaceAll(string(render(s.Executable)), s.Executable, "/usr/bin/workflow-server"); own != packaged {
		t.Errorf("the units differ:\n%s\n%s", own, packaged)
	}
	for name, want := range map[string][]byte{"sysusers.conf": sysusersText, "tmpfiles.conf": tmpfilesText} {
		if got := text(t, filepath.Join(dir, name)); got != string(want) || !slices.ContainsFunc(s.files(), func(f initsystem.File) bool { return string(f.Text) == got }) {
			t.Errorf("%s differs: %q", name, got)
		}
	}
	if strings.Contains(packaged, "{{") {
		t.Errorf("the unit has an unknown value:\n%s", packaged)
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: the unit was not verified")
		return
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "workflow-server.service"), []byte(strings.ReplaceAll(packaged, "/usr/bin/workflow-server", "/bin/true")), 0o644))
	out, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", filepath.Join(dir, "workflow-server.service")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "workflow-server.service:") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestFirstConfiguration checks the file that packages install. If it changed, the next upgrade would ask
// every operator who has edited it what to do: put news into the sample instead.
func TestFirstConfiguration(t *testing.T) {
	const forever = `# Configuration of workflow-server. All settings, their variables and defaults:
#   /usr/share/doc/workflow-server/workflow-server.yaml.sample, or: workflow-server serve --help
# Check this file:     workflow-server config check
# Apply its changes:   systemctl restart workflow-server
data_dir: /var/lib/workflow-server
`
	if configText != forever {
		t.Errorf("the first configuration has changed:\n%s", configText)
	}
	c := must.Get(config.LoadText(config.LoadOptions{Cwd: "/cwd"}, "FILE", []byte(configText)))(t)
	if c.DataDir != "/var/lib/workflow-server" || len(c.Warnings()) > 0 {
		t.Errorf("it sets %q, with the warnings %q", c.DataDir, c.Warnings())
	}
}

func TestInstallAndUninstall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	s, f := machine(t)
	s.Executable = "/bin/true" // that every account can start
	must.OK(t, errors.Join(s.Register(t.Context()), s.Enable(t.Context())))
	want := []string{
		"systemd-sysusers " + s.path("etc/sysusers.d/workflow-server.conf"), "systemd-tmpfiles --create " + s.path("etc/tmpfiles.d/workflow-server.conf"),
		"systemctl daemon-reload", "systemctl show --property=LoadState --value workflow-server.service", "systemctl enable workflow-server.service",
	}
	if !slices.Equal(f.calls, want) {
		t.Errorf("ran %q, want %q", f.calls, want)
	}
	if unit := text(t, s.File()); !strings.Contains(unit, "ExecStart=/bin/true serve --config /etc/workflow-server/workflow-server.yaml\n") {
		t.Errorf("the unit is\n%s", unit)
	}
	info := must.Get(os.Stat(s.ConfigFile()))(t)
	if info.Mode().Perm() != 0o640 || text(t, s.ConfigFile()) != configText {
		t.Errorf("the configuration has the mode %s", info.Mode())
	}

	// A second registration keeps the configuration, and leaves the data directory, which another user can own, to
	// systemd: it gives all files in the directory to the account, unless the directory is the account's already.
	f.calls = nil
	must.OK(t, os.MkdirAll(s.path(dataDir), 0o700))
	must.OK(t, os.WriteFile(s.ConfigFile(), []byte("listen: 127.0.0.1:1\n"), 0o600))
	must.OK(t, s.Register(t.Context()))
	if slices.ContainsFunc(f.calls, func(call string) bool { return strings.HasPrefix(call, "systemd-tmpfiles") }) {
		t.Errorf("over existing data, it ran %q", f.calls)
	}
	if got := text(t, s.ConfigFile()); got != "listen: 127.0.0.1:1\n" {
		t.Errorf("the configuration is now %q", got)
	}
	must.OK(t, s.Uninstall(t.Context()))
	for _, file := range s.files() {
		if _, err := os.Lstat(file.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s remains: %v", file.Path, err)
		}
	}
	text(t, s.ConfigFile())
	if err := s.Uninstall(t.Context()); !errors.Is(err, initsystem.ErrNotInstalled) {
		t.Errorf("removing it again: %v", err)
	}
}

// TestFailedRegistrationLeavesNothing makes each step of a registration fail.
func TestFailedRegistrationLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	for _, step := range []string{"systemd-sysusers", "systemd-tmpfiles", "systemctl daemon-reload", "systemctl show", "bad"} {
		s, f := machine(t)
		s.Executable, f.fail = "/bin/true", step
		if step == "bad" {
			f.fail, f.state = "", "bad-setting"
		}
		if err := s.Register(t.Context()); err == nil {
			t.Errorf("%s: no error", step)
		}
		for _, file := range s.files() {
			if _, err := os.Lstat(file.Path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s remains: %v", step, file.Path, err)
			}
		}
	}
}

// TestProgramOfOthers checks that the account that can read all secrets gets no program that another user could
// replace.
func TestProgramOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	s, _ := machine(t)
	dir := must.Get(os.MkdirTemp("", "program-"))(t) // every user can enter it
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.Executable = filepath.Join(dir, Name)
	must.OK(t, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(s.Executable, nil, 0o755), os.Chown(dir, 12345, -1)))
	if err := s.Register(t.Context()); err == nil || !strings.Contains(err.Error(), "another user can change "+dir) {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Lstat(s.File()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unit remains: %v", err)
	}
}

// TestForeignUnits checks that no unit of others is replaced or removed.
func TestForeignUnits(t *testing.T) {
	for name, tt := range map[string]struct {
		path, text, link, want string
	}{
		"by hand":  {"etc/systemd/system/workflow-server.service", "[Service]\nExecStart=/x serve --listen :1\n", "", "was written by hand"},
		"packaged": {"usr/lib/systemd/system/workflow-server.service", string(render("/usr/bin/workflow-server")), "", "belongs to a package"},
		"masked":   {"etc/systemd/system/workflow-server.service", "", os.DevNull, "systemctl unmask"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := machine(t)
			path := s.path(tt.path)
			must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
			if tt.link != "" {
				must.OK(t, os.Symlink(tt.link, path))
			} else {
				must.OK(t, os.WriteFile(path, []byte(tt.text), 0o644))
			}
			for verb, do := range map[string]func(context.Context) error{"register": s.Register, "uninstall": s.Uninstall} {
				if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v", verb, err)
				}
			}
			if len(f.calls) > 0 {
				t.Errorf("it ran %q", f.calls)
			}
			if tt.link == "" && text(t, path) != tt.text {
				t.Error("the unit has changed")
			}
		})
	}
}
