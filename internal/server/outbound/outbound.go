// Package outbound makes requests to addresses that users provide: it fetches small documents, sends
// events to receivers, and calls services that administrators have set. Users must not be able to
// make the server call services that only the server can reach. The package therefore requires TLS
// with verified certificates (see [Client.Get], [Client.Post] and [Dial] for the exceptions) and does
// not follow redirects (except [Peer.Do], within one origin). It never calls cloud credential
// services, and it bounds time and size.
package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"workflowagent/internal/protocol"
)

// Bounds of one fetch.
const (
	maxTime = 10 * time.Second
	// maxDialTime is shorter, so that the error says that the host accepts no connection.
	maxDialTime = 8 * time.Second
	maxBytes    = 1 << 20
	maxHeaders  = 64 << 10
)

// Client fetches documents. The zero value trusts the system's certificate authorities.
type Client struct {
	// Roots are the trusted certificate authorities; nil means the system's authorities.
	Roots *x509.CertPool
	Reach
}

// Document is a fetched document.
type Document struct {
	Body []byte
	// Thumbprint is the hexadecimal SHA-256 of the peer's certificate, "" without TLS.
	Thumbprint string
}

// Get fetches a document. It accepts a certificate that a trusted authority has signed, or whose
// chain leads to a certificate with one of the thumbprints (see [Thumbprint]). It checks the
// certificate's name and dates in both cases. Errors never contain the response.
func (c *Client) Get(ctx context.Context, address string, thumbprints []string) (Document, error) {
	u, err := parse(address)
	if err != nil {
		return Document{}, fmt.Errorf("the address %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	reach := c.reach(ctx, u)
	hidden, err := reach.resolve(ctx, u)
	if err != nil {
		return Document{}, c.explain(u, err, hidden, maxTime)
	}
	req, err := newRequest(ctx, http.MethodGet, u, map[string]string{"Accept": "application/json", "User-Agent": "workflow-server"}, nil)
	if err != nil {
		return Document{}, err
	}
	res, err := send(req, c.transport(u.Hostname(), thumbprints, reach.dialCheck(u)))
	if err != nil {
		return Document{}, c.explain(u, err, hidden, maxTime)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return Document{}, fmt.Errorf("%s responded with status %d instead of 200", u.Host, res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBytes+1))
	if err != nil {
		return Document{}, explain(u, err, maxTime)
	}
	if len(body) > maxBytes {
		return Document{}, fmt.Errorf("the response of %s has more than %d bytes", u.Host, maxBytes)
	}
	doc := Document{Body: body}
	if res.TLS != nil && len(res.TLS.PeerCertificates) > 0 {
		doc.Thumbprint = Thumbprint(res.TLS.PeerCertificates[0])
	}
	return doc, nil
}

// CheckBase returns an error if [Client.Get] cannot fetch documents below an address, or if the
// address has a query.
func CheckBase(address string) error {
	u, err := parse(address)
	if err == nil && (u.RawQuery != "" || u.ForceQuery) {
		err = errors.New("must not have a query")
	}
	return err
}

// parse parses an https URL, or an http URL of the same machine, with a host and without user or
// fragment. It rejects other addresses.
func parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, errors.New("must be an absolute URL such as https://issuer.example.com")
	case u.User != nil:
		return nil, errors.New("must not contain a user or password")
	case u.Fragment != "":
		return nil, errors.New("must not have a fragment")
	case u.Scheme == "https":
		return u, nil
	case u.Scheme == "http" && protocol.IsLoopback(u.Host):
		return u, nil
	default:
		return nil, errors.New("must begin with https:// (http:// is accepted only for this machine)")
	}
}

func newRequest(ctx context.Context, method string, u *url.URL, header map[string]string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("requesting %s: %w", u.Host, err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	return req, nil
}

// send sends a request, and does not follow redirects. The transport keeps no connections.
func send(req *http.Request, transport *http.Transport) (*http.Response, error) {
	client := &http.Client{Transport: protocol.SameProtocol{RoundTripper: transport}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return client.Do(req)
}

func (c *Client) transport(host string, thumbprints []string, check func(address string) error) *http.Transport {
	dialer := &net.Dialer{Timeout: maxDialTime, Control: func(_, address string, _ syscall.RawConn) error { return check(address) }}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        c.tls(host, thumbprints),
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeaders,
	}
}

func explain(u *url.URL, err error, limit time.Duration) error {
	var timeout net.Error
	var dns *net.DNSError
	var unverified *tls.CertificateVerificationError
	var refused *net.OpError
	switch {
	case errors.Is(err, errForbiddenAddress):
		return fmt.Errorf("%s cannot be called: %w", u.Host, errForbiddenAddress)
	case errors.Is(err, errUnreachable):
		return fmt.Errorf("%s cannot be called: %w", u.Host, errUnreachable)
	case errors.Is(err, errElsewhere), errors.Is(err, errRedirectLoop):
		return fmt.Errorf("the request to %s failed: %w", u.Host, errors.Unwrap(err))
	case errors.Is(err, protocol.ErrSwitched):
		return fmt.Errorf("the request to %s failed: %w", u.Host, protocol.ErrSwitched)
	case errors.As(err, &unverified):
		return fmt.Errorf("the TLS certificate of %s is not trusted: %w", u.Host, unverified.Err)
	case errors.As(err, &dns):
		return fmt.Errorf("the host name %s was not found", u.Host)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s did not respond within %s", u.Host, limit)
	case errors.As(err, &refused):
		return fmt.Errorf("%s could not be reached: %w", u.Host, refused.Err)
	default:
		return fmt.Errorf("the request to %s failed", u.Host)
	}
}
