// Package clientaddr determines the addresses of clients that connect through proxies. It believes only the
// proxies that the operator trusts, and only one way in which they state the address; clients can forge the others.
package clientaddr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
	realclientip "github.com/realclientip/realclientip-go"
	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
)

// Sources of a client's address.
const (
	Connection    = "connection" // the other end of the connection
	XForwardedFor = "x-forwarded-for"
	Forwarded     = "forwarded" // the header of RFC 7239
	ProxyProtocol = "proxy-protocol"
)

// Sources returns the sources in the order of the documentation.
func Sources() []string { return []string{Connection, XForwardedFor, Forwarded, ProxyProtocol} }

// unix is the entry of [Proxies] for proxies that connect to a unix socket.
const unix = "unix"

// Proxies is a list of proxies that are trusted.
type Proxies struct {
	Networks []netip.Prefix
	Unix     bool // every process that can connect to the server's unix socket
}

// UnmarshalText implements [encoding.TextUnmarshaler]. Commas separate the entries, which are addresses, networks in
// CIDR notation, or the word unix.
func (p *Proxies) UnmarshalText(text []byte) error {
	*p = Proxies{}
	for i, entry := range strings.Split(string(text), ",") {
		entry = strings.TrimSpace(entry)
		if entry == unix {
			p.Unix = true
			continue
		}
		network, err := netip.ParsePrefix(entry)
		if address, addressErr := netip.ParseAddr(entry); addressErr == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("entry %d is no proxy: write an address such as 192.168.1.20, a network such as 10.0.0.0/8, or unix", i+1)
		}
		if network.Addr().Is4In6() {
			return fmt.Errorf("entry %d is an IPv4 address in the notation of IPv6: write it as 192.168.1.20 or 10.0.0.0/8", i+1)
		}
		if network.Bits() == 0 {
			return fmt.Errorf("entry %d trusts every client, so each could forge its address: name the proxies", i+1)
		}
		p.Networks = append(p.Networks, network.Masked())
	}
	return nil
}

// String returns the proxies in the form of the setting.
func (p Proxies) String() string {
	var entries []string
	for _, network := range p.Networks {
		if network.IsSingleIP() {
			entries = append(entries, network.Addr().String())
		} else {
			entries = append(entries, network.String())
		}
	}
	if p.Unix {
		entries = append(entries, unix)
	}
	return strings.Join(entries, ", ")
}

// Empty reports whether no proxy is trusted.
func (p Proxies) Empty() bool { return len(p.Networks) == 0 && !p.Unix }

// trusts reports whether the other end of a connection is a trusted proxy. address has the form of
// [http.Request.RemoteAddr]; that of a unix socket has no port.
func (p Proxies) trusts(address string) bool {
	peer, err := netip.ParseAddrPort(address)
	if err != nil {
		return p.Unix
	}
	ip := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// Trust says which proxies are believed, and how they state the address of a client.
type Trust struct {
	Source  string // one of [Sources]
	Proxies Proxies
}

// Check returns an error if the proxies and the source do not fit.
func (t Trust) Check() error {
	if t.Source != Connection && t.Proxies.Empty() {
		return errors.New("needs trusted_proxies: without it, every client could forge its address")
	}
	if t.Source == Connection && !t.Proxies.Empty() {
		return errors.New("is connection, so trusted_proxies has no effect: set it to what the proxies send, x-forwarded-for, forwarded or proxy-protocol")
	}
	return nil
}

// Listener returns a listener whose connections have the addresses that the PROXY protocol states, if that is the
// source. A connection that is not from a trusted proxy is closed, and so is one that does not begin with the
// protocol's header: on such a listener, a guess would let clients forge their addresses. A program on this machine, such
// as the doctor, can connect with a header that states no address.
func (t Trust) Listener(l net.Listener, log *logrus.Entry) net.Listener {
	if t.Source != ProxyProtocol {
		return l
	}
	warn := rate.Sometimes{Interval: time.Minute}
	return checkedListener{t.Proxies, &proxyproto.Listener{Listener: l, ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
		if !t.Proxies.trusts(o.Upstream.String()) && !onLoopback(o.Upstream) {
			warn.Do(func() {
				log.WithField("remote", o.Upstream.String()).Warn("closed a connection that is not from one of the trusted_proxies")
			})
			return proxyproto.REJECT, proxyproto.ErrInvalidUpstream
		}
		return proxyproto.REQUIRE, nil
	}}}
}

