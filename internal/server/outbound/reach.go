package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Reach says which addresses may be called. Its zero value permits public addresses, and requires an
// encrypted protocol for them. No value permits link-local, multicast and unspecified addresses and
// the credential services of clouds.
type Reach struct {
	// Internal are the networks that may be called although they are not public, also without
	// encryption.
	Internal []netip.Prefix
	// Anywhere permits all networks. It is for addresses that the operator has set, and for those that
	// the server called before it had this rule.
	Anywhere bool
}

// errUnreachable is the only explanation of a call that was not permitted and of one whose host did
// not accept a connection, so that errors do not reveal what exists in an internal network.
var errUnreachable = errors.New("it cannot be reached, or its address is not public (or the URL begins with http://) and is not in the server's setting outbound_networks")

// internal lists the networks that are not public and that the methods of [netip.Addr] do not know.
var internal = func() (out []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		// These can contain an IPv4 address.
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16",
		"100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}()

// check returns an error unless a resolved address may be called.
func (r Reach) check(encrypted bool, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || forbidden(at.Addr()) {
		return errForbiddenAddress
	}
	ip := at.Addr().Unmap().WithZone("")
	contains := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case r.Anywhere, slices.ContainsFunc(r.Internal, contains):
		return nil
	case encrypted && ip.IsGlobalUnicast() && !ip.IsPrivate() && !slices.ContainsFunc(internal, contains):
		return nil
	default:
		return errUnreachable
	}
}

// checkHost returns an error if a URL's host is an address that must not be called.
func (r Reach) checkHost(u *url.URL) error {
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		return r.check(u.Scheme == "https", netip.AddrPortFrom(ip, 443).String())
	}
	return nil
}

// isProxied reports whether a proxy dials in place of the server for a request to a URL.
func isProxied(u *url.URL) bool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	return err != nil || proxy != nil
}

// dialCheck returns the check of the addresses that are dialed for a URL.
func (r Reach) dialCheck(u *url.URL) func(address string) error {
	if isProxied(u) {
		return checkAddress // of the proxy; see [Reach.resolve]
	}
	return func(address string) error { return r.check(u.Scheme == "https", address) }
}

// resolve returns an error if the host of a proxied URL has an address that must not be called. The
// addresses of names that only the proxy can resolve remain unchecked; hidden is true for them, and
// failures of such calls must not be explained.
func (r Reach) resolve(ctx context.Context, u *url.URL) (hidden bool, err error) {
	if err := r.checkHost(u); err != nil || r.Anywhere || !isProxied(u) {
		return false, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if _, ok := errors.AsType[*net.DNSError](err); ok && u.Scheme == "https" {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, ip := range ips {
		if err := r.check(u.Scheme == "https", netip.AddrPortFrom(ip, 443).String()); err != nil {
			return false, err
		}
	}
	return false, nil
}

// conceal explains an error so that it does not reveal whether a call was not permitted or its host
// did not accept a connection.
func conceal(u *url.URL, err error, hidden bool, limit time.Duration) error {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	op, isOp := errors.AsType[*net.OpError](err)
	if hidden || isDNS && dns != nil || isOp && op.Op == "dial" || errors.Is(err, errForbiddenAddress) {
		err = errUnreachable
	}
	return explain(u, err, limit)
}

// keptHost is the key of the host in the context of [KeepHost].
type keptHost struct{}

// KeepHost returns a context in which [Client.Get] may call the host of an address in any network. It
// is for addresses that the server called before it restricted them.
func KeepHost(ctx context.Context, address string) context.Context {
	u, err := url.Parse(address)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, keptHost{}, u.Host)
}

// reach returns what a client may call for a URL in a context.
func (c *Client) reach(ctx context.Context, u *url.URL) Reach {
	r := c.Reach
	if host, _ := ctx.Value(keptHost{}).(string); host != "" && strings.EqualFold(host, u.Host) {
		r.Anywhere = true
	}
	return r
}

// explain explains an error of a call. Only errors about the operator's own addresses say why a host
// did not accept a connection.
func (c *Client) explain(u *url.URL, err error, hidden bool) error {
	if c.Anywhere {
		return explain(u, err, maxTime)
	}
	return conceal(u, err, hidden, maxTime)
}
