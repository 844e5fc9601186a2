package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"
)

const (
	machineBoot     = 3 * time.Minute
	machineStop     = 2 * time.Minute
	machinePackages = "systemd,systemd-sysv,dbus,libpam-systemd,procps,ca-certificates,git,curl,init-system-helpers,rpm,dnf"
)

// Machine is a Debian system with a real systemd as its first process, in a container that shares
// this machine's network. A temporary overlay holds the machine's changes to files.
type Machine struct {
	Root string // path of the machine's files on the host

	name    string
	dir     string
	binds   []Bind
	process *child.Process
	leader  int // pid of its first process, on the host
}

// MachineAvailable reports whether [BootMachine] works on this host, and if not, why.
func MachineAvailable() (reason string, ok bool) {
	switch {
	case runtime.GOOS != "linux":
		return "a machine with systemd requires Linux", false
	case os.Geteuid() != 0:
		return "a machine with systemd requires root", false
	}
	for _, name := range []string{"systemd-nspawn", "mmdebstrap", "nsenter", "unshare"} {
		if _, err := child.Find(name); err != nil {
			return fmt.Sprintf("a machine with systemd requires %s (Debian's systemd-container, mmdebstrap and util-linux)", name), false
		}
	}
	return "", true
}

// machineRoot returns the machine's files from the cache, or creates them from Debian packages,
// which takes minutes. The cached files are replaced each month.
func machineRoot(ctx context.Context, progress io.Writer) (string, error) {
	var key fingerprint
	key.add("packages", machinePackages)
	key.add("month", time.Now().Format("2006-01"))
	dir, err := cached(ctx, "machine", key.sum(), func(dir string) error {
		fmt.Fprintln(progress, "creating a Debian system from packages (first time only, about 1 to 4 min)")
		mirror, suite, err := debianSource("/etc/apt/sources.list.d/debian.sources")
		if err != nil {
			return err
		}
		cmd := child.Command(ctx, "mmdebstrap", "--quiet", "--variant=apt", "--include="+machinePackages,
			"--dpkgopt=force-unsafe-io", `--aptopt=APT::Install-Recommends "false"`,
			suite, filepath.Join(dir, "root"), mirror)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mmdebstrap: %w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	})
	return filepath.Join(dir, "root"), err
}

func debianSource(path string) (mirror, suite string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", "", fmt.Errorf("reading the host's package sources (Debian's in deb822 form): %w", err)
	}
	defer func() { _ = file.Close() }()
	for scanner := bufio.NewScanner(file); scanner.Scan() && (mirror == "" || suite == ""); {
		name, value, _ := strings.Cut(scanner.Text(), ":")
		words := strings.Fields(value)
		switch {
		case len(words) == 0:
		case name == "URIs" && mirror == "":
			mirror = words[0]
		case name == "Suites" && suite == "":
			suite = words[0]
		}
	}
	if mirror == "" || suite == "" {
		return "", "", fmt.Errorf("%s names no mirror and suite", path)
	}
	return mirror, suite, nil
}

// Bind is a file or directory that the host shares with the machine.
type Bind struct {
	Host, Inside string
	ReadOnly     bool
}

// BootMachine boots a machine with its files under dir. Close shuts the machine down and removes
// the files.
func BootMachine(ctx context.Context, dir string, progress io.Writer, binds ...Bind) (*Machine, error) {
	if reason, ok := MachineAvailable(); !ok {
		return nil, errors.New(reason)
	}
	base, err := machineRoot(ctx, progress)
	if err != nil {
		return nil, fmt.Errorf("creating a machine: %w", err)
	}
	m := &Machine{dir: dir, Root: filepath.Join(dir, "root"), name: "wflab" + strconv.Itoa(os.Getpid()) + "-" + filepath.Base(dir), binds: binds}
	for _, sub := range []string{"root", "upper", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("creating a machine: %w", err)
		}
	}
	overlay := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, filepath.Join(dir, "upper"), filepath.Join(dir, "work"))
	if err := mountOverlay(m.Root, overlay); err != nil {
		return nil, fmt.Errorf("mounting the files of a machine: %w", err)
	}
	if err := m.Boot(ctx); err != nil {
		return nil, errors.Join(err, m.Close()) //nolint:contextcheck // Cleaning up must work after the caller's context was canceled.
	}
	return m, nil
}

// PowerOff shuts the machine down cleanly. Boot starts it again.
func (m *Machine) PowerOff() error {
	return m.process.Stop(syscall.SIGTERM, machineStop)
}