// checkedListener lets proxies state only addresses of networks: a proxy gets the name of a unix socket from its client,
// and the name can look like an address. Programs on this machine that are not trusted state none but their own.
type checkedListener struct {
	proxies Proxies
	net.Listener
}

var (
	errStates = errors.New("a program on this machine that is not one of the trusted_proxies states the address of a client")
	errFamily = errors.New("a proxy states a client's address that is not of the IP protocol")
)

// Accept implements [net.Listener].
func (l checkedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if p, ok := c.(*proxyproto.Conn); ok {
		trusted := l.proxies.trusts(p.Raw().RemoteAddr().String())
		p.Validate = func(h *proxyproto.Header) error {
			switch {
			case h.Command.IsLocal():
				return nil
			case !trusted:
				return errStates
			case !h.TransportProtocol.IsIPv4() && !h.TransportProtocol.IsIPv6():
				return errFamily
			}
			return nil
		}
	}
	return c, err
}

func onLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// LocalHeader returns what a program sends first on a connection to a [ProxyProtocol] listener of its own machine.
func LocalHeader() ([]byte, error) {
	return (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}).Format()
}

// Handler returns a handler that sets RemoteAddr to the client's address if a header states it and a trusted proxy has
// sent the header. The client is the last address in the header that is not a trusted proxy's. If that entry is
// malformed or ambiguous, or all are proxies, RemoteAddr keeps the address of the connection.
func (t Trust) Handler(next http.Handler) http.Handler {
	if t.Source != XForwardedFor && t.Source != Forwarded {
		return next
	}
	var networks []net.IPNet
	for _, n := range t.Proxies.Networks {
		networks = append(networks, net.IPNet{IP: n.Addr().AsSlice(), Mask: net.CIDRMask(n.Bits(), n.Addr().BitLen())})
	}
	header := realclientip.Must(realclientip.NewRightmostTrustedRangeStrategy(t.Source, networks))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), connectionKey{}, r.RemoteAddr))
		if t.Proxies.trusts(r.RemoteAddr) && (t.Source != Forwarded || unambiguous(r.Header.Values(Forwarded))) {
			if client, err := netip.ParseAddr(header.ClientIP(r.Header, "")); err == nil {
				r.RemoteAddr = netip.AddrPortFrom(client.Unmap().WithZone(""), 0).String()
			}
		}
		next.ServeHTTP(w, r)
	})
}

type connectionKey struct{}

// ConnectionOf returns the address of the other end of the connection of a request, in the form of
// [http.Request.RemoteAddr], also if [Trust.Handler] has set the client's address.
func ConnectionOf(r *http.Request) string {
	if address, ok := r.Context().Value(connectionKey{}).(string); ok {
		return address
	}
	return r.RemoteAddr
}

// Trusts reports whether the other end of the connection of a request is a trusted proxy.
func (t Trust) Trusts(r *http.Request) bool { return t.Proxies.trusts(ConnectionOf(r)) }

// unambiguous reports whether all readers of the header Forwarded find the same addresses in it. A proxy can repeat a
// text of the client there, such as the host: if it quotes the text, which the library that reads the header does not
// know, the text can contain separators, and if not, a second address.
func unambiguous(values []string) bool {
	for _, value := range values {
		if separatorsInQuotes(value) {
			return false
		}
		for element := range strings.SplitSeq(value, ",") {
			addresses := 0
			for pair := range strings.SplitSeq(element, ";") {
				if name, _, _ := strings.Cut(pair, "="); strings.EqualFold(strings.TrimSpace(name), "for") {
					addresses++
				}
			}
			if addresses > 1 {
				return false
			}
		}
	}
	return true
}

// separatorsInQuotes reports whether a quoted text contains a separator, or does not end.
func separatorsInQuotes(value string) bool {
	quoted, escaped := false, false
	for _, c := range value {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
			continue
		}
		if quoted && (c == ',' || c == ';') {
			return true
		}
	}
	return quoted
}

// WithoutPort returns an address without its port, if it has one.
func WithoutPort(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
