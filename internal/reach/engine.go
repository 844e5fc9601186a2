package reach

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Gateway is a placeholder in an address. It stands for the default gateway, which for a container
// is its host.
const Gateway = "gateway"

const engineTime = 3 * time.Second

// Engines returns those of the addresses (unix:///path or tcp://host:port) at which a container
// engine accepts calls from any client, without a certificate.
func Engines(ctx context.Context, addresses []string) []string {
	found := make([]bool, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() { found[i] = engineAnswers(ctx, address) })
	}
	asking.Wait()
	var out []string
	for i, address := range addresses {
		if found[i] && !slices.Contains(out, address) {
			out = append(out, address)
		}
	}
	return out
}

func engineAnswers(ctx context.Context, address string) bool {
	network, at, ok := strings.Cut(address, "://")
	if host, port, err := net.SplitHostPort(at); err == nil && host == Gateway {
		gateway, known := defaultGateway()
		if !known {
			return false
		}
		at = net.JoinHostPort(gateway, port)
	}
	if !ok || network != "unix" && network != "tcp" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, engineTime)
	defer cancel()
	return pings(ctx, "http", network, at) || network == "tcp" && pings(ctx, "https", network, at)
}

// pings reports whether a container engine responds to a ping at the address.
func pings(ctx context.Context, scheme, network, at string) bool {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, at)
		},
		// The engine's identity does not matter, because it receives only this ping.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://engine/_ping", http.NoBody)
	if err != nil {
		return false
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK && response.Header.Get("Api-Version") != ""
}

// defaultGateway returns the default gateway in the kernel's routing table, on Linux.
func defaultGateway() (string, bool) {
	table, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return "", false
	}
	return gatewayOf(string(table))
}

func gatewayOf(table string) (string, bool) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "00000000" {
			continue
		}
		b, err := hex.DecodeString(f[2])
		if err != nil || len(b) != 4 {
			continue
		}
		// The table is in the host's byte order, which is little-endian on all supported platforms.
		slices.Reverse(b)
		if addr, ok := netip.AddrFromSlice(b); ok && !addr.IsUnspecified() {
			return addr.String(), true
		}
	}
	return "", false
}
