package service

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"howett.net/plist"
)

//go:generate go test -run ^TestPackagedPropertyLists$ -update .

const packaged = "../../../packaging/launchd"

func packagedLists() map[string]Options {
	return map[string]Options{
		"LaunchDaemons": {Executable: "/opt/workflow-agent/" + DefaultName},
		"LaunchAgents":  {Executable: "/Users/USERNAME/.pulumi/bin/" + DefaultName + "/" + DefaultName, User: true},
	}
}

// TestPackagedPropertyLists compares the property lists in packaging/launchd with the output of
// service install. With -update, it writes them.
func TestPackagedPropertyLists(t *testing.T) {
	for dir, options := range packagedLists() {
		text := newLaunchd(mustDefault(t, options), &scripted{}, "/Users/USERNAME").render()
		path := filepath.Join(packaged, dir, DefaultName+".plist")
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		golden(t, filepath.Join("..", path), text)
	}
}

// TestPropertyListValues parses property lists with an independent parser and compares every value.
// The values include paths with characters that are special in XML.
func TestPropertyListValues(t *testing.T) {
	const special = `/opt/a & b <c> "d" 'e' ä/agent`
	for _, tt := range []struct {
		options Options
		home    string
		want    map[string]any
	}{
		{
			Options{Executable: special, Account: "deploy", Config: "/etc/x&y.yaml"},
			"",
			map[string]any{
				"ProgramArguments": []any{special, "run", "--config", "/etc/x&y.yaml", "--env-file", "/etc/customer-managed-workflow-agent.env"},
				"UserName":         "deploy",
				"StandardOutPath":  "/Library/Logs/customer-managed-workflow-agent.log", "StandardErrorPath": "/Library/Logs/customer-managed-workflow-agent.log",
			},
		},
		{
			Options{Executable: "/opt/agent", Name: "second-agent"},
			"",
			map[string]any{
				"Label":            "second-agent",
				"ProgramArguments": []any{"/opt/agent", "run", "--config", SystemConfig, "--env-file", "/etc/second-agent.env"},
				"StandardOutPath":  "/Library/Logs/second-agent.log", "StandardErrorPath": "/Library/Logs/second-agent.log",
			},
		},
		{
			Options{Executable: "/opt/agent", User: true},
			"/Users/a<b>&c",
			map[string]any{
				"ProgramArguments": []any{"/opt/agent", "run", "--env-file", "/Users/a<b>&c/.config/customer-managed-workflow-agent.env"},
				"StandardOutPath":  "/Users/a<b>&c/Library/Logs/customer-managed-workflow-agent.log", "StandardErrorPath": "/Users/a<b>&c/Library/Logs/customer-managed-workflow-agent.log",
			},
		},
	} {
		text := newLaunchd(mustDefault(t, tt.options), &scripted{}, tt.home).render()
		want := map[string]any{
			"Label": DefaultName, "RunAtLoad": true, "KeepAlive": map[string]any{"SuccessfulExit": false},
			"ThrottleInterval": uint64(10), "ExitTimeOut": uint64(30), "AbandonProcessGroup": true, "ProcessType": "Background",
			"Umask":              uint64(0o077), // launchd requires a decimal number
			"SoftResourceLimits": map[string]any{"NumberOfFiles": uint64(10240)},
		}
		maps.Copy(want, tt.want)
		got := map[string]any{}
		if _, err := plist.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.options, diff)
		}
	}
}

// TestUpdatePropertyListValues parses and compares the update helper's property list.
func TestUpdatePropertyListValues(t *testing.T) {
	options := Options{Executable: "/opt/a&b/agent", Updates: &Updates{
		Root: "/opt/a&b", Program: "/opt/a&b/proven/agent", State: "/var/lib/<x>", Stage: "/var/lib/<x>/updates",
		Request: "/var/lib/<x>/updates/request.json", Journal: "/opt/a&b/update.json",
	}}
	text := newLaunchd(mustDefault(t, options), &scripted{}, "").renderUpdates()
	got := map[string]any{}
	if _, err := plist.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	const logFile = "/Library/Logs/customer-managed-workflow-agent.log"
	want := map[string]any{
		"Label": DefaultName + "-update", "RunAtLoad": true, "KeepAlive": map[string]any{"SuccessfulExit": false},
		"ProgramArguments": []any{
			"/opt/a&b/proven/agent", "update", "apply", "--service", DefaultName, "--stage", "/var/lib/<x>/updates",
			"--config", SystemConfig, "--env-file", "/etc/customer-managed-workflow-agent.env",
		},
		"WatchPaths":       []any{"/var/lib/<x>/updates/request.json", "/opt/a&b/update.json"},
		"ThrottleInterval": uint64(30), "ProcessType": "Background",
		"Umask":           uint64(0o022), // launchd requires a decimal number
		"StandardOutPath": logFile, "StandardErrorPath": logFile,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPropertyListsElsewhere checks the packaged property lists with other programs' parsers. It
// also checks a broken property list, to show that the parsers detect errors.
func TestPropertyListsElsewhere(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.plist")
	must(t, os.WriteFile(broken, []byte(`<?xml version="1.0"?><plist version="1.0"><dict><key>Label</dict></plist>`), 0o600))
	for _, command := range [][]string{
		{"xmllint", "--noout", "--nonet"},
		{"python3", "-c", "import plistlib, sys; plistlib.load(open(sys.argv[1], 'rb'))"},
		{"plutil", "-lint"},
	} {
		t.Run(command[0], func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip("not on this machine")
			}
			read := func(path string) ([]byte, error) {
				return exec.CommandContext(t.Context(), command[0], append(command[1:len(command):len(command)], path)...).CombinedOutput()
			}
			for dir := range packagedLists() {
				if out, err := read(filepath.Join(packaged, dir, DefaultName+".plist")); err != nil {
					t.Errorf("%s: %v\n%s", dir, err, out)
				}
			}
			if _, err := read(broken); err == nil {
				t.Error("a broken property list passes")
			}
		})
	}
}
