package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTarget(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "home")
	must(t, os.MkdirAll(home, 0o755))
	o := LoadOptions{Home: home, Etc: filepath.Join(root, "etc"), Cwd: filepath.Join(root, "cwd"), Binary: "/usr/bin/customer-managed-workflow-agent", UID: 1000}
	check := func(name string, o LoadOptions, want string) {
		t.Helper()
		if got, err := Target(o); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	asked, rooted, installed := o, o, o
	asked.Path = "new.yaml"
	check("asked for", asked, filepath.Join(root, "cwd", "new.yaml"))
	check("a user's", o, filepath.Join(home, FileName))
	rooted.UID = 0
	check("root's", rooted, filepath.Join(root, "etc", FileName))
	installed.Binary = filepath.Join(home, ".pulumi/bin/customer-managed-workflow-agent/customer-managed-workflow-agent")
	check("next to the installed binary", installed, filepath.Join(filepath.Dir(installed.Binary), FileName))
	installed.Binary = filepath.Join(home, ".pulumi/bin/customer-managed-workflow-agent/versions/v1.2.3/customer-managed-workflow-agent")
	check("in a directory that updates do not replace", installed, filepath.Join(home, ".pulumi/bin/customer-managed-workflow-agent", FileName))
	brewed := o
	brewed.Binary = filepath.Join(root, "brew/Cellar/customer-managed-workflow-agent/1.2.3/libexec/customer-managed-workflow-agent")
	check("Homebrew's", brewed, filepath.Join(root, "brew/etc", FileName))
	must(t, os.WriteFile(filepath.Join(home, OldFileName), nil, 0o600))
	check("the existing file", rooted, filepath.Join(home, OldFileName))
	if _, err := Target(LoadOptions{UID: 1000}); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("without a home: %v", err)
	}
}

func TestReadText(t *testing.T) {
	dir := t.TempDir()
	o := testOptions("")
	if data, err := ReadText(filepath.Join(dir, "none"), o); data != nil || err != nil {
		t.Errorf("no file: %q, %v", data, err)
	}
	path := filepath.Join(dir, FileName)
	must(t, os.WriteFile(path, []byte("syslog: true\n"), 0o600))
	if data, err := ReadText(path, o); string(data) != "syslog: true\n" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}
	must(t, os.Chmod(path, 0o666))
	if _, err := ReadText(path, o); err == nil {
		t.Error("a file that is writable by all was accepted")
	}
}
