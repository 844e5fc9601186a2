package outbound

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/protocol"
)

// Bounds of one call of a [Peer].
const (
	maxPeerTime    = 30 * time.Second
	maxPeerBytes   = 10 << 20
	maxRedirects   = 3
	idlePeerTime   = 30 * time.Second
	maxIdlePerHost = 4
)

// Peer is a service whose address an administrator of an organization has set, such as the API of a
// git forge. Requests and their credentials never leave the service's origin. A Peer keeps connections
// and is safe for concurrent use.
type Peer struct {
	base   *url.URL
	reach  Reach
	client *http.Client
}

// Call is one request to a [Peer].
type Call struct {
	Method string
	// URL is absolute, and has the origin of the peer.
	URL    string
	Header map[string]string
	Body   []byte
}

// NewPeer returns the service at an address, which [CheckBase] accepts. A non-empty authority is a
// list of certificates in PEM format, which are trusted in addition to the system's.
func NewPeer(address, authority string, reach Reach) (*Peer, error) {
	if err := CheckBase(address); err != nil {
		return nil, fmt.Errorf("the address %w", err)
	}
	base, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("the address %w", err)
	}
	roots, err := authorities(authority)
	if err != nil {
		return nil, err
	}
	if err := reach.CheckHost(base); err != nil {
		return nil, err
	}
	transport := (&Client{Roots: roots}).transport(base.Hostname(), nil, reach.dialCheck(base))
	transport.DisableKeepAlives = false
	transport.IdleConnTimeout = idlePeerTime
	transport.MaxIdleConnsPerHost = maxIdlePerHost
	transport.HTTP2 = protocol.Pings()
	p := &Peer{base: base, reach: reach}
	p.client = &http.Client{Transport: protocol.SameProtocol{RoundTripper: transport}, CheckRedirect: p.checkRedirect}
	return p, nil
}

// authorities returns the system's certificate authorities and those of a PEM text, or nil for an
// empty text.
func authorities(text string) (*x509.CertPool, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil //nolint:nilnil // nil means the system's authorities.
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("the certificate authority contains no certificate in PEM format")
	}
	return pool, nil
}

// Trusting returns a client for the operator's own addresses, in any network. It trusts a list of
// certificates in PEM format in addition to the system's.
func Trusting(authority string) (*Client, error) {
	roots, err := authorities(authority)
	return &Client{Roots: roots, Reach: Reach{Anywhere: true}}, err
}

// CheckAuthority returns an error unless [NewPeer] accepts an authority.
func CheckAuthority(text string) error {
	_, err := authorities(text)
	return err
}

// Base returns the peer's address without a trailing slash.
func (p *Peer) Base() string { return strings.TrimSuffix(p.base.String(), "/") }

// Close closes the idle connections.
func (p *Peer) Close() { p.client.CloseIdleConnections() }

// Do makes a request and returns any response of at most 10 MiB. It waits at most 30 seconds, and
// follows only redirects that stay on the peer's origin and keep the method. Errors never contain
// the request or the response.
func (p *Peer) Do(ctx context.Context, call Call) (Answer, error) {
	u, err := url.Parse(call.URL)
	if err != nil || !sameOrigin(u, p.base) || u.User != nil {
		return Answer{}, fmt.Errorf("calling %s: the URL of the request has another origin", p.base.Host)
	}
	ctx, cancel := context.WithTimeout(ctx, maxPeerTime)
	defer cancel()
	hidden, err := p.reach.resolve(ctx, u)
	if err != nil {
		return Answer{}, conceal(u, err, hidden, maxPeerTime)
	}
	req, err := newRequest(ctx, call.Method, u, call.Header, call.Body)
	if err != nil {
		return Answer{}, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return Answer{}, conceal(u, err, hidden, maxPeerTime)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxPeerBytes+1))
	if err != nil {
		return Answer{}, explain(u, err, maxPeerTime)
	}
	if len(body) > maxPeerBytes {
		return Answer{}, fmt.Errorf("%w: that of %s has more than %d bytes", ErrTooLarge, u.Host, maxPeerBytes)
	}
	return Answer{Status: res.StatusCode, Header: res.Header, Body: body, URL: res.Request.URL.String()}, nil
}

// ErrTooLarge means that a response was too large to read.
var ErrTooLarge = errors.New("the response is too large")

var (
	errElsewhere    = errors.New("it redirected the request to another origin")
	errRedirectLoop = errors.New("it redirected the request too often")
)

// checkRedirect lets a redirect of a GET, and one that keeps the method and the body, stay on the
// origin. A repository that was renamed answers with such redirects.
func (p *Peer) checkRedirect(req *http.Request, via []*http.Request) error {
	switch {
	case req.Method != via[0].Method:
		return http.ErrUseLastResponse
	case !sameOrigin(req.URL, p.base):
		return errElsewhere
	case len(via) > maxRedirects:
		return errRedirectLoop
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"https": "443", "http": "80"}[u.Scheme]
}

// Dial connects to a TCP service with an encrypted protocol whose address an administrator of an
// organization has set, such as an ssh server. The caller must close the connection.
func Dial(ctx context.Context, address string, reach Reach) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	dialer := &net.Dialer{Timeout: maxDialTime, Control: func(_, address string, _ syscall.RawConn) error { return reach.check(true, address) }}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, conceal(&url.URL{Host: address}, err, false, maxTime)
	}
	return conn, nil
}
