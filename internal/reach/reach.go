// Package reach traces the connection to a URL: the proxy, the addresses, the certificates and the
// response. It reports the stage that failed, with advice. The agent's doctor uses it on the host,
// and the runner uses it inside a job, so their results are comparable.
package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/termtext"
)

// Stage is a stage of the connection to a URL.
type Stage string

// The stages, in order.
const (
	StageURL     Stage = "url"     // parsing the URL and choosing its proxy
	StageDNS     Stage = "dns"     // resolving the host
	StageConnect Stage = "connect" // opening a TCP connection
	StageTLS     Stage = "tls"     // negotiating TLS and verifying certificates
	StageHTTP    Stage = "http"    // receiving a response with any status
)

// Options configure a trace. The zero value connects in the same way as the agent.
type Options struct {
	// CAPEM contains certificate authorities to trust in addition to the system's.
	CAPEM []byte
	// Proxy selects the proxy; nil uses the environment.
	Proxy     Proxy
	UserAgent string
}

// Proxy selects the proxy for a request, or nil for none.
type Proxy func(*http.Request) (*url.URL, error)

// Trace is the result of [Try].
type Trace struct {
	URL string `json:"url"`
	// Proxy is the URL of the proxy, without credentials. With a proxy, Host and Addresses are the
	// proxy's.
	Proxy string `json:"proxy,omitempty"`
	Host  string `json:"host,omitempty"` // host and port
	// Resolvers lists the host's name servers, if known.
	Resolvers []string `json:"resolvers,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Connected is the address that accepted the connection. Refused lists the other addresses with
	// their errors.
	Connected    string        `json:"connected,omitempty"`
	Refused      []string      `json:"refused,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	TLSVersion   string        `json:"tlsVersion,omitempty"`
	// PrivateCA is true if the system's authorities do not suffice to verify the certificate.
	PrivateCA bool `json:"privateCA,omitempty"`
	// Untrusted is true if no trusted authority issued the certificate.
	Untrusted   bool   `json:"untrusted,omitempty"`
	Code        int    `json:"code,omitempty"`
	ContentType string `json:"contentType,omitempty"`
	Location    string `json:"location,omitempty"`
	// Skew is how far the local clock is ahead of the server's, with a precision of about a second.
	Skew      time.Duration `json:"skewNanoseconds,omitempty"`
	SkewKnown bool          `json:"skewKnown,omitempty"`
	Took      time.Duration `json:"tookNanoseconds"`

	// Failed is the stage that failed, if any. Problem describes the failure and Advice the remedy.
	Failed  Stage  `json:"failed,omitempty"`
	Problem string `json:"problem,omitempty"`
	Advice  string `json:"advice,omitempty"`
}

// Report is a runner's response to a request to probe URLs.
type Report struct {
	Version string   `json:"version"` // version of the runner
	Traces  []*Trace `json:"probe"`   // one per URL, in order
	// Engines are the requested addresses at which a container engine responds.
	Engines []string `json:"engines,omitempty"`
}

// Certificate describes a certificate that a server presented.
type Certificate struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// expiryWarn is how long before its expiry a certificate causes a warning.
const expiryWarn = 14 * 24 * time.Hour

// ExpiresSoon reports whether a certificate must be renewed now: less than two weeks of its validity
// remain, or less than a quarter if it is valid for a short time.
func ExpiresSoon(notBefore, notAfter, now time.Time) bool {
	return notAfter.Sub(now) < min(expiryWarn, notAfter.Sub(notBefore)/4)
}

// Reached reports whether all stages up to and including s succeeded.
func (t *Trace) Reached(s Stage) bool { return t.Failed == "" || index(s) < index(t.Failed) }

func index(s Stage) int {
	return slices.Index([]Stage{StageURL, StageDNS, StageConnect, StageTLS, StageHTTP}, s)
}

// Try sends one request without credentials to a URL and returns the trace. It returns no later
// than when ctx is done.
func Try(ctx context.Context, rawURL string, o Options) *Trace {
	begin := time.Now()
	t := &Trace{URL: rawURL}
	t.try(ctx, o)
	t.Took = time.Since(begin)
	return t
}

func (t *Trace) fail(stage Stage, problem, advice string) {
	t.Failed, t.Problem, t.Advice = stage, termtext.OneLine(problem, maxText), advice
}

func (t *Trace) try(ctx context.Context, o Options) {
	u, err := url.Parse(t.URL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" {
		t.URL = "" // the URL might contain a secret
		t.fail(StageURL, "this is not an http or https URL", "write it like https://api.example.com")
		return
	}
	t.URL = u.Redacted()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		t.fail(StageURL, "the URL is not valid", "write it like https://api.example.com")
		return
	}
	if o.UserAgent != "" {
		req.Header.Set("User-Agent", o.UserAgent)
	}
	proxy := o.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	via, err := proxy(req)
	if err != nil {
		// The error quotes the variable, which might contain a password.
		t.fail(StageURL, "the proxy in the environment is not a URL", "correct HTTPS_PROXY, HTTP_PROXY or NO_PROXY: use a form like http://proxy.example.com:3128")
		return
	}
	next := u
	if via != nil {
		t.Proxy, next = withoutUser(via), via
	}
	t.Host = hostPort(next)
	if t.resolve(ctx, next.Hostname()) && t.connect(ctx, next) {
		t.ask(req, via, o)
	}
}

