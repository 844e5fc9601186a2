package service

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kardianos/service"

	"workflowagent/internal/sys/initsystem"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", name, got)
	}
}

func mustDefault(t *testing.T, o Options) Options {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestUnits(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "/home/ann/.config")
	const binary = "/usr/lib/customer-managed-workflow-agent/customer-managed-workflow-agent"
	for _, tt := range []struct {
		file    string
		options Options
		version int
	}{
		{"system.service", Options{Executable: binary, Docker: true}, 252},
		{"process.service", Options{Executable: binary, Profile: ProfileProcess, Account: "deploy", Config: "/srv/100%/a b.yaml", Name: "second"}, 256},
		{"user.service", Options{Executable: "/home/ann/.pulumi/bin/customer-managed-workflow-agent", User: true}, 252},
	} {
		s, err := newSystemd(mustDefault(t, tt.options), &scripted{})
		if err != nil {
			t.Fatal(err)
		}
		text := s.render(tt.version)
		golden(t, tt.file, text)
	}
}

func userService(t *testing.T, commands *scripted) *systemd {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	s, err := newSystemd(mustDefault(t, Options{User: true, Executable: "/opt/agent"}), commands)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInstallIsAlsoUpgrade(t *testing.T) {
	commands := &scripted{rules: map[string][]answer{
		"systemctl --version":   {{out: "systemd 252 (252.38-1)\n+PAM"}},
		"systemctl --user show": {{out: "loaded"}},
	}}
	s := userService(t, commands)
	const show = "systemctl --user show --property=LoadState --value customer-managed-workflow-agent.service"
	must(t, s.Install())
	commands.want(t, "systemctl --version", "systemctl --user daemon-reload", show)
	first, err := os.ReadFile(s.File())
	if err != nil || !bytes.Contains(first, []byte("ExecStart=/opt/agent run\n")) {
		t.Fatalf("%s\n%v", first, err)
	}

	s.options.Executable = "/opt/newer"
	must(t, s.Install())
	second, err := os.ReadFile(s.File())
	if err != nil || !bytes.Contains(second, []byte("ExecStart=/opt/newer run\n")) {
		t.Fatalf("%s\n%v", second, err)
	}
	commands.want(t, "systemctl --version", "systemctl --user daemon-reload", show)

	// A unit that systemd rejects is rolled back.
	s.options.Executable = "/opt/broken"
	commands.rules["systemctl --user show"] = []answer{{out: "bad-setting"}}
	if err := s.Install(); err == nil || !strings.Contains(err.Error(), "bad-setting") {
		t.Errorf("got %v", err)
	}
	commands.want(t, "systemctl --version", "systemctl --user daemon-reload", show, "systemctl --user daemon-reload")
	if now, err := os.ReadFile(s.File()); err != nil || !bytes.Equal(now, second) {
		t.Errorf("the old unit was not restored: %s\n%v", now, err)
	}
	entries, err := os.ReadDir(filepath.Dir(s.File()))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestFailedFirstInstallLeavesNothing(t *testing.T) {
	commands := &scripted{rules: map[string][]answer{
		"systemctl --version":            {{out: "systemd 252"}},
		"systemctl --user daemon-reload": {{err: &initsystem.ExitError{Command: "systemctl --user daemon-reload", Code: 1, Said: "Failed to connect to bus"}}, {}},
	}}
	s := userService(t, commands)
	if err := s.Install(); err == nil || !strings.Contains(err.Error(), "Failed to connect to bus; log in") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(s.File()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit exists: %v", err)
	}
}

func TestMaskStays(t *testing.T) {
	s := userService(t, &scripted{})
	must(t, os.MkdirAll(filepath.Dir(s.File()), 0o755))
	must(t, os.Symlink(os.DevNull, s.File()))
	for _, err := range []error{s.Install(), s.Uninstall()} {
		if err == nil || !strings.Contains(err.Error(), "systemctl --user unmask "+DefaultName) {
			t.Errorf("got %v", err)
		}
	}
	if to, err := os.Readlink(s.File()); to != os.DevNull {
		t.Errorf("the mask was removed: %q, %v", to, err)
	}
}

func TestServicesShareTheirState(t *testing.T) {
	dir := t.TempDir()
	s, err := newSystemd(mustDefault(t, Options{Executable: "/opt/agent", Account: "deploy", Name: "first"}), &scripted{})
	if err != nil {
		t.Fatal(err)
	}
	unit := s.render(252)
	for name, text := range map[string]string{"first.service": string(unit), "other.service": "[Service]\nUser=www\nStateDirectory=www\n"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for _, tt := range []struct {
		unit, account string
		refused       bool
	}{
		{"second.service", "deploy", false},
		{"second.service", "ann", true},
		{"first.service", "ann", false}, // moves the state to the other account
	} {
		if err := sharesState([]string{dir}, tt.unit, tt.account); (err != nil) != tt.refused {
			t.Errorf("%s as %s: %v", tt.unit, tt.account, err)
		}
	}
}

func TestUninstall(t *testing.T) {
	commands := &scripted{}
	s := userService(t, commands)
	if err := s.Uninstall(); !errors.Is(err, service.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	if _, err := initsystem.ReplaceFile(s.File(), []byte("[Unit]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, s.Uninstall())
	commands.want(t, "systemctl --user disable --now customer-managed-workflow-agent.service",
		"systemctl --user daemon-reload", "systemctl --user reset-failed customer-managed-workflow-agent.service")
	if _, err := os.Stat(s.File()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit exists: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	commands := &scripted{rules: map[string][]answer{"systemctl --user show": {{out: `LoadState=loaded
ActiveState=activating
SubState=auto-restart
UnitFileState=enabled
MainPID=0
NRestarts=7
Result=exit-code
StatusText=what it said last
ExecMainCode=1
ExecMainStatus=1
StateChangeTimestamp=Tue 2023-11-14 22:13:20 UTC`}}}}
	s := userService(t, commands)
	state, err := s.Describe(t.Context())
	want := State{
		Active: "activating", Detail: "auto-restart", Enabled: "enabled", Restarts: 7, Since: time.Unix(1700000000, 0),
		LastExit: "exit-code, exit code 1", Installed: s.File(),
	}
	if err != nil || state != want {
		t.Errorf("got %+v, %v", state, err)
	}
	// The command line must not use options that systemd versions before 251 do not support.
	if line := commands.calls[0]; strings.Contains(line, "--timestamp") {
		t.Errorf("ran %s", line)
	}
	commands.rules["systemctl --user show"] = []answer{{out: "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=7\nStatusText=\x1b]0;title\x07all is \x1b[2Jwell"}}
	if state, err := s.Describe(t.Context()); err != nil || state.Detail != "running: all is well" {
		t.Errorf("a service with control characters: %q, %v", state.Detail, err)
	}
	for out, want := range map[string]string{
		"Result=success\nExecMainCode=1\nExecMainStatus=0":  "",
		"Result=watchdog\nExecMainCode=2\nExecMainStatus=6": "watchdog, signal 6",
		"Result=resources\nExecMainCode=0":                  "resources",
	} {
		commands.rules["systemctl --user show"] = []answer{{out: "LoadState=loaded\n" + out}}
		if state, err := s.Describe(t.Context()); err != nil || state.LastExit != want {
			t.Errorf("%q: got %q, %v", out, state.LastExit, err)
		}
	}
	commands.rules["systemctl --user show"] = []answer{{out: "LoadState=not-found\nActiveState=inactive"}}
	if _, err := s.Describe(t.Context()); !errors.Is(err, service.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	if err := s.Start(); !errors.Is(err, service.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
}

func describe(s Service) error {
	_, err := s.Describe(context.Background())
	return err
}

func TestNoSession(t *testing.T) {
	s := userService(t, &scripted{})
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, err := range []error{s.Install(), s.Start(), s.Stop(), s.Uninstall(), describe(s)} {
		if err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
			t.Errorf("got %v", err)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Name: "a b"}, {Name: "../x"}, {Name: "-x"}, {Profile: "tight"}, {User: true, Account: "ann"}, {Executable: "agent"}, {Config: "x.yaml"}, {Executable: "/a\nUser=root"},
	} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
