package protocol

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/klauspost/compress/zstd"
	"github.com/sirupsen/logrus"
)

// Limits on response bodies, in bytes.
const (
	maxSmallBody      = 1 << 20
	maxDefinitionBody = 16 << 20
)

// accept is the media type of the public API.
const accept = "application/vnd.pulumi+8"

// defaultRequestTimeout applies unless Options sets a timeout.
const defaultRequestTimeout = 30 * time.Second

// Options configure a [Client]. Only BaseURL is needed.
type Options struct {
	BaseURL   string // scheme, host and optionally a path
	UserAgent string

	// HTTPClient, if set, replaces the default client, except for the default timeout and redirect
	// policy. CACertPEM is then ignored.
	HTTPClient *http.Client
	// CACertPEM holds certificate authorities to trust in addition to the system's.
	CACertPEM []byte

	// Signed means that the server is known to sign its responses, so that an unsigned response is
	// foreign. If it is false, the client learns this from the first signed response.
	Signed bool

	RequestTimeout time.Duration // limit of one call, and of each pause in a transfer; 0 = 30 s
	Retry          Retry         // for status calls
	Breaker        Breaker       // for poll, definition and status calls
	Log            *logrus.Entry // nil: nothing is logged
}

// Client calls one server. It is safe for concurrent use and stores no tokens.
type Client struct {
	base      *url.URL
	userAgent string
	timeout   time.Duration
	once      *http.Client          // one attempt, limited by the call's context
	retrying  *retryablehttp.Client // several attempts, each with a timeout
	circuit   *circuit
	zstd      *zstd.Encoder
	log       *logrus.Entry
	signing   signing
}

// errRedirect is returned for a redirect that would carry a token to another host.
var errRedirect = errors.New("the server redirects to another host or to a URL without TLS, which would disclose the token: set service_url to the final address")

// errRedirectMethod is returned for a redirect that changes the request's method.
var errRedirectMethod = errors.New("the server redirects in a way that changes the request's method: set service_url to the final address")

// NewClient returns a client for opts. If an option is invalid, the error names it.
func NewClient(opts Options) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(opts.BaseURL, "/"))
	if err != nil {
		return nil, errors.New("the server's URL cannot be parsed: use a form like https://api.example.com")
	}
	if (base.Scheme != "https" && base.Scheme != "http") || base.Host == "" || base.User != nil {
		return nil, fmt.Errorf("the server's URL %q: use http:// or https://, a host, and no user name in it", base.Redacted())
	}
	base.RawQuery, base.Fragment = "", ""
	log := opts.Log
	if log == nil {
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		log = logrus.NewEntry(quiet)
	}
	hc := opts.HTTPClient
	if hc == nil {
		transport, err := NewTransport(opts.CACertPEM)
		if err != nil {
			return nil, err
		}
		hc = &http.Client{Transport: transport}
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256<<10))
	if err != nil {
		return nil, fmt.Errorf("preparing log compression: %w", err)
	}
	timeout := opts.RequestTimeout
	if timeout <= 0 {
		timeout = defaultRequestTimeout
	}
	once, timed := *hc, *hc
	transport := SameProtocol{hc.Transport}
	if hc.Transport == nil {
		transport.RoundTripper = http.DefaultTransport
	}
	once.Transport, timed.Transport = transport, transport
	once.Timeout, timed.Timeout = 0, timeout
	once.CheckRedirect, timed.CheckRedirect = checkRedirect, checkRedirect
	c := &Client{
		base:      base,
		userAgent: opts.UserAgent,
		timeout:   timeout,
		once:      &once,
		retrying:  newRetrying(&timed, opts.Retry, log),
		circuit:   newCircuit(opts.Breaker, log),
		zstd:      encoder,
		log:       log,
	}
	if opts.Signed {
		c.ExpectSigned()
	}
	return c, nil
}

// Signed reports whether the server is known to sign its responses.
func (c *Client) Signed() bool { return c.signing.expected() }

// ExpectSigned records that the server is known to sign its responses.
func (c *Client) ExpectSigned() { c.signing.seen() }

// NewTransport returns a transport that uses the environment's proxies, and trusts the CAs of the
// system and those in caPEM.
func NewTransport(caPEM []byte) (*http.Transport, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(caPEM) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool() // no system roots are available: use only the given ones
		}
		if !pool.AppendCertsFromPEM(caPEM) {
			return nil, errors.New("the CA certificates contain no PEM block of type CERTIFICATE: check ca_certificate_file")
		}
		tlsConfig.RootCAs = pool
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   15 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          16,
		MaxIdleConnsPerHost:   8,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2:                 Pings(),
	}, nil
}

const (
	pingAfter   = 30 * time.Second // without a frame from the server
	pingTimeout = 15 * time.Second
)

// Pings returns settings with which an HTTP/2 connection ends when its other end no longer responds. The
// timeout of a call ends only the call, and the next one would use the connection again.
func Pings() *http.HTTP2Config {
	return &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
}

// checkRedirect returns an error for a redirect that leaves the host, drops TLS or changes the
// method.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if req.URL.Host != first.Host || (first.Scheme == "https" && req.URL.Scheme != "https") {
		return errRedirect
	}
	if req.Method != via[0].Method {
		return errRedirectMethod // the response to a GET does not acknowledge a POST
	}
	if len(via) >= 3 {
		return errors.New("the server redirects too often: set service_url to the final address")
	}
	return nil
}

