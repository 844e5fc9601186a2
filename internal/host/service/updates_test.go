package service

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func updatesIn(root, state string) *Updates {
	return &Updates{
		Root: root, Program: filepath.Join(root, "proven", DefaultName), State: state, Stage: filepath.Join(state, "updates"),
		Request: filepath.Join(state, "updates", "request.json"), Journal: filepath.Join(root, "update.json"),
	}
}

func TestUpdateUnits(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "/home/ann/.config")
	system := Options{Executable: "/opt/a b%/customer-managed-workflow-agent", Updates: updatesIn("/opt/a b%", "/var/lib/workflow-agent")}
	user := Options{Executable: "/home/ann/.pulumi/x/agent", User: true, Name: "second", Updates: updatesIn("/home/ann/.pulumi/x", "/home/ann/.local/state/workflow-agent")}
	for _, tt := range []struct {
		file    string
		options Options
		version int
	}{
		{"system-update", system, 252},
		{"user-update", user, 254},
	} {
		s, err := newSystemd(mustDefault(t, tt.options), &scripted{})
		if err != nil {
			t.Fatal(err)
		}
		path, unit := s.renderUpdates(tt.version)
		golden(t, tt.file+".path", path)
		golden(t, tt.file+".service", unit)
	}
	s, err := newSystemd(mustDefault(t, system), &scripted{})
	if err != nil {
		t.Fatal(err)
	}
	// Old systemd versions cannot restart oneshot units.
	if _, unit := s.renderUpdates(239); bytes.Contains(unit, []byte("\nRestart=")) || !bytes.Contains(unit, []byte("\nStartLimitBurst=20\n")) {
		t.Errorf("%s\n%v", unit, err)
	}
	if main := s.render(252); !bytes.Contains(main, []byte(" --updates /var/lib/workflow-agent/updates\n")) {
		t.Errorf("the service gets no stage for updates: %s\n%v", main, err)
	}
	daemon := newLaunchd(mustDefault(t, system), &scripted{}, "/Users/ann").renderUpdates()
	golden(t, "daemon-update.plist", daemon)
	for decoder := xml.NewDecoder(bytes.NewReader(daemon)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("it is not XML: %v", err)
		}
	}
}

func TestUpdateUnitsComeAndGo(t *testing.T) {
	const (
		main, path, helper = "customer-managed-workflow-agent.service", "customer-managed-workflow-agent-update.path", "customer-managed-workflow-agent-update.service"
		show               = "systemctl --user show --property=LoadState --value "
	)
	commands := &scripted{rules: map[string][]answer{
		"systemctl --version":   {{out: "systemd 252 (252.38-1)\n+PAM"}},
		"systemctl --user show": {{out: "loaded"}},
	}}
	s := userService(t, commands)
	updates := updatesIn("/opt", "/home/ann/state")
	s.options.Updates = updates
	there := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Dir(s.File()))
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("there are %q, want %q (%v)", got, want, err)
		}
	}

	// The files of the helper's units are removed if systemd rejects them.
	commands.rules[show+helper] = []answer{{out: "bad-setting"}}
	commands.rules[show+main], commands.rules[show+path] = []answer{{out: "loaded"}}, []answer{{out: "loaded"}}
	delete(commands.rules, "systemctl --user show")
	if err := s.Install(); err == nil || !strings.Contains(err.Error(), "systemctl status "+helper) {
		t.Errorf("got %v", err)
	}
	there()
	commands.rules[show+helper] = []answer{{out: "loaded"}}
	commands.calls = nil

	must(t, s.Install())
	must(t, s.Enable(t.Context()))
	commands.want(t, "systemctl --version", "systemctl --user daemon-reload", show+main, show+path, show+helper,
		"systemctl --user enable "+main+" "+path+" "+helper, "systemctl --user restart "+path)
	there(path, helper, main)

	// If an installation can no longer update itself, its helper is removed.
	s.options.Updates = nil
	must(t, s.Install())
	commands.want(t, "systemctl --version", "systemctl --user disable --now "+path, "systemctl --user disable "+helper,
		"systemctl --user daemon-reload", show+main)
	there(main)

	s.options.Updates = updates
	must(t, s.Install())
	commands.calls = nil
	s.options.Updates = nil // an uninstall does not require this setting
	must(t, s.Uninstall())
	commands.want(t, "systemctl --user disable --now "+main, "systemctl --user disable --now "+path, "systemctl --user disable "+helper,
		"systemctl --user daemon-reload", "systemctl --user reset-failed "+main+" "+helper)
	there()
}

func TestUpdateHelperOfLaunchd(t *testing.T) {
	commands := &scripted{rules: map[string][]answer{"launchctl print": {notLoaded}}}
	o := mustDefault(t, Options{Executable: "/opt/agent", Name: "test-agent", User: true, Updates: updatesIn("/opt", "/home/ann/state")})
	l := newLaunchd(o, commands, t.TempDir())
	enable := "launchctl enable " + l.domain + "/test-agent"
	look := "launchctl print " + l.domain + "/test-agent-update"
	must(t, l.Enable(t.Context()))
	commands.want(t, enable, look, "launchctl bootstrap "+l.domain+" "+l.home+"/Library/LaunchAgents/test-agent-update.plist")

	// If updates are off, an existing helper is unloaded.
	l.options.Updates = nil
	commands.rules["launchctl print"] = []answer{{}, notLoaded}
	must(t, l.Enable(t.Context()))
	commands.want(t, enable, look, "launchctl bootout "+l.domain+"/test-agent-update", look)
}
