package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/termtext"
)

const (
	maxText   = 500     // bytes of another program's text in a message
	maxAnswer = 1 << 20 // bytes
	// maxAuthorities is the maximum size of a file with certificate authorities in bytes.
	maxAuthorities = 16 << 20
	callTimeout    = 20 * time.Second
)

// calls are the attempts of a request to a cloud.
var calls = retry.Policy{First: 500 * time.Millisecond, Max: 5 * time.Second, Tries: 5}

// caller makes requests to the clouds with the proxies and certificate authorities of the job's
// steps.
type caller struct{ client *http.Client }

func newCaller(vars map[string]string) (*caller, error) {
	either := func(name string) string {
		if v := vars[name]; v != "" {
			return v
		}
		return vars[strings.ToLower(name)]
	}
	proxies := httpproxy.Config{HTTPProxy: either("HTTP_PROXY"), HTTPSProxy: either("HTTPS_PROXY"), NoProxy: either("NO_PROXY")}
	proxy := proxies.ProxyFunc()
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	for _, name := range []string{"SSL_CERT_FILE", "AWS_CA_BUNDLE"} {
		file := vars[name]
		if file == "" {
			continue
		}
		data, err := boundedfile.Read(file, maxAuthorities)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authorities in %s: %w", name, err)
		}
		roots.AppendCertsFromPEM(data)
	}
	return &caller{&http.Client{
		Timeout: callTimeout,
		// A redirect would send the identity token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout: 10 * time.Second,
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
		},
	}}, nil
}

// request is a POST to a cloud.
type request struct {
	doing    string // for errors, such as "assuming the role X"
	url      string
	kind     string // Content-Type
	bearer   string
	body     string
	transfer func(status int, body []byte) error // reads the answer
}

// do makes the request. It repeats it after errors that a later attempt might not have.
func (c *caller) do(ctx context.Context, r request) error {
	if err := checkEndpoint(r.url); err != nil {
		return fmt.Errorf("%s: %w", r.doing, err)
	}
	err := calls.Do(ctx, temporary, func() error { return c.once(ctx, r) })
	if err != nil {
		return fmt.Errorf("%s: %w", r.doing, err)
	}
	return nil
}

func (c *caller) once(ctx context.Context, r request) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(r.body))
	if err != nil {
		return fmt.Errorf("the address %q cannot be used: %w", r.url, err)
	}
	req.Header.Set("Content-Type", r.kind)
	req.Header.Set("Accept", "application/json, text/xml")
	if r.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+r.bearer)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return unreachable(req.URL.Host, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable(req.URL.Host, err)
	}
	err = r.transfer(resp.StatusCode, data)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &refusal{status: resp.StatusCode, host: req.URL.Host}
	}
	return err
}

// checkEndpoint returns an error for an address to which an identity token must not be sent.
func checkEndpoint(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !protocol.OnLoopback(address)) {
		return fmt.Errorf("the address %q cannot be used: it must be an https URL without a user name", address)
	}
	return nil
}

// connectionError is an error below HTTP.
type connectionError struct {
	host string
	err  error
}

func (e *connectionError) Error() string {
	return fmt.Sprintf("cannot reach %s: %v; check the network, the proxy and the certificate authorities of the job", e.host, e.err)
}

func (e *connectionError) Unwrap() error { return e.err }

func unreachable(host string, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL
	}
	return &connectionError{host, err}
}

// refusal is an answer by which a cloud refuses credentials.
type refusal struct {
	status int
	host   string
	code   string // "" if the answer is not in the cloud's form
	text   string
	advice string
	again  bool // a later attempt might succeed
}

func (e *refusal) Error() string {
	if e.code == "" {
		return fmt.Sprintf("%s answered with status %d and not in the expected form; check the proxy of the job", e.host, e.status)
	}
	said := termtext.OneLine(e.code+": "+e.text, maxText)
	if e.advice == "" {
		return said
	}
	return strings.TrimRight(said, ". ") + "; " + e.advice
}

// temporary reports whether a later attempt might succeed.
func temporary(err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.again || r.status >= 500 || r.status == http.StatusTooManyRequests
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, network := errors.AsType[*connectionError](err)
	return network && !untrusted
}