// Close releases idle connections.
func (c *Client) Close() {
	c.once.CloseIdleConnections()
	c.retrying.HTTPClient.CloseIdleConnections()
	_ = c.zstd.Close() // without a writer there is nothing to flush
}

type call struct {
	method string
	path   string // below the base URL, escaped
	query  url.Values
	token  string
	nonce  string // set by deliver
	secret string // kept out of errors, in addition to the token
	header http.Header
	body   []byte // nil: none
	limit  int64  // of the response body, in bytes

	timeout time.Duration // 0: the client's default
	retry   bool          // through the retry layer
	guarded bool          // through the circuit breaker
	stream  bool          // the timeout counts from the transfer's last progress

	// own reports whether a success has a form that only this API has. If own is nil, no success
	// has.
	own func(answer) bool
}

// answer is a response with its whole body.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one call. If the status is not 2xx, it returns the response and an [*APIError].
func (c *Client) send(ctx context.Context, r call) (answer, error) {
	if !r.guarded {
		return c.deliver(ctx, r)
	}
	done, err := c.circuit.allow()
	if err != nil {
		return answer{}, err
	}
	a, err := c.deliver(ctx, r)
	if err != nil && ctx.Err() != nil {
		done(context.Canceled) // the caller canceled the call
	} else {
		done(err)
	}
	return a, err
}

func (c *Client) deliver(ctx context.Context, r call) (answer, error) {
	var (
		resp *http.Response
		err  error
	)
	r.nonce = rand.Text()
	if r.retry {
		var req *retryablehttp.Request
		if req, err = retryablehttp.NewRequestWithContext(ctx, r.method, c.url(r), r.body); err != nil {
			return answer{}, transportError(r.method, r.path, c.base.Host, err)
		}
		c.addHeaders(req.Request, r)
		resp, err = c.retrying.Do(req)
	} else {
		timeout := r.timeout
		if timeout <= 0 {
			timeout = c.timeout
		}
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(timeout, func() { cancel(fmt.Errorf("no response within %s", timeout)) })
		defer timer.Stop()
		var body io.Reader
		if r.body != nil {
			body = bytes.NewReader(r.body)
		}
		var req *http.Request
		if req, err = http.NewRequestWithContext(limited, r.method, c.url(r), body); err != nil {
			return answer{}, transportError(r.method, r.path, c.base.Host, err)
		}
		if r.stream && req.Body != nil {
			req.Body = progressBody{req.Body, func() { timer.Reset(timeout) }}
		}
		c.addHeaders(req, r)
		if resp, err = c.once.Do(req); err != nil && ctx.Err() == nil && limited.Err() != nil {
			err = context.Cause(limited)
		}
	}
	if err != nil {
		if resp != nil { // it arrived, but the call was cancelled
			resp.Body.Close()
		}
		return answer{}, transportError(r.method, r.path, c.base.Host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.limit+1))
	if err != nil {
		return answer{}, transportError(r.method, r.path, c.base.Host, fmt.Errorf("reading the response: %w", err))
	}
	if int64(len(body)) > r.limit {
		return answer{}, fmt.Errorf("%s %s at %s: the response is longer than %d bytes", r.method, r.path, c.base.Host, r.limit)
	}
	return c.judge(r, answer{status: resp.StatusCode, header: resp.Header, body: body})
}

// judge returns an error unless the response is a success from the server itself.
func (c *Client) judge(r call, a answer) (answer, error) {
	origin, success := originUnknown, a.status >= 200 && a.status <= 299
	switch {
	case isOwn(r.token, r.nonce, a.status, a.header):
		origin = originServer
		c.signing.seen()
	case c.signing.expected():
		origin = originForeign
		if success && r.own != nil && r.own(a) && c.signing.missed() {
			c.log.Warn("the server no longer signs its responses: it was replaced by an older version, or a proxy removes " +
				HeaderNonce + " or " + HeaderAnswer + "; from now on, unsigned responses are accepted")
			origin = originUnknown
		}
	}
	if success {
		if origin == originForeign {
			return answer{}, &foreignError{r.method, r.path, c.base.Host, a.status}
		}
		return a, nil
	}
	err := apiError(r.method, r.path, []string{r.token, r.secret}, a.status, a.header, a.body)
	err.origin = origin
	return a, err
}

// url returns the base URL joined with r's path, which is already escaped.
func (c *Client) url(r call) string {
	u := c.base.String() + r.path
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	return u
}

// addHeaders adds to req the common headers and the headers of r.
func (c *Client) addHeaders(req *http.Request, r call) {
	req.Header.Set("Accept", accept)
	if c.userAgent != "" {
		req.Header.Set("User-Agent", c.userAgent)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "token "+r.token)
	}
	req.Header.Set(HeaderNonce, r.nonce)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, r.header)
}

// decode decodes the response's JSON body.
func (a answer) decode(r call, into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		if isPage(a.header, a.body) {
			return fmt.Errorf("%s %s: the response is a web page, not the API's: check service_url, and whether a proxy or login page intercepts the request", r.method, r.path)
		}
		return fmt.Errorf("%s %s: the response is not the expected JSON: %w", r.method, r.path, err)
	}
	return nil
}

// progressBody reports every read, so that a slow transfer is not mistaken for a stalled one.
type progressBody struct {
	io.ReadCloser
	progress func()
}

func (b progressBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.progress()
	return n, err
}
