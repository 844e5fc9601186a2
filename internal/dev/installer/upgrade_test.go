package installer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestUpgrade(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	for _, version := range []string{"v1.0.0", "v1.1.0", "v1.2.0"} {
		m.release(t, version)
	}
	inShells(t, func(t *testing.T, sh shell) {
		b := newBox(t, m, sh)
		config := filepath.Join(b.root(), "pulumi-workflow-agent.yaml")
		b.want(t, 0, []string{"Installed v1.0.0"}, "--version", "v1.0.0")
		writeFile(t, config, []byte("token: mine\n"), 0o600)
		b.want(t, 0, []string{"Upgraded from v1.0.0 to v1.1.0"}, "--version", "v1.1.0")
		b.whole(t, "v1.1.0", "v1.0.0")
		// The same again mends what is broken and forgets no way back.
		broken := filepath.Join(b.root(), "versions", "v1.1.0", "workflow-runner")
		writeFile(t, broken, []byte("#!/bin/sh\necho broken\n"), 0o700)
		if err := os.RemoveAll(filepath.Join(b.root(), "versions", "v1.1.0", "man")); err != nil {
			t.Fatal(err)
		}
		b.want(t, 0, []string{"v1.1.0 was installed"}, "--version", "v1.1.0")
		b.whole(t, "v1.1.0", "v1.0.0")
		if len(names(t, filepath.Join(b.root(), "versions", "v1.1.0", "man"))) != 1 {
			t.Error("the manual did not come back")
		}
		b.want(t, 0, []string{"Upgraded from v1.1.0 to v1.2.0"}, "--version", "v1.2.0")
		b.whole(t, "v1.2.0", "v1.1.0")
		if text, err := os.ReadFile(config); err != nil || string(text) != "token: mine\n" {
			t.Errorf("the configuration is %q (%v)", text, err)
		}

		// An older one only if somebody says so.
		old := newMirror(t)
		old.newest(t, "v1.1.9")
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

// The order of semver.org, each before the next, decides what is a downgrade.
func TestVersionOrder(t *testing.T) {
	t.Parallel()
	order := []string{
		"v1.0.0-alpha", "v1.0.0-alpha.1", "v1.0.0-alpha.beta", "v1.0.0-beta", "v1.0.0-beta.2", "v1.0.0-beta.11", "v1.0.0-rc.1", "v1.0.0",
		"v1.0.1", "v1.2.0", "v1.10.0", "v9.0.0", "v10.0.0-rc.1", "v10.0.0",
	}
	text := string(source(t))
	begin := strings.Index(text, "older() {")
	end := strings.Index(text[begin:], "\n}\n")
	for i := range order {
		var script strings.Builder
		script.WriteString(text[begin : begin+end+3])
		for _, other := range order {
			script.WriteString("if older " + order[i] + " " + other + "; then echo 1; else echo 0; fi\n")
		}
		cmd := newBox(t, nil, dash(t)).sh
		out := runScript(t, cmd, script.String())
		for j, got := range strings.Fields(out) {
			if (got == "1") != (i < j) {
				t.Errorf("older %s %s: %s", order[i], order[j], got)
			}
		}
		if n := len(strings.Fields(out)); n != len(order) {
			t.Fatalf("%d answers: %s", n, out)
		}
	}
}

// flat makes an installation as older installers do it.
func flat(t *testing.T, b *box) (config string) {
	t.Helper()
	for _, m := range members(t, "v0.9.0") {
		if m.link == "" && !strings.Contains(m.name, "/") {
			writeFile(t, filepath.Join(b.root(), m.name), m.data, 0o755)
		}
	}
	if err := os.Symlink("customer-managed-workflow-agent", filepath.Join(b.root(), "customer-managed-deployment-agent")); err != nil {
		t.Fatal(err)
	}
	config = filepath.Join(b.root(), "pulumi-deployment-agent.yaml")
	writeFile(t, config, []byte("token: mine\n"), 0o600)
	return config
}

func TestFlatUpgrade(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	m.newest(t, "v1.0.0")
	inShells(t, func(t *testing.T, sh shell) {
		b := newBox(t, m, sh)
		config := flat(t, b)
		b.want(t, 0, []string{"Upgraded the agent in " + b.root() + " to v1.0.0"})
		b.whole(t, "v1.0.0", "v0.0.0-flat")
		if text, err := os.ReadFile(config); err != nil || string(text) != "token: mine\n" {
			t.Errorf("the configuration is %q (%v)", text, err)
		}
	})
}

func TestService(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	for _, version := range []string{"v1.0.0", "v1.1.0", "v1.2.0"} {
		m.release(t, version)
	}
	inShells(t, func(t *testing.T, sh shell) {
		b := newBox(t, m, sh)
		b.before = mac
		b.want(t, 0, []string{"Next: customer-managed-workflow-agent configure", "service start --user"}, "--version=1.0.0", "--process", "--docker")
		if calls := b.calls(t); !strings.Contains(calls, "v1.0.0 service install --user --docker --process\n") || strings.Contains(calls, "restart") {
			t.Errorf("a new installation called\n%s", calls)
		}
		b.want(t, 0, nil, "--version=1.1.0")
		if calls := b.calls(t); !strings.Contains(calls, "v1.1.0 service install --user\n") || strings.Contains(calls, "restart") {
			t.Errorf("an upgrade of a stopped service called\n%s", calls)
		}
		writeFile(t, filepath.Join(b.fake, "state"), []byte("0"), 0o600)
		b.want(t, 0, []string{"restarted with v1.2.0"}, "--version=1.2.0")
		if calls := b.calls(t); !strings.Contains(calls, "v1.2.0 service install --user\nv1.2.0 service restart --user\n") {
			t.Errorf("an upgrade of a running service called\n%s", calls)
		}
		b.want(t, 0, []string{"--no-service"}, "--version=1.2.0", "--no-service")
		if calls := b.calls(t); strings.Contains(calls, "service") {
			t.Errorf("--no-service called\n%s", calls)
		}

		// One that does not start is taken back.
		writeFile(t, filepath.Join(b.fake, "broken-v1.1.0"), nil, 0o600)
		b.want(t, 1, []string{"does not start with v1.1.0: it does not start", "runs with v1.2.0 again"}, "--version=1.1.0")
		if got := b.installed(t); got != "v1.2.0" {
			t.Errorf("%s is installed", got)
		}
		if calls := b.calls(t); !strings.HasSuffix(calls[:strings.LastIndex(calls, "v1.2.0 service restart")], "v1.2.0 service install --user\n") {
			t.Errorf("taking it back called\n%s", calls)
		}

		// The programs are there, the service is not: that is said, and a failure.
		writeFile(t, filepath.Join(b.fake, "noservice"), nil, 0o600)
		b.want(t, 1, []string{"v1.2.0 is installed, but its service is not: there is no group docker"}, "--version=1.2.0", "--docker")
		b.whole(t, "v1.2.0", "v1.1.0")
	})
}

// Agents that do not run on this machine do not replace one that does.
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
	if err := os.Remove(mute); err != nil {
		t.Fatal(err)
	}
	b.whole(t, "v1.0.0", "")
}

// Two at once: one waits for nobody and says so. A lock of a dead one does not count.
func TestLock(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	m.newest(t, "v1.0.0")
	b := newBox(t, m, dash(t))
	b.want(t, 0, nil)
	lock := filepath.Join(b.root(), "versions", ".lock")
	if err := os.Symlink(strconv.Itoa(os.Getpid()), lock); err != nil {
		t.Fatal(err)
	}
	b.want(t, 1, []string{"process " + strconv.Itoa(os.Getpid()) + " is installing", lock})
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("999999999", lock); err != nil {
		t.Fatal(err)
	}
	b.want(t, 0, nil)
	b.whole(t, "v1.0.0", "")
}

// An update of the agent's own is left to end; one that did not end does not take the
// new version back. Versions that a process runs, or that worked last, stay.
func TestBesideUpdates(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	for _, version := range []string{"v1.0.0", "v1.1.0", "v1.2.0", "v1.3.0", "v1.4.0"} {
		m.release(t, version)
	}
	b := newBox(t, m, dash(t))
	b.want(t, 0, nil, "--version=1.0.0")
	lock, err := os.OpenFile(filepath.Join(b.root(), ".update.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("flock"); err == nil {
		b.want(t, 1, []string{"is updating itself"}, "--version=1.1.0")
		b.whole(t, "v1.0.0", "")
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(b.root(), "update.json")
	writeFile(t, journal, []byte("{}"), 0o600)
	if err := os.Symlink("versions/v1.0.0", filepath.Join(b.root(), "proven")); err != nil {
		t.Fatal(err)
	}
	b.want(t, 0, nil, "--version=1.1.0")
	if _, err := os.Stat(journal); !os.IsNotExist(err) {
		t.Errorf("the journal of the update is there: %v", err)
	}
	// A copy of a program that waits.
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	job := filepath.Join(b.root(), "versions", "v1.1.0", "job")
	writeFile(t, job, text, 0o755)
	running := exec.CommandContext(t.Context(), job, "600")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"1.2.0", "1.3.0", "1.4.0"} {
		b.want(t, 0, nil, "--version="+version)
	}
	want := []string{"v1.0.0", "v1.1.0", "v1.3.0", "v1.4.0"}
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		if left := names(t, filepath.Join(b.root(), "versions")); !slices.Equal(left, want) {
			t.Errorf("versions/ has %q, want %q", left, want)
		}
	}
	b.before, b.path = mac, []string{noSleep(t)} // a manager, and no patience
	writeFile(t, filepath.Join(b.fake, "state"), []byte("0"), 0o600)
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		b.calls(t)
		b.want(t, 1, []string{"still run programs", "drain --wait", "Nothing was removed"}, "--uninstall")
		if calls := b.calls(t); !strings.HasSuffix(calls, "service stop --user\nv1.4.0 service start --user\n") {
			t.Errorf("it called\n%s", calls)
		}
	}
	if err := errors.Join(running.Process.Kill(), ignoreExit(running.Wait())); err != nil {
		t.Fatal(err)
	}
	b.want(t, 0, nil, "--uninstall")
	if _, err := os.Lstat(b.root()); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", b.root(), err)
	}
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	m.newest(t, "v1.0.0")
	inShells(t, func(t *testing.T, sh shell) {
		b := newBox(t, m, sh)
		b.before = mac
		b.want(t, 0, []string{"There is no agent in " + b.root()}, "--uninstall")
		b.nothing(t)
		b.want(t, 0, nil)
		config := filepath.Join(b.root(), "pulumi-workflow-agent.yaml")
		state := filepath.Join(b.home, ".local", "state", "workflow-agent", "journal")
		other := filepath.Join(b.root(), "notes of mine")
		for _, file := range []string{config, state, other} {
			writeFile(t, file, []byte("mine"), 0o600)
		}
		b.calls(t)
		b.want(t, 0, []string{"Removed the service", "Removed the agent from " + b.root(), "stay", config, filepath.Dir(state)}, "--uninstall")
		if calls := b.calls(t); !strings.Contains(calls, "service uninstall --user\n") {
			t.Errorf("it called\n%s", calls)
		}
		if left := names(t, b.root()); !slices.Equal(left, []string{"notes of mine", "pulumi-workflow-agent.yaml"}) {
			t.Errorf("%q are left", left)
		}
		// It can be installed over what it left, and removed with it.
		b.want(t, 0, []string{"Installed v1.0.0"})
		b.whole(t, "v1.0.0", "")
		writeFile(t, filepath.Join(b.fake, "report"), []byte("State READY\nJobs:\nDEPLOYMENT\n"), 0o600)
		b.want(t, 1, []string{"drain --wait"}, "--uninstall", "--purge")
		b.whole(t, "v1.0.0", "")
		if err := os.Remove(filepath.Join(b.fake, "report")); err != nil {
			t.Fatal(err)
		}
		b.want(t, 0, []string{"Removed configuration and state"}, "--uninstall", "--purge")
		if left := names(t, b.root()); !slices.Equal(left, []string{"notes of mine"}) {
			t.Errorf("%q are left", left)
		}
		if _, err := os.Stat(filepath.Dir(state)); !os.IsNotExist(err) {
			t.Errorf("the state is left: %v", err)
		}
	})
}
