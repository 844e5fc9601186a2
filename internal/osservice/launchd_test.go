package osservice

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/kardianos/service"
)

// notLoaded is what launchctl print says of a service that is not loaded.
var notLoaded = answer{err: &exitError{"launchctl print", 113, "Could not find service"}}

func TestPropertyLists(t *testing.T) {
	for _, tt := range []struct {
		file    string
		options Options
	}{
		{"daemon.plist", Options{Executable: "/opt/a&b/customer-managed-workflow-agent", Account: "deploy", Config: "/etc/a <b>.yaml"}},
		{"agent.plist", Options{Executable: "/Users/ann/.pulumi/bin/customer-managed-workflow-agent", User: true}},
	} {
		text, err := newLaunchd(mustDefault(t, tt.options), &scripted{}, "/Users/ann").render()
		if err != nil {
			t.Fatal(err)
		}
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

	// A stop of what is not loaded does nothing; one of what is waits until it is gone.
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	commands.want(t, "launchctl print system/test-agent")
	commands.rules = map[string][]answer{
		"launchctl print":   {{}, {}, notLoaded},
		"launchctl bootout": {{err: &exitError{"launchctl bootout", exitInProgress, "Operation now in progress"}}},
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	commands.want(t, "launchctl print system/test-agent", "launchctl bootout system/test-agent",
		"launchctl print system/test-agent", "launchctl print system/test-agent")
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
	if _, err := replaceFile(l.File(), []byte("<plist/>"), 0o644); err != nil {
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
