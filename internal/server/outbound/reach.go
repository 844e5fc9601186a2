package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Reach defines which addresses may be called. Its zero value permits public addresses, and requires an
// encrypted protocol for them. No value permits the addresses that [forbidden] lists. If a proxy dials
// in place of the server, only the addresses that the server resolves itself are checked (see
// [Reach.resolve]), and the proxy must prevent connections to others.
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

// check returns an error unless a resolved address may be called.
func (r Reach) check(encrypted bool, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || forbidden(at.Addr()) {
		return errForbiddenAddress
	}
	ip := at.Addr().Unmap().WithZone("")
	if r.Anywhere || contain(r.Internal, ip) || encrypted && isPublic(ip) {
		return nil
	}
	return errUnreachable
}

// CheckHost returns an error if a URL's host is an address that must not be called. Names are checked
// when they are called.
func (r Reach) CheckHost(u *url.URL) error {
	if err := r.checkHost(u); err != nil {
		return conceal(u, err, false, maxTime)
	}
	return nil
}

func (r Reach) checkHost(u *url.URL) error {
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		return r.check(u.Scheme != "http", netip.AddrPortFrom(ip, 443).String())
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

// maxResolveTime bounds the resolution of a name that the proxy resolves again. Servers behind a proxy
// can have name servers that do not respond.
const maxResolveTime = 3 * time.Second

// resolve returns an error if the host of a proxied URL has an address that must not be called. The
// addresses of names that only the proxy can resolve remain unchecked; hidden is true for them, and
// failures of such calls must not be explained.
func (r Reach) resolve(ctx context.Context, u *url.URL) (hidden bool, err error) {
	if err := r.checkHost(u); err != nil || r.Anywhere || !isProxied(u) {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxResolveTime)
	defer cancel()
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
// did not accept a connection, nor the address of a proxy.
func conceal(u *url.URL, err error, hidden bool, limit time.Duration) error {
	_, isDNS := errors.AsType[*net.DNSError](err)
	if hidden || isDNS || isDial(err) || errors.Is(err, errForbiddenAddress) {
		err = errUnreachable
	}
	return explain(u, err, limit)
}

// isDial reports whether an error occurred before a connection to the host existed.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect")
}

// keptOrigin is the key of the address in the context of [KeepHost].
type keptOrigin struct{}

// KeepHost returns a context in which [Client.Get] may call the origin of an address in any network. It
// is for addresses that the server called before it restricted them.
func KeepHost(ctx context.Context, address string) context.Context {
	u, err := url.Parse(address)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, keptOrigin{}, u)
}

// reach returns what a client may call for a URL in a context.
func (c *Client) reach(ctx context.Context, u *url.URL) Reach {
	r := c.Reach
	if kept, ok := ctx.Value(keptOrigin{}).(*url.URL); ok && sameOrigin(kept, u) {
		r.Anywhere = true
	}
	return r
}

// explain explains an error of a call. Only errors about the operator's own addresses say why a host
// did not accept a connection.
func (c *Client) explain(u *url.URL, err error, hidden bool, limit time.Duration) error {
	if c.Anywhere {
		return explain(u, err, limit)
	}
	return conceal(u, err, hidden, limit)
}
