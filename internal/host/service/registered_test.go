package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWithConfig checks that the service of a configuration is found by the units that service install writes.
func TestWithConfig(t *testing.T) {
	const state = "/var/lib/workflow-agent"
	admin, packages := t.TempDir(), t.TempDir()
	install := func(dir string, o Options) {
		t.Helper()
		o.Executable = "/opt/" + DefaultName
		s, err := newSystemd(mustDefault(t, o), &scripted{})
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, s.unit()), s.render(252), 0o644))
	}
	install(packages, Options{Config: "/etc/a.yaml", Docker: true})
	install(packages, Options{Name: "hidden", Config: "/etc/c.yaml"})
	install(admin, Options{Name: "hidden", Config: "/etc/d.yaml"})
	install(admin, Options{Name: "second", Config: "/srv/100%/a b.yaml", Profile: ProfileProcess, Account: "deploy"})
	must(t, os.WriteFile(filepath.Join(admin, "other.service"), []byte("[Service]\nExecStart=/bin/other --config /etc/e.yaml\n"), 0o644))
	for file, want := range map[string]*Registered{
		"/etc/a.yaml":         {Name: DefaultName, Account: SystemUser, Groups: []string{"docker"}, Profile: ProfileDocker, StateDirectory: state},
		"/srv/100%/a b.yaml":  {Name: "second", Account: "deploy", Profile: ProfileProcess, StateDirectory: state},
		"/etc/c.yaml":         nil, // the unit is hidden by another one
		"/etc/d.yaml":         {Name: "hidden", Account: SystemUser, Profile: ProfileDocker, StateDirectory: state},
		"/etc/e.yaml":         nil, // of another program
		"/etc/a.yaml.another": nil,
		"/etc/a":              nil,
	} {
		if got := withConfig([]string{admin, packages}, file); !cmp.Equal(got, want) {
			t.Errorf("%s: got %+v, want %+v", file, got, want)
		}
	}
}
