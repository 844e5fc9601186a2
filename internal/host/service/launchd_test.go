package service

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kardianos/service"

	"workflowagent/internal/sys/initsystem"
)

var notLoaded = answer{err: &initsystem.ExitError{Command: "launchctl print", Code: 113, Said: "Could not find service"}}

func TestPropertyLists(t *testing.T) {
	for _, tt := range []struct {
		file    string
		options Options
	}{
		{"daemon.plist", Options{Executable: "/opt/a&b/customer-managed-workflow-agent", Account: "deploy", Config: "/etc/a <b>.yaml"}},
		{"agent.plist", Options{Executable: "/Users/ann/.pulumi/bin/customer-managed-workflow-agent", User: true}},
	} {
		text := newLaunchd(mustDefault(t, tt.options), &scripted{}, "/Users/ann").render()
		golden(t, tt.file, text)
		for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is not XML: %v", tt.file, err)
			}
		}
	}
}

func TestLaunchctl(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a daemon needs root")
	}
	commands := &scripted{rules: map[string][]answer{"launchctl print": {notLoaded}}}
	l := newLaunchd(mustDefault(t, Options{Executable: "/opt/agent", Name: "test-agent"}), commands, "")
	if err := l.Start(); !errors.Is(err, service.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Describe(t.Context()); !errors.Is(err, service.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	commands.want(t)

	// Stop does nothing if the service is not loaded. Otherwise, it waits until the service is
	// unloaded.
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	commands.want(t, "launchctl print system/test-agent")
	commands.rules = map[string][]answer{
		"launchctl print":   {{}, {}, notLoaded},
		"launchctl bootout": {{err: &initsystem.ExitError{Command: "launchctl bootout", Code: exitInProgress, Said: "Operation now in progress"}}},
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	commands.want(t, "launchctl print system/test-agent", "launchctl bootout system/test-agent",
		"launchctl print system/test-agent", "launchctl print system/test-agent")
}

// scratchLaunchd returns a daemon whose files are in a temporary directory.
func scratchLaunchd(t *testing.T, o Options, commands initsystem.Runner) *launchd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a daemon needs root")
	}
	root := t.TempDir()
	o.Executable = filepath.Join(root, "agent")
	must(t, os.WriteFile(o.Executable, nil, 0o755))
	o.Name, o.Config = "test-agent", filepath.Join(root, "agent.yaml")
	l := newLaunchd(mustDefault(t, o), commands, "")
	l.root = root
	return l
}

// TestLaunchctlStart checks Start in each state of the service, including while launchd still
// releases an older service, and after another process has loaded the service.
func TestLaunchctlStart(t *testing.T) {
	failed := func(code int) answer {
		return answer{err: &initsystem.ExitError{Command: "launchctl", Code: code, Said: "said no"}}
	}
	const print, bootstrap, kick = "launchctl print system/test-agent", "launchctl bootstrap system ", "launchctl kickstart system/test-agent"
	for _, tt := range []struct {
		name  string
		rules map[string][]answer
		calls string // p: print, b: bootstrap, k: kickstart
		err   string
	}{
		{"not loaded", map[string][]answer{"launchctl print": {notLoaded}}, "pb", ""},
		{"loaded", nil, "pk", ""},
		{"runs", map[string][]answer{"launchctl kickstart": {failed(exitAlready)}}, "pk", ""},
		{"still leaving", map[string][]answer{"launchctl print": {notLoaded}, "launchctl bootstrap": {failed(exitIO), failed(exitAlready), {}}}, "pbpbpb", ""},
		{"another process was faster", map[string][]answer{"launchctl print": {notLoaded, {}}, "launchctl bootstrap": {failed(exitIO)}}, "pbpk", ""},
		{"no session", map[string][]answer{"launchctl print": {notLoaded}, "launchctl bootstrap": {failed(exitNoSession)}}, "pb", "log in there"},
		{"refused", map[string][]answer{"launchctl print": {notLoaded}, "launchctl bootstrap": {failed(22)}}, "pb", "said no"},
		{"no launchctl", map[string][]answer{"launchctl print": {{err: errors.New("no such program")}}}, "p", "no such program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			commands := &scripted{rules: tt.rules}
			l := scratchLaunchd(t, Options{}, commands)
			must(t, l.Install())
			commands.want(t)
			synctest.Test(t, func(t *testing.T) {
				err := l.Start()
				if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
			})
			want := []string{"launchctl enable system/test-agent"}
			for _, call := range tt.calls {
				want = append(want, map[rune]string{'p': print, 'b': bootstrap + l.File(), 'k': kick}[call])
			}
			commands.want(t, want...)
		})
	}
}

