package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
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
	hidden, err := c.resolve(ctx, u)
	if err != nil {
		return Answer{}, c.explain(u, err, hidden, maxTime)
	}
	res, err := send(req, c.transport(u.Hostname(), nil, c.dialCheck(u)))
	if err != nil {
		return Answer{}, c.explain(u, err, hidden, maxTime)
	}
	defer res.Body.Close()
	// The status is the result. The body is only shown, so an error in it changes nothing.
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return Answer{Status: res.StatusCode, Header: res.Header, Body: text}, nil
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
		if err = c.check(u.Scheme == "https", netip.AddrPortFrom(ip, 443).String()); err == nil {
			return nil
		}
	}
	return fault.While(err, "cannot be called")
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
