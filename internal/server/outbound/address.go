package outbound

import (
	"errors"
	"net/netip"
	"slices"
)

// errForbiddenAddress reports that a host has an address that the server must not call.
var errForbiddenAddress = errors.New("its address is link-local, multicast, unspecified or of a cloud's own service")

// cloudServices are services that clouds offer to their machines, such as those for credentials. The
// others have link-local addresses.
var cloudServices = prefixes(
	"fd00:ec2::/32",      // AWS, also of pods in EKS
	"fd20:ce::254/128",   // Google Cloud
	"168.63.129.16/32",   // Azure
	"100.100.100.200/32", // Alibaba Cloud
	"fd00:100::100:200/128",
	"192.0.0.192/32", // Oracle Cloud
	"fd00:c1::a9fe:a9fe/128",
	"fd00:42::42/128",       // Scaleway
	"fd00:a9fe:a9fe::1/128", // Akamai
)

// reserved lists the networks that are not public and that the methods of [netip.Addr] do not know.
var reserved = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4",
	// Some of these can contain an IPv4 address.
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	// allocated contains all public IPv6 addresses.
	allocated = netip.MustParsePrefix("2000::/3")
	// translated contains the IPv6 addresses that stand for IPv4 addresses in networks without IPv4
	// (NAT64, RFC 6052).
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// reached returns the address that a connection to an address reaches.
func reached(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if translated.Contains(ip) {
		bytes := ip.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return ip
}

// isPublic reports whether an address can be reached from everywhere.
func isPublic(ip netip.Addr) bool {
	ip = reached(ip)
	return (ip.Is4() || allocated.Contains(ip)) && ip.IsGlobalUnicast() && !ip.IsPrivate() && !contain(reserved, ip)
}

// forbidden reports whether an address is one that no legitimate service uses, public or internal.
func forbidden(ip netip.Addr) bool {
	ip = reached(ip)
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) ||
		contain(cloudServices, ip)
}

func contain(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// checkAddress returns an error for a forbidden address. It checks the resolved address, so that a
// name cannot hide one.
func checkAddress(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || forbidden(at.Addr()) {
		return errForbiddenAddress
	}
	return nil
}
