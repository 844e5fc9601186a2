package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	kardianos "github.com/kardianos/service"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
)

// machine is a home directory and a simulated service manager.
type machine struct {
	home  string
	key   *ecdsa.PrivateKey
	calls string

	state      service.State
	err        error // error of opening or describing the service
	restart    error
	registered error
	chosen     service.Options
	got        service.Options // options of the last registration
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{home: t.TempDir(), key: key, err: kardianos.ErrNotInstalled}
	t.Setenv("HOME", m.home)
	t.Setenv("PATH", "/usr/bin:/bin")
	t.Setenv("SHELL", "")
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME"} {
		t.Setenv(name, "")
	}
	return m
}

type fake struct {
	service.Service
	m *machine
}

func (f fake) Describe(context.Context) (service.State, error) { return f.m.state, f.m.err }
func (f fake) Restart() error                                  { f.m.calls += "restart "; return f.m.restart }
func (f fake) Start() error                                    { f.m.calls += "start "; return nil }
func (f fake) Stop() error                                     { f.m.calls += "stop "; return nil }
func (f fake) Uninstall() error                                { f.m.calls += "uninstall "; return nil }

func (m *machine) run(t *testing.T, o Options) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o.Out, o.Err, o.NoPath = &out, &out, true
	o.Keys, o.Dir = release.Keys{&m.key.PublicKey}, m.root()
	if o.Version != "" {
		o.Explicit, o.Stage = true, m.stage(t, o.Version)
	}
	m.calls = ""
	i := &installer{
		Options: o, home: m.home,
		open:   func(service.Options) (service.Service, error) { return fake{m: m}, nil },
		choose: func(service.Options) (service.Options, error) { return m.chosen, nil },
		register: func(_ context.Context, o service.Options, _ map[string]string, _ func(error)) (service.Service, error) {
			m.got = o
			m.calls += "register "
			return fake{m: m}, m.registered
		},
	}
	err := i.run(t.Context())
	return out.String(), err
}

func (m *machine) root() string { return filepath.Join(m.home, ".pulumi", "bin", release.Program) }

