package runners

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// firewall limits what packets from a bridge reach: of this machine only one port, and neither each
// other nor a metadata service of a cloud. The rules are in the table mangle, before any translation
// of addresses, so they also cover the published ports of other containers. They stay when the server
// stops, because jobs continue.
//
// Connections to other ports of this machine are refused, so that a job fails at once. Only the table
// filter can refuse, so mangle marks their packets. The table security, which is behind filter, drops
// the packets in case another program has removed the rule in filter, or the mark. If the kernel lacks
// what that needs, such as the table security, mangle drops the packets, and connections time out.
type firewall struct {
	bridge  string
	gateway netip.Addr   // address of the bridge
	subnet  netip.Prefix // of the bridge
	chain   string
	only    netip.Addr // address of this machine with the port; zero means all its addresses
	port    string

	cannotRefuse func(error) // called with the reason each time connections cannot be refused
}

// firewallTime bounds one change of the rules.
const firewallTime = 20 * time.Second

// standing returns an error if the bridge no longer exists. "docker network prune", for example,
// removes it.
func (f *firewall) standing() error {
	gone := errors.New("the network of the built-in runners was removed or changed: its bridge " + f.bridge + " with the address " + f.gateway.String() + " is missing")
	bridge, err := net.InterfaceByName(f.bridge)
	if err != nil {
		return gone
	}
	addresses, err := bridge.Addrs()
	if err != nil {
		return fmt.Errorf("reading the addresses of the bridge %s: %w", f.bridge, err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == f.gateway {
			return nil
		}
	}
	return gone
}

// bridgeFilter tells whether packets between the containers of a bridge pass the packet filter.
// Docker sets it, but other programs reset it.
const bridgeFilter = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// install puts the rules in place. It may be called repeatedly.
func (f *firewall) install(ctx context.Context) error {
	if value, err := os.ReadFile(bridgeFilter); err != nil || string(bytes.TrimSpace(value)) != "1" {
		return errors.New("limiting what jobs of the built-in runners reach: jobs could reach each other: run modprobe br_netfilter && sysctl net.bridge.bridge-nf-call-iptables=1")
	}
	return f.apply(ctx)
}

// apply changes first the tables that refuse and drop, so that no step opens a port.
func (f *firewall) apply(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firewallTime)
	defer cancel()
	err := f.replace(ctx, f.refusing(), [][2]string{{"security", "INPUT"}, {"security", "FORWARD"}, {"filter", "INPUT"}, {"filter", "FORWARD"}})
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		f.cannotRefuse(err)
	}
	return f.replace(ctx, f.choosing(err == nil), [][2]string{{"mangle", "PREROUTING"}})
}

// replace gives rules to iptables-restore, and adds missing jumps to them from tables and chains that
// packets of the bridge pass.
func (f *firewall) replace(ctx context.Context, rules []string, jumps [][2]string) error {
	if err := filter(ctx, strings.Join(append(rules, ""), "\n"), "iptables-restore", "--noflush", "--wait", "10"); err != nil {
		return err
	}
	for _, jump := range jumps {
		rule := []string{jump[1], "-i", f.bridge, "-j", f.chain}
		if filter(ctx, "", "iptables", append([]string{"--wait", "10", "-t", jump[0], "-C"}, rule...)...) == nil {
			continue
		}
		if err := filter(ctx, "", "iptables", append([]string{"--wait", "10", "-t", jump[0], "-I"}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}

// refused is the mark of packets of connections that are refused.
const refused = "0x800000/0x800000"

// refusing returns the input of iptables-restore for the tables behind mangle. It replaces each chain
// in one step. Packets to this machine are dropped even if another program has changed their marks.
func (f *firewall) refusing() []string {
	return []string{
		"*security", ":" + f.chain + " - [0:0]",
		"-A " + f.chain + " -m mark --mark " + refused + " -j DROP",
		"-A " + f.chain + " -p tcp -m addrtype --dst-type LOCAL -m conntrack ! --ctorigdstport " + f.port + " -j DROP",
		"COMMIT",
		"*filter", ":" + f.chain + " - [0:0]",
		"-A " + f.chain + " -p tcp -m mark --mark " + refused + " -j REJECT --reject-with tcp-reset",
		"COMMIT",
	}
}

// choosing returns the input for the table mangle, which drops packets, and if refuse is true, marks
// those of connections to refuse. Marked packets skip the rules of other programs in PREROUTING, which
// could change the mark. Name servers on link-local addresses stay reachable, because some clouds have
// no others.
func (f *firewall) choosing(refuse bool) []string {
	target := "-m addrtype --dst-type LOCAL"
	if f.only.IsValid() {
		target = "-d " + f.only.String() + "/32"
	}
	lines := []string{
		"*mangle",
		":" + f.chain + " - [0:0]",
		"-A " + f.chain + " -p tcp " + target + " -m tcp --dport " + f.port + " -j RETURN",
	}
	if refuse {
		lines = append(lines,
			"-A "+f.chain+" -p tcp -m addrtype --dst-type LOCAL -j MARK --set-xmark "+refused,
			"-A "+f.chain+" -p tcp -m mark --mark "+refused+" -j ACCEPT")
	}
	lines = append(lines,
		"-A "+f.chain+" -m addrtype --dst-type LOCAL -j DROP",
		"-A "+f.chain+" -m addrtype --dst-type BROADCAST -j DROP",
		"-A "+f.chain+" -m addrtype --dst-type MULTICAST -j DROP",
		"-A "+f.chain+" -d "+f.subnet.String()+" -j DROP")
	for _, metadata := range []string{"169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32"} {
		for _, protocol := range []string{"udp", "tcp"} {
			lines = append(lines, "-A "+f.chain+" -d "+metadata+" -p "+protocol+" -m "+protocol+" --dport 53 -j RETURN")
		}
		lines = append(lines, "-A "+f.chain+" -d "+metadata+" -j DROP")
	}
	return append(lines, "COMMIT")
}

func filter(ctx context.Context, input, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("limiting what jobs of the built-in runners reach: %s: %w %s", program, err, firstLine(out.Bytes()))
	}
	return nil
}