// CutPower kills all processes of the machine at once. Unsynced writes are not lost, because the
// host keeps running. Boot starts the machine again.
func (m *Machine) CutPower(ctx context.Context) error {
	// Stop all processes first, so that none reacts when another one is killed.
	if _, err := m.Run(ctx, "kill -s STOP -- -1"); err != nil {
		return err
	}
	if err := syscall.Kill(m.leader, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the first process of a machine: %w", err)
	}
	select {
	case <-m.process.Done():
		return nil
	case <-time.After(machineStop):
		return fmt.Errorf("the machine did not stop within %s after its first process was killed", machineStop)
	}
}

// Boot starts a machine that is off.
func (m *Machine) Boot(ctx context.Context) error {
	if err := m.boot(ctx); err != nil {
		return fmt.Errorf("booting a machine: %w", err)
	}
	return nil
}

// boot starts systemd. The script first creates control groups for the machine, because two
// machines would otherwise share this process's groups. It also mounts a /run that systemd-nspawn
// can clean, and releases the mounts of this host's containers: their engine could not remove them while
// a copy of their mounts exists here.
func (m *Machine) boot(ctx context.Context) error {
	const script = `set -eu
for mount in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
  if [ -d "$mount" ]; then mkdir -p "$mount/$NAME"; echo $$ >"$mount/$NAME/cgroup.procs"; fi
done
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then mkdir -p "/sys/fs/cgroup/$NAME"; echo $$ >"/sys/fs/cgroup/$NAME/cgroup.procs"; fi
exec unshare -m --propagation slave sh -c 'mount -t tmpfs tmpfs /run
{ findmnt -rno TARGET -t overlay,nsfs; findmnt -rno TARGET -S shm; } | while read -r mount; do
  case "$ROOT/" in "${mount%/}"/*) ;; *) umount -l "$mount" 2>/dev/null || true ;; esac
done
exec systemd-nspawn "$@"' sh \
  --boot --quiet --directory="$ROOT" --machine="$NAME" --register=no --keep-unit --console=pipe \
  --link-journal=no --resolv-conf=copy-host --kill-signal=SIGRTMIN+4 "$@"`
	args := []string{"-c", script, "boot"}
	for _, b := range m.binds {
		flag := "--bind="
		if b.ReadOnly {
			flag = "--bind-ro="
		}
		args = append(args, flag+b.Host+":"+b.Inside)
	}
	console := filepath.Join(m.dir, "console.log")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", args...)
	cmd.Env = append(os.Environ(), "PATH="+child.Path(), "NAME="+m.name, "ROOT="+m.Root)
	process, err := child.StartCommand(cmd, console)
	if err != nil {
		return err
	}
	m.process, m.leader = process, 0
	ctx, cancel := context.WithTimeout(ctx, machineBoot)
	defer cancel()
	err = process.Await(ctx, 100*time.Millisecond, func() (bool, error) {
		if m.leader == 0 {
			m.leader = firstProcess(process.Pid())
		}
		if m.leader == 0 {
			return false, nil
		}
		state, _ := m.Run(ctx, "systemctl is-system-running") // fails until systemd runs
		state = strings.TrimSpace(state)
		return state == "running" || state == "degraded", nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the machine was not ready within %s\n%s", machineBoot, child.Tail(console, tailLines))
	}
	return err
}

// firstProcess returns the descendant of pid that is the first process of a PID namespace one level
// down, or 0.
func firstProcess(pid int) int {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	for field := range strings.FieldsSeq(string(children)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if ids := strings.Fields(ids); len(ids) > 1 && ids[len(ids)-1] == "1" {
					return child
				}
			}
		}
		if found := firstProcess(child); found != 0 {
			return found
		}
	}
	return 0
}

// Run runs a script as root in the machine and returns its output. The error of a failed script is
// a [ScriptError].
func (m *Machine) Run(ctx context.Context, script string) (string, error) {
	cmd := child.Command(ctx, "nsenter", "-t", strconv.Itoa(m.leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--",
		"/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "/bin/sh", "-c", script)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), &ScriptError{Script: script, Code: exit.ExitCode(), Output: string(out)}
	}
	return string(out), err
}

// ScriptError reports a failed script.
type ScriptError struct {
	Script string
	Code   int
	Output string
}

// Error returns the script, its exit code and its output.
func (e *ScriptError) Error() string {
	return fmt.Sprintf("%s: exit code %d\n%s", e.Script, e.Code, e.Output)
}

// Close shuts the machine down and removes its files.
func (m *Machine) Close() error {
	var errs []error
	if m.process != nil {
		errs = append(errs, m.process.Stop(syscall.SIGTERM, machineStop))
	}
	errs = append(errs, unmount(m.Root), os.RemoveAll(m.dir))
	for _, mount := range []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		removeGroups(filepath.Join(mount, m.name))
	}
	return errors.Join(errs...)
}

// removeGroups removes a tree of empty control groups. The machine's systemd removes the groups
// that it still uses.
func removeGroups(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeGroups(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir)
}