func (m *machine) stage(t *testing.T, version string) string {
	t.Helper()
	name, err := release.Archive(version, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	w := tar.NewWriter(zipped)
	for _, program := range release.Programs() {
		text := "#!/bin/sh\necho \"$*\" >>" + m.home + "/calls\necho " + version + "\n"
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimSuffix(name, ".tar.gz") + "/" + program, Size: int64(len(text)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(packed.Bytes()), name)
	signature, err := signing.Sign(m.key, sums)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, data := range map[string][]byte{name: packed.Bytes(), release.ChecksumsFile: sums, release.ChecksumsFile + release.SignatureSuffix: signature} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (m *machine) current(t *testing.T) string {
	t.Helper()
	target, err := os.Readlink(filepath.Join(m.root(), "current"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return filepath.Base(target)
}

// TestService checks that a registered service keeps its options. It also checks that the service
// returns to the old version if it does not start with the new one.
func TestService(t *testing.T) {
	m := newMachine(t)
	for _, step := range []struct {
		name    string
		options Options
		before  func()
		calls   string
		says    string
		wrong   string
		current string
	}{
		{"new", Options{Version: "v1.0.0", Docker: true, Process: true}, nil, "register ", "service start --user", "", "v1.0.0"},
		{"stopped", Options{Version: "v1.1.0"}, func() { m.state, m.err = service.State{Active: "inactive"}, nil }, "register ", "Upgraded from v1.0.0 to v1.1.0", "", "v1.1.0"},
		{"running", Options{Version: "v1.2.0"}, func() { m.state.Active = "active" }, "register restart ", "restarted with v1.2.0", "", "v1.2.0"},
		{"left alone", Options{Version: "v1.2.0", NoService: true}, nil, "", "--no-service", "", "v1.2.0"},
		{"does not start", Options{Version: "v1.1.0"}, func() { m.restart = errors.New("exit code 1") }, "register restart ", "", "does not start with v1.1.0: exit code 1; the service runs with v1.2.0 again", "v1.2.0"},
		{"not registered", Options{Version: "v1.2.0"}, func() { m.registered = errors.New("there is no group docker") }, "register ", "", "v1.2.0 is installed, but its service is not: there is no group docker", "v1.2.0"},
		{"no manager", Options{Version: "v1.2.0"}, func() { m.err = fmt.Errorf("%w: a container", service.ErrNoManager) }, "", "No service was registered: no service manager: a container", "", "v1.2.0"},
	} {
		if step.before != nil {
			step.before()
		}
		out, err := m.run(t, step.options)
		if m.calls != step.calls || !strings.Contains(out, step.says) || m.current(t) != step.current {
			t.Errorf("%s: current is %s, called %q\n%s", step.name, m.current(t), m.calls, out)
		}
		if (err == nil) != (step.wrong == "") || err != nil && !strings.Contains(err.Error(), step.wrong) {
			t.Errorf("%s: %v, want %q", step.name, err, step.wrong)
		}
		if step.name == "new" && (!m.got.Docker || m.got.Profile != service.ProfileProcess) {
			t.Errorf("the service was registered with %+v", m.got)
		}
	}
	if calls, err := os.ReadFile(filepath.Join(m.home, "calls")); err != nil || !strings.Contains(string(calls), "service install --user\nservice restart --user\n") {
		t.Errorf("the version before was called with %q (%v)", calls, err)
	}
}

// TestRemove checks that removal stops the service first and keeps the files of running
// deployments.
func TestRemove(t *testing.T) {
	m := newMachine(t)
	if _, err := m.run(t, Options{Version: "v1.0.0"}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(m.root(), "pulumi-workflow-agent.yaml")
	if err := os.WriteFile(config, []byte("token: mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.state, m.err = service.State{Active: "active"}, nil

	instance := filepath.Join(m.home, ".local", "state", "workflow-agent", "instances", "0")
	if err := os.MkdirAll(instance, 0o700); err != nil {
		t.Fatal(err)
	}
	ended := answering(t, instance, status.Report{Jobs: []status.Job{{}}})
	if _, err := m.run(t, Options{Uninstall: true, Purge: true, Yes: true}); err == nil || !strings.Contains(err.Error(), "drain --wait") || m.calls != "" {
		t.Errorf("--purge under a deployment: %v, called %q", err, m.calls)
	}
	ended()

	out, err := m.run(t, Options{Uninstall: true})
	if err != nil || m.calls != "stop uninstall " || !strings.Contains(out, config) || m.current(t) != "." {
		t.Errorf("--uninstall: %v, called %q\n%s", err, m.calls, out)
	}
	if calls, err := os.ReadFile(filepath.Join(m.home, "calls")); err != nil || !strings.Contains(string(calls), "cache prune --all\n") {
		t.Errorf("--uninstall called the agent with %q, %v, so its workspaces remain", calls, err)
	}
	m.err = kardianos.ErrNotInstalled
	if out, err := m.run(t, Options{Uninstall: true, Purge: true, Yes: true}); err != nil || !strings.Contains(out, "Removed configuration and state") {
		t.Errorf("--purge: %v\n%s", err, out)
	}
	if left, err := filepath.Glob(m.home + "/.*/*"); err != nil || len(left) != 2 { // the directories .pulumi/bin and .local/state
		t.Errorf("%q are left (%v)", left, err)
	}
	if out, err := m.run(t, Options{Uninstall: true}); err != nil || !strings.Contains(out, "There is no agent") {
		t.Errorf("the second time: %v\n%s", err, out)
	}
}

// answering serves a report on an agent's control socket until end is called.
func answering(t *testing.T, dir string, report status.Report) (end func()) {
	t.Helper()
	socket, err := control.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, _ := test.NewNullLogger()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		control.Serve(ctx, socket, control.Agent{Report: func() status.Report { return report }, Drain: func() {}, Over: make(chan struct{})}, logrus.NewEntry(log))
	}()
	end = func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return end
}

// TestDowngrade checks that the installation of an older version requires a confirmation, unless
// the user requests that version.
func TestDowngrade(t *testing.T) {
	m := newMachine(t)
	if _, err := m.run(t, Options{Version: "v1.1.0"}); err != nil {
		t.Fatal(err)
	}
	stage := m.stage(t, "v1.0.0")
	i := &installer{Options: Options{Version: "v1.0.0", Dir: m.root(), Stage: stage, Silent: true, NoService: true}, home: m.home}
	if err := i.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--version v1.0.0") || m.current(t) != "v1.1.0" {
		t.Errorf("unasked: %v, current is %s", err, m.current(t))
	}
	if _, err := m.run(t, Options{Version: "v1.0.0"}); err != nil || m.current(t) != "v1.0.0" {
		t.Errorf("by name: %v, current is %s", err, m.current(t))
	}
	if versions, err := os.ReadDir(filepath.Join(m.root(), "versions")); err != nil || !slices.ContainsFunc(versions, func(e os.DirEntry) bool { return e.Name() == "v1.1.0" }) {
		t.Errorf("the version before was removed: %v", err)
	}
}
