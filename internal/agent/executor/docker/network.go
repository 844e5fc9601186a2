package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

const (
	kindNetwork  = "network" // a network for jobs
	bridgeOption = "com.docker.network.bridge.name"
)

// Network is a bridge network for jobs.
type Network struct {
	Name    string       `json:"name"`
	Bridge  string       `json:"bridge"` // interface on the engine's host
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway"` // address of the engine's host on the network
}

// EnsureNetwork creates a bridge network, unless it exists. Containers on it cannot reach each other
// and have no IPv6. bridge is the name of the interface on the engine's host.
func (e *Executor) EnsureNetwork(ctx context.Context, name, bridge string) (Network, error) {
	engine, err := e.engine()
	if err != nil {
		return Network{}, err
	}
	found, err := engine.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) {
		no := false
		_, err = engine.NetworkCreate(ctx, name, client.NetworkCreateOptions{
			Driver: "bridge", EnableIPv6: &no,
			Options: map[string]string{bridgeOption: bridge, "com.docker.network.bridge.enable_icc": "false"},
			Labels:  map[string]string{labelKind: kindNetwork},
		})
		if err == nil || errdefs.IsConflict(err) {
			found, err = engine.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
		}
	}
	if err != nil {
		if !answered(err) {
			e.forget(engine)
			err = explain(engine.DaemonHost(), err)
		}
		return Network{}, fmt.Errorf("creating the network %s: %w", name, err)
	}
	return describeNetwork(found.Network, bridge)
}

func describeNetwork(n network.Inspect, bridge string) (Network, error) {
	if n.Labels[labelKind] != kindNetwork || n.Options[bridgeOption] != bridge || n.EnableIPv6 {
		return Network{}, fmt.Errorf("the network %s exists, but this program did not create it: remove it with docker network rm %[1]s", n.Name)
	}
	out := Network{Name: n.Name, Bridge: bridge}
	for _, config := range n.IPAM.Config {
		if config.Gateway.Is4() && config.Subnet.IsValid() {
			out.Subnet, out.Gateway = config.Subnet, config.Gateway
		}
	}
	if !out.Gateway.IsValid() {
		return Network{}, errors.New("the network " + n.Name + " has no IPv4 gateway")
	}
	return out, nil
}

// RemoveNetwork removes a network that [Executor.EnsureNetwork] created. A missing network is not an
// error.
func (e *Executor) RemoveNetwork(ctx context.Context, name string) error {
	engine, err := e.engine()
	if err != nil {
		return err
	}
	found, err := engine.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if err == nil && found.Network.Labels[labelKind] != kindNetwork {
		return fmt.Errorf("removing the network %s: this program did not create it", name)
	}
	if err == nil {
		_, err = engine.NetworkRemove(ctx, name, client.NetworkRemoveOptions{})
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing the network %s: %w", name, err)
	}
	return nil
}
