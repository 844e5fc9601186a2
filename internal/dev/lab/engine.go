package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

const pingPatience = 30 * time.Second

// Engine is a Docker Engine for tests: a private one, or one that was already running.
type Engine struct {
	// Host is the engine's address, in the form of DOCKER_HOST.
	Host string
	// BridgeIP is the address of this machine on the engine's default bridge, where containers
	// reach this machine's listeners. It is the zero value if no such bridge exists.
	BridgeIP netip.Addr

	stop    func() error
	private daemon // nil for an engine that was already running
}

type daemon interface {
	end(sig syscall.Signal, patience time.Duration) error
	run(ctx context.Context) error
}

var errNotOurs = errors.New("only a private Docker Engine can be stopped and started")

// FindEngine returns the engine that DOCKER_HOST names, or the engine on the default socket. The
// lab does not own this engine's containers and images, and Stop does not stop the engine.
func FindEngine(ctx context.Context) (*Engine, error) {
	docker, err := client.New(client.FromEnv)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Docker Engine: %w", err)
	}
	defer func() { _ = docker.Close() }()
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	if _, err := docker.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		// The client's error repeats the address and adds advice; the cause suffices.
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("no Docker Engine answers at %s: %w", docker.DaemonHost(), err)
	}
	engine := &Engine{Host: docker.DaemonHost(), stop: func() error { return nil }}
	bridge, err := docker.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) { // an engine can run without a default bridge
		return engine, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspecting the Docker Engine's bridge: %w", err)
	}
	for _, config := range bridge.Network.IPAM.Config {
		if config.Gateway.Is4() {
			engine.BridgeIP = config.Gateway
		}
	}
	return engine, nil
}

// EngineAvailable reports whether tests can use a Docker Engine on this machine, and if not, why.
// An engine is available if the one that DOCKER_HOST names responds, or if a private one can be
// started.
func EngineAvailable() (reason string, ok bool) {
	if os.Getenv("DOCKER_HOST") != "" {
		_, err := FindEngine(context.Background())
		if err != nil {
			return err.Error(), false
		}
		return "", true
	}
	return PrivateEngineAvailable()
}

// PrivateEngineAvailable reports whether [StartEngine] works on this machine, and if not, why.
func PrivateEngineAvailable() (reason string, ok bool) {
	if runtime.GOOS != "linux" {
		return "a private Docker Engine requires Linux", false
	}
	if os.Geteuid() != 0 {
		return "a private Docker Engine requires root", false
	}
	for _, name := range []string{"dockerd", "containerd", "ip"} {
		if _, err := child.Find(name); err != nil {
			return fmt.Sprintf("a private Docker Engine requires %s (Debian's docker.io and iproute2)", name), false
		}
	}
	return "", true
}

// NeedEngine returns an engine for tests: the engine that DOCKER_HOST names, or a private engine
// with its files under dir. The caller must call Stop.
func NeedEngine(ctx context.Context, dir string) (*Engine, error) {
	if os.Getenv("DOCKER_HOST") != "" {
		return FindEngine(ctx)
	}
	return StartEngine(ctx, dir)
}

// Client returns a client for the engine. The caller must close it.
func (e *Engine) Client() (*client.Client, error) {
	docker, err := client.New(client.WithHost(e.Host))
	if err != nil {
		return nil, fmt.Errorf("connecting to the Docker Engine: %w", err)
	}
	return docker, nil
}

// Stop stops a private engine and removes its containers, mounts, bridge and files. It does nothing
// to an engine that was already running.
func (e *Engine) Stop() error { return e.stop() }

// Kill kills the daemon of a private engine without cleaning up, like a crash. Container processes
// keep running until Restart.
func (e *Engine) Kill() error {
	if e.private == nil {
		return errNotOurs
	}
	return e.private.end(syscall.SIGKILL, child.Patience)
}

// Shutdown stops the daemon of a private engine as its service manager does, and waits at most
// patience for its exit.
func (e *Engine) Shutdown(patience time.Duration) error {
	if e.private == nil {
		return errNotOurs
	}
	return e.private.end(syscall.SIGTERM, patience)
}

// Restart starts the daemon of a private engine again after the daemon has exited.
func (e *Engine) Restart(ctx context.Context) error {
	if e.private == nil {
		return errNotOurs
	}
	return e.private.run(ctx)
}

// Volumes returns the names of the engine's volumes with the label, given as NAME or NAME=VALUE.
func (e *Engine) Volumes(ctx context.Context, label string) ([]string, error) {
	docker, err := e.Client()
	if err != nil {
		return nil, err
	}
	defer func() { _ = docker.Close() }()
	list, err := docker.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		return nil, fmt.Errorf("listing the Docker volumes: %w", err)
	}
	var names []string
	for _, volume := range list.Items {
		names = append(names, volume.Name)
	}
	return names, nil
}

// RemoveVolumes removes the named volumes that are not in use.
func (e *Engine) RemoveVolumes(ctx context.Context, names []string) error {
	docker, err := e.Client()
	if err != nil {
		return err
	}
	defer func() { _ = docker.Close() }()
	var errs []error
	for _, name := range names {
		if _, err := docker.VolumeRemove(ctx, name, client.VolumeRemoveOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("removing the Docker volume %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// SharesHostNetwork reports whether a container on the host's network reaches listeners on this
// machine's loopback interface, and if not, why.
func (e *Engine) SharesHostNetwork(ctx context.Context) (reason string, ok bool) {
	docker, err := e.Client()
	if err != nil {
		return err.Error(), false
	}
	defer func() { _ = docker.Close() }()
	info, err := docker.Info(ctx, client.InfoOptions{})
	if err != nil {
		return fmt.Sprintf("reading the Docker Engine's information: %v", err), false
	}
	hostname, err := os.Hostname()
	switch {
	case err != nil:
		return err.Error(), false
	case info.Info.Name != hostname:
		return fmt.Sprintf("the Docker Engine runs on another machine (%s)", info.Info.Name), false
	case slices.Contains(info.Info.SecurityOptions, "name=rootless"):
		return "a rootless Docker Engine has its own loopback interface", false
	}
	return "", true
}
