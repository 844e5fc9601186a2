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

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// pingPatience is how long an engine may take to answer a ping.
const pingPatience = 30 * time.Second

// Engine is a Docker Engine.
type Engine struct {
	// Host is the value for DOCKER_HOST.
	Host string
	// BridgeIP is the address of this machine on the engine's default bridge,
	// under which containers reach what listens on it; the zero value if there
	// is no such bridge.
	BridgeIP netip.Addr

	stop    func() error
	private daemon // nil if it was found running
}

// daemon is the process of a private engine.
type daemon interface {
	end(sig syscall.Signal, patience time.Duration) error
	run(ctx context.Context) error
}

var errNotOurs = errors.New("only a private Docker Engine can be ended and started")

// FindEngine returns the engine that already runs on this machine: the one of
// DOCKER_HOST, or the one on the usual socket. Its containers and images are not
// ours; stopping it does nothing.
func FindEngine(ctx context.Context) (*Engine, error) {
	docker, err := client.New(client.FromEnv)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Docker Engine: %w", err)
	}
	defer func() { _ = docker.Close() }()
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	if _, err := docker.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		// The client repeats the address and gives advice; the cause says it all.
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("no Docker Engine answers at %s: %w", docker.DaemonHost(), err)
	}
	engine := &Engine{Host: docker.DaemonHost(), stop: func() error { return nil }}
	bridge, err := docker.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) { // An engine can be told to have none.
		return engine, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking the Docker Engine for its bridge: %w", err)
	}
	for _, config := range bridge.Network.IPAM.Config {
		if config.Gateway.Is4() {
			engine.BridgeIP = config.Gateway
		}
	}
	return engine, nil
}

// EngineAvailable says whether tests can have a Docker Engine on this machine,
// and why not: either DOCKER_HOST names one that answers, or a private one can
// be started.
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

// PrivateEngineAvailable says whether [StartEngine] can work on this machine,
// and why not.
func PrivateEngineAvailable() (reason string, ok bool) {
	if runtime.GOOS != "linux" {
		return "a private Docker Engine needs Linux", false
	}
	if os.Geteuid() != 0 {
		return "a private Docker Engine needs root", false
	}
	for _, name := range []string{"dockerd", "containerd", "ip"} {
		if _, err := findProgram(name); err != nil {
			return fmt.Sprintf("a private Docker Engine needs %s (Debian's docker.io and iproute2)", name), false
		}
	}
	return "", true
}

// NeedEngine returns an engine for tests: the one that DOCKER_HOST names, or a
// private one that keeps everything under dir. The caller stops it.
func NeedEngine(ctx context.Context, dir string) (*Engine, error) {
	if os.Getenv("DOCKER_HOST") != "" {
		return FindEngine(ctx)
	}
	return StartEngine(ctx, dir)
}

// Client returns a client for the engine. The caller closes it.
func (e *Engine) Client() (*client.Client, error) {
	docker, err := client.New(client.WithHost(e.Host))
	if err != nil {
		return nil, fmt.Errorf("connecting to the Docker Engine: %w", err)
	}
	return docker, nil
}

// Stop ends a private engine and removes all that it left: containers, mounts,
// the bridge, files. An engine that was found running is left as it is.
func (e *Engine) Stop() error { return e.stop() }

// Kill ends the daemon of a private engine without a chance to clean up, as a
// crash does. The processes of containers live on until it is started again.
func (e *Engine) Kill() error {
	if e.private == nil {
		return errNotOurs
	}
	return e.private.end(syscall.SIGKILL, stopPatience)
}

// Shutdown ends the daemon of a private engine in order, as its service manager
// does, and waits for that up to patience.
func (e *Engine) Shutdown(patience time.Duration) error {
	if e.private == nil {
		return errNotOurs
	}
	return e.private.end(syscall.SIGTERM, patience)
}

// Restart starts the daemon of a private engine again, after it ended.
func (e *Engine) Restart(ctx context.Context) error {
	if e.private == nil {
		return errNotOurs
	}
	return e.private.run(ctx)
}

// Volumes returns the names of the engine's volumes that carry a label, which is
// a NAME or a NAME=VALUE.
func (e *Engine) Volumes(ctx context.Context, label string) ([]string, error) {
	docker, err := e.Client()
	if err != nil {
		return nil, err
	}
	defer func() { _ = docker.Close() }()
	list, err := docker.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		return nil, fmt.Errorf("listing the Docker Engine's volumes: %w", err)
	}
	var names []string
	for _, volume := range list.Items {
		names = append(names, volume.Name)
	}
	return names, nil
}

// RemoveVolumes removes volumes by name, those that nothing uses.
func (e *Engine) RemoveVolumes(ctx context.Context, names []string) error {
	docker, err := e.Client()
	if err != nil {
		return err
	}
	defer func() { _ = docker.Close() }()
	var errs []error
	for _, name := range names {
		if _, err := docker.VolumeRemove(ctx, name, client.VolumeRemoveOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("removing the Docker Engine's volume %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// SharesHostNetwork says whether a container on the host's network can reach
// what listens on this machine's loopback, and why not.
func (e *Engine) SharesHostNetwork(ctx context.Context) (reason string, ok bool) {
	docker, err := e.Client()
	if err != nil {
		return err.Error(), false
	}
	defer func() { _ = docker.Close() }()
	info, err := docker.Info(ctx, client.InfoOptions{})
	if err != nil {
		return fmt.Sprintf("asking the Docker Engine about itself: %v", err), false
	}
	hostname, err := os.Hostname()
	switch {
	case err != nil:
		return err.Error(), false
	case info.Info.Name != hostname:
		return fmt.Sprintf("the Docker Engine runs on another machine (%s)", info.Info.Name), false
	case slices.Contains(info.Info.SecurityOptions, "name=rootless"):
		return "a rootless Docker Engine has a loopback of its own", false
	}
	return "", true
}
