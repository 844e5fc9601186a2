package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"workflowagent/internal/protocol"
)

// maxAnswer is the maximum number of bytes of a receiver's response that are read.
const maxAnswer = 4 << 10

// Answer is the response of a receiver.
type Answer struct {
	Status int
	Header map[string][]string
	Body   []byte // of [Client.Post] only the beginning
	URL    string // that responded to [Peer.Do], after redirects
}

// Post sends a request to a receiver, and returns any response. It calls public addresses with
// https. It calls other addresses only if they are in one of the client's internal networks, and
// these also with http. It never calls link-local addresses. It does not follow redirects, and waits
// at most 10 seconds. Errors never contain the response.
func (c *Client) Post(ctx context.Context, address string, header map[string]string, body []byte) (Answer, error) {
	u, err := parseReceiver(address)
	if err != nil {
		return Answer{}, fmt.Errorf("the URL %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	req, err := newRequest(ctx, http.MethodPost, u, header, body)
	if err != nil {
		return Answer{}, err
	}
	check := func(address string) error { return c.checkReceiver(u.Scheme, address) }
	hidden := false // whether a failure can depend on names that only the proxy knows
	if proxy, err := http.ProxyFromEnvironment(req); err != nil || proxy != nil {
		// The proxy dials in place of the server. The addresses of names that only the proxy can
		// resolve remain unchecked.
		if hidden, err = c.resolve(ctx, u); err != nil {
			return Answer{}, conceal(u, err)
		}
		check = checkAddress // of the proxy
	}
	res, err := send(req, c.transport(u.Hostname(), nil, check))
	if err != nil && hidden {
		err = errInternalAddress
	}
	if err != nil {
		return Answer{}, conceal(u, err)
	}
	defer res.Body.Close()
	// The status is the result. The body is only shown, so an error in it changes nothing.
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return Answer{Status: res.StatusCode, Header: res.Header, Body: text}, nil
}

// conceal explains an error so that it does not reveal whether a name exists in an internal network.
func conceal(u *url.URL, err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) || errors.Is(err, errForbiddenAddress) {
		err = errInternalAddress
	}
	return explain(u, err, maxTime)
}

// CheckReceiver returns an error if [Client.Post] can never send to an address. Post also checks the
// addresses to which a name resolves.
func (c *Client) CheckReceiver(address string) error {
	u, err := parseReceiver(address)
	if err != nil {
		return err
	}
	var ips []netip.Addr
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		ips = []netip.Addr{ip}
	} else if protocol.IsLoopback(u.Host) {
		ips = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	for _, ip := range ips {
		if err = c.checkReceiver(u.Scheme, netip.AddrPortFrom(ip, 443).String()); err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("cannot be called: %w", err)
	}
	return nil
}

func parseReceiver(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, errors.New("must be absolute, such as https://example.com/hook")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("must begin with https:// (or http:// for a receiver in an internal network that the operator allows)")
	case u.User != nil:
		return nil, errors.New("must not contain a user or password")
	case u.Fragment != "":
		return nil, errors.New("must not have a fragment")
	}
	return u, nil
}

// errInternalAddress reports that a receiver is not public and not in an internal network that the
// operator allows.
var errInternalAddress = errors.New("its name was not found, or its address is not public (or the URL begins with http://) and is not in the server's setting webhook_networks")

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

// checkReceiver returns an error unless a receiver may have a resolved address.
func (c *Client) checkReceiver(scheme, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || forbidden(at.Addr()) {
		return errForbiddenAddress
	}
	ip := at.Addr().Unmap().WithZone("")
	contains := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case slices.ContainsFunc(c.Internal, contains):
		return nil
	case scheme == "https" && ip.IsGlobalUnicast() && !ip.IsPrivate() && !slices.ContainsFunc(internal, contains):
		return nil
	default:
		return errInternalAddress
	}
}

// resolve returns an error if a receiver's host has an address that it may not have. hidden is true
// if this server cannot resolve the host.
func (c *Client) resolve(ctx context.Context, u *url.URL) (hidden bool, err error) {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	var unknown *net.DNSError
	if errors.As(err, &unknown) && u.Scheme == "https" {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, ip := range ips {
		if err := c.checkReceiver(u.Scheme, netip.AddrPortFrom(ip, 443).String()); err != nil {
			return false, err
		}
	}
	return false, nil
}
