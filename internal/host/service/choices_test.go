package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/sys/initsystem"
)

func TestChoicesAreKept(t *testing.T) {
	s := userService(t, &scripted{rules: map[string][]answer{}})
	base := Options{Name: "second", User: true, Executable: "/opt/agent"}
	s.options = base
	path := choicesFile(s)
	if filepath.Base(path) != "second.choices" || filepath.Dir(path) != filepath.Dir(s.EnvironmentFile()) {
		t.Fatalf("the choices are in %s", path)
	}
	if got, err := readChoices(path, base); err != nil || got != base {
		t.Errorf("before any choice: %+v, %v", got, err)
	}
	for _, chosen := range []Options{
		{Account: "deploy", Profile: ProfileProcess, Config: `/srv/100% "a b".yaml`, Docker: true},
		{Docker: true},
		{Profile: ProfileProcess},
	} {
		want := base
		want.Account, want.Profile, want.Config, want.Docker = chosen.Account, chosen.Profile, chosen.Config, chosen.Docker
		must(t, Remember(s, want))
		got, err := readChoices(path, base)
		if err != nil || got != want {
			t.Errorf("got %+v, want %+v, %v", got, want, err)
		}
	}
	// The file is removed when the last option is reset to its default.
	must(t, Remember(s, base))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file exists: %v", err)
	}
	for _, text := range []string{"DOCKER=perhaps\n", "DOCKER\n"} {
		must(t, os.WriteFile(path, []byte(text), 0o644))
		if _, err := readChoices(path, base); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: got %v", text, err)
		}
	}
	// After an uninstall, the service starts without earlier choices.
	if _, err := initsystem.ReplaceFile(s.File(), []byte("[Unit]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, s.Uninstall())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after uninstall the file exists: %v", err)
	}
}

func TestUnitOfPackage(t *testing.T) {
	admin, packages := t.TempDir(), t.TempDir()
	s := &systemd{options: Options{Name: "agent"}}
	want := func(of bool, executable, what string) {
		t.Helper()
		s.options.Executable = executable
		if got := s.ofPackage(admin, packages); got != of {
			t.Errorf("%s: %v", what, got)
		}
	}
	want(false, "", "no unit at all")
	must(t, os.WriteFile(filepath.Join(packages, "agent.service"), nil, 0o644))
	want(true, "", "a package's unit")
	want(true, "/usr/lib/agent/agent", "brought up to date by its own binary")
	want(false, "/opt/agent", "a binary from elsewhere")
	mask := filepath.Join(admin, "agent.service")
	must(t, os.Symlink("/dev/null", mask))
	want(true, "", "masked")
	must(t, os.Remove(mask))
	must(t, os.WriteFile(mask, nil, 0o644))
	want(false, "", "the administrator has a unit of that name")
}

func TestUninstallLeavesPackages(t *testing.T) {
	s := userService(t, &scripted{})
	s.packaged = true
	if err := s.Uninstall(); err == nil || !strings.Contains(err.Error(), "belongs to a package") {
		t.Errorf("got %v", err)
	}
}

func TestMasked(t *testing.T) {
	s := userService(t, &scripted{rules: map[string][]answer{
		"systemctl --version":   {{out: "systemd 252"}},
		"systemctl --user show": {{out: "masked"}},
	}})
	if err := s.Install(); err == nil || !strings.Contains(err.Error(), "unmask") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(s.File()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unit exists: %v", err)
	}
}

func TestOldConfiguration(t *testing.T) {
	dir := t.TempDir()
	current, old := filepath.Join(dir, "new.yaml"), filepath.Join(dir, "old.yaml")
	for _, step := range []struct{ made, want string }{{"", current}, {old, old}, {current, current}} {
		if step.made != "" {
			must(t, os.WriteFile(step.made, nil, 0o600))
		}
		if got := firstFile(current, old); got != step.want {
			t.Errorf("with %q made: %s, want %s", step.made, got, step.want)
		}
	}
}

func TestChoicesOfServiceInstall(t *testing.T) {
	earlier := Options{Name: "second", Account: "deploy", Docker: true, Profile: ProfileProcess, Config: "/srv/a.yaml"}
	for flag, want := range map[string]func(*Options){
		"start":   func(*Options) {},
		"account": func(o *Options) { o.Account = "" },
		"docker":  func(o *Options) { o.Docker = false },
		"process": func(o *Options) { o.Profile = "" },
		"config":  func(o *Options) { o.Config = "" },
	} {
		expected := earlier
		want(&expected)
		got := Amend(earlier, Options{}, func(name string) bool { return name == flag })
		if got != expected {
			t.Errorf("--%s: got %+v, want %+v", flag, got, expected)
		}
	}
}
