package docker

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/network"

	"workflowagent/internal/agent/executor"
)

// TestServerAddress checks that jobs keep their own network if they have an address for a server on
// loopback, but only if the agent's own settings name that server.
func TestServerAddress(t *testing.T) {
	e, err := New(Options{Config: Config{Network: "jobs", ServerAddress: "172.18.0.1:8800"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.network(t.Context(), nil, executor.Spec{Loopback: true, LoopbackOK: true})
	if err != nil || got != "jobs" {
		t.Errorf("the network is %q, %v, want jobs", got, err)
	}
	if got, err := e.network(t.Context(), nil, executor.Spec{Loopback: true}); err == nil {
		t.Errorf("a URL that only the job's definition contains gets the network %q", got)
	}
}

func TestForeignNetworksAreRefused(t *testing.T) {
	own := network.Inspect{Network: network.Network{
		Name: "jobs", Labels: map[string]string{labelKind: kindNetwork}, Options: map[string]string{bridgeOption: "wfr-1"},
		IPAM: network.IPAM{Config: []network.IPAMConfig{{Subnet: netip.MustParsePrefix("172.18.0.0/16"), Gateway: netip.MustParseAddr("172.18.0.1")}}},
	}}
	got, err := describeNetwork(own, "wfr-1")
	if err != nil || got.Gateway.String() != "172.18.0.1" || got.Subnet.String() != "172.18.0.0/16" {
		t.Errorf("the network is %+v, %v", got, err)
	}
	for name, change := range map[string]func(*network.Inspect){
		"another bridge": func(n *network.Inspect) { n.Options = map[string]string{bridgeOption: "br0"} },
		"no label":       func(n *network.Inspect) { n.Labels = nil },
		"IPv6":           func(n *network.Inspect) { n.EnableIPv6 = true },
	} {
		other := own
		change(&other)
		if _, err := describeNetwork(other, "wfr-1"); err == nil || !strings.Contains(err.Error(), "did not create it") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