// TestLaunchctlNeverAgrees checks that the wait for launchd has a time limit.
func TestLaunchctlNeverAgrees(t *testing.T) {
	commands := &scripted{rules: map[string][]answer{"launchctl print": {notLoaded}, "launchctl bootstrap": {{err: &initsystem.ExitError{Command: "launchctl bootstrap", Code: exitIO, Said: "Input/output error"}}}}}
	l := scratchLaunchd(t, Options{}, commands)
	must(t, l.Install())
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := l.Start(); err == nil || !strings.Contains(err.Error(), "Input/output error") {
			t.Errorf("a service that is never loaded: %v", err)
		}
		commands.rules = map[string][]answer{"launchctl bootout": {{err: &initsystem.ExitError{Command: "launchctl bootout", Code: exitInProgress, Said: ""}}}}
		if err := l.Stop(); err == nil || !strings.Contains(err.Error(), "did not unload") {
			t.Errorf("a service that never leaves: %v", err)
		}
		if took := time.Since(began); took > 2*launchdTime {
			t.Errorf("took %s", took)
		}
		commands.rules = map[string][]answer{"launchctl bootout": {{err: &initsystem.ExitError{Command: "launchctl bootout", Code: 1, Said: "not permitted"}}}}
		if err := l.Stop(); err == nil || !strings.Contains(err.Error(), "not permitted") {
			t.Errorf("a refused bootout: %v", err)
		}
		commands.rules = map[string][]answer{"launchctl print": {{}, notLoaded}, "launchctl bootout": {{err: &initsystem.ExitError{Command: "launchctl bootout", Code: 3, Said: "No such process"}}}}
		if err := l.Stop(); err != nil {
			t.Errorf("a service that was already unloaded: %v", err)
		}
	})
}

func TestDaemonFiles(t *testing.T) {
	l := scratchLaunchd(t, Options{Account: "nobody"}, &scripted{})
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("the user nobody does not exist here")
	}
	if err := l.Install(); err == nil || !strings.Contains(err.Error(), "cannot start") {
		t.Fatalf("a binary that the account cannot reach: %v", err)
	}
	for _, dir := range []string{filepath.Dir(l.root), l.root} { // other users cannot enter the directories that t.TempDir creates
		must(t, os.Chmod(dir, 0o755))
	}
	check := func(account, uid string) {
		t.Helper()
		l.options.Account = account
		must(t, l.Install())
		must(t, SetEnvironment(l.EnvironmentFile(), map[string]string{"HTTPS_PROXY": "http://proxy.internal:3128"}))
		for _, path := range []string{l.EnvironmentFile(), l.logFile(), l.options.Config} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if owner := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid)); owner != uid || info.Mode().Perm() != 0o600 {
				t.Errorf("as %s: %s has mode %v and belongs to %s", account, path, info.Mode(), owner)
			}
		}
	}
	check("nobody", nobody.Uid)
	// Afterwards, the administrator owns the configuration, and the agent owns the other files.
	must(t, os.Chown(l.options.Config, 0, 0))
	check("", "0")

	l.options.Account = "no-such-user-here"
	if err := l.Install(); err == nil || !strings.Contains(err.Error(), "user no-such-user-here does not exist") {
		t.Errorf("got %v", err)
	}
	l.options.Account = "root"
	must(t, os.Chown(l.options.Executable, 12345, 0))
	if err := l.Install(); err == nil || !strings.Contains(err.Error(), "another user can change "+l.options.Executable) {
		t.Errorf("another user's binary as root: %v", err)
	}
}

func TestLaunchctlPrint(t *testing.T) {
	home := t.TempDir()
	commands := &scripted{rules: map[string][]answer{"launchctl print": {{out: `gui/501/test-agent = {
	active count = 1
	path = /Users/ann/Library/LaunchAgents/test-agent.plist
	state = running
	program = /opt/agent
	endpoints = {
		state = waiting
	}
	runs = 3
	pid = 812
	last exit code = 1
}`}}}}
	l := newLaunchd(mustDefault(t, Options{Executable: "/opt/agent", Name: "test-agent", User: true}), commands, home)
	if _, err := initsystem.ReplaceFile(l.File(), []byte("<plist/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	state, err := l.Describe(t.Context())
	want := State{Active: "active", Detail: "running", PID: 812, Restarts: 2, LastExit: "exit code 1", Installed: l.File()}
	if err != nil || state != want {
		t.Errorf("got %+v, %v", state, err)
	}
	commands.rules["launchctl print"] = []answer{notLoaded}
	if state, err = l.Describe(t.Context()); err != nil || state.Active != "inactive" {
		t.Errorf("got %+v, %v", state, err)
	}
}

func TestLaunchctlStates(t *testing.T) {
	commands := &scripted{}
	l := newLaunchd(mustDefault(t, Options{Executable: "/opt/agent", Name: "test-agent", User: true}), commands, t.TempDir())
	if _, err := initsystem.ReplaceFile(l.File(), []byte("<plist/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]string{"running": "active", "SIGTERMed": "deactivating", "spawn scheduled": "activating", "not running": "inactive"} {
		commands.rules = map[string][]answer{"launchctl print": {{out: "gui/501/test-agent = {\n\tstate = " + state + "\n}"}}}
		if got, err := l.Describe(t.Context()); err != nil || got.Active != want || got.Detail != state {
			t.Errorf("%s: %+v, %v", state, got, err)
		}
	}
	commands.rules = map[string][]answer{"launchctl print": {{err: errors.New("no such program")}}}
	if _, err := l.Describe(t.Context()); err == nil {
		t.Error("a failed query returned a state")
	}
}
