package health

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// onlyKnownHosts protects a server on loopback from DNS rebinding by serving only requests for one
// of the server's own names. Otherwise, a website could make its name resolve to this address, and
// its pages in a local user's browser could read the responses. Such requests carry the website's
// name. A server on a network is not protected, because clients reach it by names that only the
// network's administrator knows.
//
// Requests for an IP address are accepted, because they involve no name resolution. Names below
// .svc are names of Kubernetes services, whose port may be forwarded to this machine; no public
// name ends in .svc.
func onlyKnownHosts(listens net.Addr, addr string, handler http.Handler) http.Handler {
	if at, err := netip.ParseAddrPort(listens.String()); err == nil && !at.Addr().Unmap().IsLoopback() {
		return handler
	}
	known := []string{"", "localhost", hostOf(addr)}
	if name, err := os.Hostname(); err == nil {
		known = append(known, strings.ToLower(name))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		_, err := netip.ParseAddr(host)
		if err != nil && !slices.Contains(known, host) && !hasSuffix(host, ".localhost", ".svc", ".svc.cluster.local") {
			http.Error(w, "This server does not have the name of the request. Use its address, or set http_server_address to the name.", http.StatusMisdirectedRequest)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

func hasSuffix(s string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(s, suffix) })
}
