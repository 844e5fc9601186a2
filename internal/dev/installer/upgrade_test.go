package installer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestUpgrade(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	for _, version := range []string{"v1.0.0", "v1.1.0", "v1.2.0"} {
		m.release(t, version)
	}
	m.inShells(t, func(t *testing.T, b *box) {
		config := filepath.Join(b.root(), "pulumi-workflow-agent.yaml")
		b.want(t, 0, []string{"Installed v1.0.0"}, "--version", "v1.0.0")
		writeFile(t, config, []byte("token: mine\n"), 0o600)
		b.want(t, 0, []string{"Upgraded from v1.0.0 to v1.1.0"}, "--version", "v1.1.0")
		b.whole(t, "v1.1.0", "v1.0.0")
		b.want(t, 0, []string{"Upgraded from v1.1.0 to v1.2.0"}, "--version", "v1.2.0")
		b.whole(t, "v1.2.0", "v1.1.0")
		if text, err := os.ReadFile(config); err != nil || string(text) != "token: mine\n" {
			t.Errorf("the configuration is %q (%v)", text, err)
		}

		old := newMirror(t, "v1.1.9")
		use := []string{"--mirror", old.url, "--key", old.keyFile}
		b.want(t, 1, []string{"v1.2.0, which is newer than v1.1.9", "--version v1.1.9"}, use...)
		b.want(t, 1, nil, append(use, "--silent")...)
		b.whole(t, "v1.2.0", "v1.1.0")
		b.want(t, 0, nil, append(use, "--yes", "--no-modify-path")...)
		b.whole(t, "v1.1.9", "v1.2.0")
		b.want(t, 0, nil, "--version", "v1.0.0")
		b.whole(t, "v1.0.0", "v1.1.9")
	})
}

// TestDoesNotRun checks that an agent that cannot run on this machine never replaces a working
// agent.
func TestDoesNotRun(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	m.release(t, "v1.0.0")
	m.release(t, "v1.1.0")
	b := newBox(t, m, dash(t))
	b.want(t, 0, nil, "--version=1.0.0")
	mute := filepath.Join(b.fake, "mute")
	writeFile(t, mute, nil, 0o600)
	b.want(t, 1, []string{"the agent v1.1.0 does not run on this machine"}, "--version=1.1.0")
	must.OK(t, os.Remove(mute))
	b.whole(t, "v1.0.0", "")
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.0.0")
	m.inShells(t, func(t *testing.T, b *box) {
		b.want(t, 0, []string{"There is no agent in " + b.root()}, "--uninstall")
		b.nothing(t)
		b.want(t, 0, nil)
		config := filepath.Join(b.root(), "pulumi-workflow-agent.yaml")
		state := filepath.Join(b.home, ".local", "state", "workflow-agent", "journal")
		for _, file := range []string{config, state, filepath.Join(b.root(), "notes of mine")} {
			writeFile(t, file, []byte("mine"), 0o600)
		}
		b.want(t, 0, []string{"Removed the agent from " + b.root(), "Kept configuration and state", config, filepath.Dir(state)}, "--uninstall")
		if left := names(t, b.root()); !slices.Equal(left, []string{"notes of mine", "pulumi-workflow-agent.yaml"}) {
			t.Errorf("%q are left", left)
		}
		// The agent can be reinstalled over its configuration and state. These files can be removed
		// after the agent.
		b.want(t, 0, []string{"Installed v1.0.0"})
		b.whole(t, "v1.0.0", "")
		b.want(t, 0, nil, "--uninstall")
		b.want(t, 0, []string{"Removed configuration and state"}, "--uninstall", "--purge")
		if left := names(t, b.root()); !slices.Equal(left, []string{"notes of mine"}) {
			t.Errorf("%q are left", left)
		}
		if _, err := os.Stat(filepath.Dir(state)); !os.IsNotExist(err) {
			t.Errorf("the state is left: %v", err)
		}
	})
}

// TestRootRunsNoForeignProgram checks that root does not run a program that another user can replace.
func TestRootRunsNoForeignProgram(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give the installation to another user")
	}
	m := newMirror(t, "v1.0.0")
	for name, change := range map[string]func(dir string) error{
		"owner":  func(dir string) error { return os.Chown(dir, 65534, -1) },
		"mode":   func(dir string) error { return os.Chmod(dir, 0o777) },
		"parent": func(dir string) error { return os.Chown(filepath.Dir(dir), 65534, -1) },
		"file": func(dir string) error {
			return os.Chown(filepath.Join(dir, "customer-managed-workflow-agent"), 65534, -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, m, dash(t))
			b.want(t, 0, nil)
			must.OK(t, change(b.root()))
			b.want(t, 1, []string{"root does not run", "another user can replace it"}, "--uninstall")
			if err := os.Chown(filepath.Join(b.root(), "customer-managed-workflow-agent"), 0, -1); err != nil {
				t.Fatal(err) // whole checks the owner
			}
			b.whole(t, "v1.0.0", "")
		})
	}
}
