package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

const (
	engineStart = 3 * time.Minute
	// engineStop is the time limit for each step of stopping a private engine.
	engineStop = 2 * time.Minute
	// maxSocketPath is the longest portable path of a Unix socket.
	maxSocketPath = 103
	deepestSocket = "exec/containerd/containerd-debug.sock"
)

// The bridges of private engines are wflab0 … with the networks 172.30.100.0/24 …, so that several
// engines can run at once.
const (
	bridgePrefix  = "wflab"
	firstNetwork  = 100
	bridgeChoices = 100
	lockDir       = "/run"
)

// StartEngine starts a private Docker Engine with all of its files under dir. args are additional
// daemon arguments, such as --live-restore. The engine's only other change to the machine is a
// bridge, which Stop removes. It adds no packet filter rules and no forwarding. Containers
// therefore reach this machine, by [Engine.BridgeIP] or over the host's network, but no other host.
func StartEngine(ctx context.Context, dir string, args ...string) (*Engine, error) {
	if reason, ok := PrivateEngineAvailable(); !ok {
		return nil, errors.New(reason)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("starting a Docker Engine: %w", err)
	}
	if len(filepath.Join(dir, deepestSocket)) > maxSocketPath {
		return nil, fmt.Errorf("starting a Docker Engine: the directory %s is too long for the paths of its sockets; choose a shorter one", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("starting a Docker Engine: %w", err)
	}
	e := &privateEngine{dir: dir, args: args}
	if err := e.start(ctx); err != nil {
		//nolint:contextcheck // Cleaning up must work after the caller's context was canceled.
		return nil, errors.Join(fmt.Errorf("starting a Docker Engine: %w", err), e.stop())
	}
	return &Engine{Host: e.host(), BridgeIP: e.bridgeIP, stop: e.stop, private: e}, nil
}

// privateEngine holds the resources of a private engine, which stop cleans up.
type privateEngine struct {
	dir        string
	args       []string
	bridge     string
	freeBridge func() // releases the bridge lock
	bridgeIP   netip.Addr
	process    *child.Process
}

func (e *privateEngine) host() string { return "unix://" + filepath.Join(e.dir, "docker.sock") }

func (e *privateEngine) start(ctx context.Context) error {
	if err := e.addBridge(ctx); err != nil {
		return err
	}
	return e.run(ctx)
}

// end sends the daemon a signal and waits, at most patience, until the daemon and its containerd
// have exited. The kernel kills containerd when the daemon exits.
func (e *privateEngine) end(sig syscall.Signal, patience time.Duration) error {
	if err := e.process.Stop(sig, patience); err != nil {
		return err
	}
	pidFile := filepath.Join(e.dir, "exec", "containerd", "containerd.pid")
	pid, err := os.ReadFile(pidFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), child.Patience)
	defer cancel()
	err = child.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat"))
		// The state follows the name in parentheses: Z is a zombie.
		_, state, _ := strings.Cut(string(stat), ") ")
		return errors.Is(err, os.ErrNotExist) || strings.HasPrefix(state, "Z"), nil
	})
	if err != nil {
		return err
	}
	// If the machine's first process does not reap zombies, the next daemon would find this
	// containerd running.
	return os.Remove(pidFile)
}

func (e *privateEngine) run(ctx context.Context) error {
	daemon, err := child.Find("dockerd")
	if err != nil {
		return err
	}
	logPath := filepath.Join(e.dir, "dockerd.log")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), daemon, append([]string{
		"--host=" + e.host(),
		"--data-root=" + filepath.Join(e.dir, "data"),
		"--exec-root=" + filepath.Join(e.dir, "exec"),
		"--pidfile=" + filepath.Join(e.dir, "docker.pid"),
		"--bridge=" + e.bridge,
		"--iptables=false", "--ip-forward=false", "--ip-masq=false",
	}, e.args...)...)
	cmd.Env = append(os.Environ(), "PATH="+child.Path())
	if e.process, err = child.StartCommand(cmd, logPath); err != nil {
		return err
	}
	docker, err := client.New(client.WithHost(e.host()))
	if err != nil {
		return err
	}
	defer func() { _ = docker.Close() }()
	ctx, cancel := context.WithTimeout(ctx, engineStart)
	defer cancel()
	err = e.process.Await(ctx, 50*time.Millisecond, func() (bool, error) {
		_, err := docker.Ping(ctx, client.PingOptions{})
		return err == nil, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("dockerd did not respond within %s\n%s", engineStart, child.Tail(logPath, tailLines))
	}
	return err
}

// addBridge creates a bridge for this engine only. The engine holds a lock on its bridge, so that
// concurrent engines choose different bridges and a bridge left by a dead process is reused.
func (e *privateEngine) addBridge(ctx context.Context) error {
	for i := range bridgeChoices {
		name := fmt.Sprintf("%s%d", bridgePrefix, i)
		unlock, err := tryLock(filepath.Join(lockDir, "workflowagent-"+name+".lock"))
		if err != nil {
			return fmt.Errorf("choosing a bridge: %w", err)
		}
		if unlock == nil {
			continue
		}
		e.bridge, e.freeBridge = name, unlock
		if _, err := net.InterfaceByName(name); err == nil {
			if err := ip(ctx, "link", "delete", name); err != nil {
				return err
			}
		}
		e.bridgeIP = netip.AddrFrom4([4]byte{172, 30, byte(firstNetwork + i), 1})
		for _, args := range [][]string{
			{"link", "add", "name", name, "type", "bridge"},
			{"address", "add", e.bridgeIP.String() + "/24", "dev", name},
			{"link", "set", name, "up"},
		} {
			if err := ip(ctx, args...); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("all %d bridges for private engines are in use", bridgeChoices)
}

func (e *privateEngine) stop() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), engineStop)
	defer cancel()
	if e.process != nil {
		select {
		case <-e.process.Done(): // the daemon was killed: only a new daemon can remove its containers
			errs = append(errs, e.run(ctx))
		default:
		}
		errs = append(errs, e.removeContainers(ctx), e.process.Stop(syscall.SIGTERM, engineStop))
	}
	errs = append(errs, e.unmount())
	if e.bridge != "" {
		errs = append(errs, ip(ctx, "link", "delete", e.bridge))
		e.freeBridge()
	}
	errs = append(errs, os.RemoveAll(e.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cleaning up after a Docker Engine: %w", err)
	}
	return nil
}

// removeContainers removes containers and networks, because an engine leaves some processes and
// bridges behind when it stops.
func (e *privateEngine) removeContainers(ctx context.Context) error {
	select {
	case <-e.process.Done():
		return nil
	default:
	}
	docker, err := client.New(client.WithHost(e.host()))
	if err != nil {
		return err
	}
	defer func() { _ = docker.Close() }()
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers.Items {
		_, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // conflict: the engine is already removing the container
			errs = append(errs, err)
		}
	}
	_, err = docker.NetworkPrune(ctx, client.NetworkPruneOptions{})
	return errors.Join(append(errs, err)...)
}

// unmount removes the mounts that the engine left under its directory.
func (e *privateEngine) unmount() error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], e.dir+"/") {
			continue
		}
		if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", fields[4], err))
		}
	}
	return errors.Join(errs...)
}

func ip(ctx context.Context, args ...string) error {
	path, err := child.Find("ip")
	if err != nil {
		return err
	}
	if out, err := child.Command(ctx, path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