func (t *Trace) resolve(ctx context.Context, host string) bool {
	t.Resolvers = resolvers()
	if addr, err := netip.ParseAddr(host); err == nil {
		t.Addresses = []string{addr.String()}
		return true
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(found) == 0 {
		var dns *net.DNSError
		switch {
		case ctx.Err() != nil || errors.As(err, &dns) && dns.IsTimeout:
			t.fail(StageDNS, "no name server responded for "+host+" in time", "check the name servers of this machine and the network path to them")
		case errors.As(err, &dns) && dns.IsNotFound:
			t.fail(StageDNS, "the name "+host+" does not exist", "correct the host, or use name servers that resolve it")
		default:
			t.fail(StageDNS, fmt.Sprintf("resolving %s: %v", host, cause(err)), "check the name servers of this machine")
		}
		return false
	}
	for _, addr := range found {
		t.Addresses = append(t.Addresses, addr.Unmap().String())
	}
	return true
}

const maxAddresses = 8

// connect opens a connection and reports whether it succeeded. It tries the addresses in order,
// each with an equal share of the time.
func (t *Trace) connect(ctx context.Context, u *url.URL) bool {
	addresses := t.Addresses[:min(len(t.Addresses), maxAddresses)]
	for i, addr := range addresses {
		limit := 5 * time.Second
		if deadline, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(deadline)/time.Duration(len(addresses)-i+1))
		}
		at := net.JoinHostPort(addr, port(u))
		conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", at)
		if err == nil {
			_ = conn.Close() // only the connection attempt matters
			t.Connected = at
			return true
		}
		t.Refused = append(t.Refused, fmt.Sprintf("%s: %v", at, cause(err)))
	}
	what := "the server"
	if t.Proxy != "" {
		what = "the proxy"
	}
	t.fail(StageConnect, fmt.Sprintf("no address of %s accepts a connection (%s)", t.Host, strings.Join(t.Refused, "; ")),
		"check that "+what+" runs there, and that firewalls and routes allow connections from this machine")
	return false
}

// ask sends the request to the connected address and records the response.
func (t *Trace) ask(req *http.Request, via *url.URL, o Options) {
	verifier := &verifier{trace: t, capem: o.CAPEM, hosts: []string{req.URL.Hostname()}}
	if via != nil && via.Scheme == "https" {
		verifier.hosts = []string{via.Hostname(), req.URL.Hostname()}
	}
	transport := &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) { return via, nil },
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, t.Connected)
		},
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			// The verifier verifies certificates in full, so that it can report those of an
			// untrusted server. If verification fails, the connection carries no request.
			InsecureSkipVerify: true, //nolint:gosec // see above
			VerifyConnection:   verifier.verify,
		},
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeaders,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	sent := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		t.explain(req, verifier, err)
		return
	}
	_ = resp.Body.Close() // the body is not read
	t.Code, t.ContentType = resp.StatusCode, termtext.OneLine(resp.Header.Get("Content-Type"), maxText)
	if where, err := resp.Location(); err == nil {
		t.Location = termtext.OneLine(where.Redacted(), maxText)
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The date is truncated to whole seconds, so half a second is added.
		now := sent.Add(time.Since(sent) / 2)
		t.Skew, t.SkewKnown = now.Sub(date.Add(500*time.Millisecond)), true
	}
}

func (t *Trace) explain(req *http.Request, v *verifier, err error) {
	err = cause(err)
	var record tls.RecordHeaderError
	switch {
	case v.failed != nil:
		t.fail(StageTLS, v.problem, v.advice)
	case errors.As(err, &record) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		t.fail(StageTLS, "the service at "+t.Host+" does not speak TLS", "correct the scheme or the port of the URL, or of the proxy")
	case strings.HasPrefix(err.Error(), "tls: ") || strings.HasPrefix(err.Error(), "remote error: tls: "):
		t.fail(StageTLS, fmt.Sprintf("agreeing on a TLS connection: %v", err), "check that the server supports TLS 1.2 or later and does not require client certificates")
	case t.Proxy != "" && strings.Contains(err.Error(), "Proxy Authentication Required"):
		t.fail(StageHTTP, "the proxy "+t.Proxy+" requires credentials", "set them in HTTPS_PROXY, as http://user:password@host:port")
	case t.Proxy != "" && req.URL.Scheme == "https" && v.seen == nil:
		t.fail(StageHTTP, fmt.Sprintf("connecting through the proxy %s to %s: %v", t.Proxy, req.URL.Host, err),
			"allow this host in the proxy, or set NO_PROXY to bypass the proxy")
	case req.Context().Err() != nil:
		t.fail(StageHTTP, "the server did not respond in time", "check that the server is not overloaded, and that no proxy or firewall stalls the connection")
	default:
		t.fail(StageHTTP, fmt.Sprintf("waiting for a response: %v", err), "check the service at "+t.Host)
	}
}
