package mirror

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"workflowagent/internal/reach"
	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/config"
	"workflowagent/internal/termtext"
)

// expectFor is how long an upload waits for a proxy that refuses it at once.
const expectFor = 5 * time.Second

// Caller calls a server on one way.
type Caller struct {
	base string
	http *http.Client
	key  []byte
}

// AtURL returns a caller that reaches the server as clients do. capem contains authorities to trust in
// addition to the system's. Without the key, the caller can only ask whether the server is ready.
func AtURL(address string, capem, key []byte, proxy reach.Proxy) (*Caller, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // no system roots are available: use only the given ones
	}
	pool.AppendCertsFromPEM(capem)
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return newCaller(address, key, &http.Transport{
		Proxy: proxy, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	})
}

// AtListener returns a caller that connects to the address at which a configuration listens. It accepts
// every certificate, which is for the name that clients use and not for that address.
func AtListener(c config.Config, key []byte) (*Caller, error) {
	var first []byte
	if c.ClientAddress == clientaddr.ProxyProtocol {
		var err error
		if first, err = clientaddr.LocalHeader(); err != nil {
			return nil, fmt.Errorf("preparing the header of the PROXY protocol: %w", err)
		}
	}
	name := ""
	if u, err := url.Parse(c.ExternalURL); err == nil {
		name = u.Hostname()
	}
	address := "http://localhost"
	if c.TLS() {
		address = "https://localhost"
	}
	return newCaller(address, key, &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, c.Listen, first) },
		TLSClientConfig: &tls.Config{
			ServerName: name, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // see above: no secret is sent
		},
		ForceAttemptHTTP2: true,
	})
}

func newCaller(address string, key []byte, transport *http.Transport) (*Caller, error) {
	transport.ExpectContinueTimeout, transport.MaxResponseHeaderBytes = expectFor, maxText
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Caller{strings.TrimRight(address, "/"), client, key}, nil
}

// Close closes idle connections.
func (c *Caller) Close() { c.http.CloseIdleConnections() }

// dial connects to an address to listen on, and sends the first bytes.
func dial(ctx context.Context, listen string, first []byte) (net.Conn, error) {
	var lastErr error
	for _, to := range targets(listen) {
		conn, err := (&net.Dialer{}).DialContext(ctx, to[0], to[1])
		if err != nil {
			lastErr = err
			continue
		}
		if _, err := conn.Write(first); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
	return nil, lastErr
}

// targets returns the networks and addresses at which a program on this machine reaches an address to
// listen on.
func targets(listen string) [][2]string {
	if path, isUnix := strings.CutPrefix(listen, config.UnixPrefix); isUnix {
		return [][2]string{{"unix", path}}
	}
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return [][2]string{{"tcp", net.JoinHostPort("127.0.0.1", port)}, {"tcp", net.JoinHostPort("::1", port)}}
	}
	return [][2]string{{"tcp", listen}}
}

// StatusError is an answer with an unexpected status.
type StatusError struct {
	Status   int
	Location string // of a redirect
	// Text is the beginning of the answer, in one line.
	Text string
}

func (e *StatusError) Error() string {
	if e.Location != "" {
		return fmt.Sprintf("answers with a redirect to %s", e.Location)
	}
	return fmt.Sprintf("answers with status %d", e.Status)
}

// NotReady reports whether a server or a proxy has answered that it is not ready.
func (e *StatusError) NotReady() bool { return e.Status == http.StatusServiceUnavailable }

// ByServer reports whether the cause is not the request.
func (e *StatusError) ByServer() bool { return e.Status >= http.StatusInternalServerError }

// TooLarge reports whether the body of the request was too large.
func (e *StatusError) TooLarge() bool { return e.Status == http.StatusRequestEntityTooLarge }

// IsTLSRefused reports whether an error of connecting means that the other side has refused to negotiate TLS, as a
// server does that has no certificate yet.
func IsTLSRefused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// ErrForeign reports an answer of a server that does not know the key.
var ErrForeign = errors.New("is answered by another program, or by a workflow-server with another master key")

// Ready returns nil if the server is ready.
func (c *Caller) Ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+readyPath, http.NoBody)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	text, _, err := c.text(req)
	if err != nil {
		return err
	}
	var state struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(text, &state) != nil || state.Status != "ready" {
		return ErrForeign
	}
	return nil
}

// forgedFor and forgedForwarded are addresses for documentation (RFC 5737), which no client has.
const forgedFor, forgedForwarded = "198.51.100.86", "203.0.113.86"

// IsForged reports whether an address is one that [Caller.Look] has made up.
func IsForged(address string) bool { return address == forgedFor || address == forgedForwarded }

// Look asks how a request has arrived. The request states wrong addresses of its client, as an attacker
// would. local is this end of the connection, with its port. back reports whether the header of the answer has
// arrived.
func (c *Caller) Look(ctx context.Context) (seen Seen, local string, back bool, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		local = info.Conn.LocalAddr().String()
	}})
	req, nonce, err := c.request(ctx, http.MethodGet, requestPath, http.NoBody)
	if err != nil {
		return seen, "", false, err
	}
	req.Header.Set("X-Forwarded-For", forgedFor)
	req.Header.Set("Forwarded", "for="+forgedForwarded)
	req.Header.Set(header, nonce)
	text, answered, err := c.text(req)
	if err != nil {
		return seen, local, false, err
	}
	var a answer
	if json.Unmarshal(text, &a) != nil || !hmac.Equal(a.Proof, sign(c.key, "answer", nonce, string(a.Seen))) || json.Unmarshal(a.Seen, &seen) != nil {
		return Seen{}, local, false, ErrForeign
	}
	return seen, local, answered.Get(header) == nonce, nil
}

// Stream reports whether the events of a stream arrive when the server sends them.
func (c *Caller) Stream(ctx context.Context) (atOnce bool, err error) {
	req, _, err := c.request(ctx, http.MethodGet, streamPath, http.NoBody)
	if err != nil {
		return false, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return false, cause(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		_, err := readText(res)
		return false, err
	}
	var got []byte
	for piece := make([]byte, 1024); ; {
		n, err := res.Body.Read(piece)
		got = append(got, piece[:n]...)
		switch {
		case bytes.Contains(got, []byte(lastEvent)):
			return false, nil
		case bytes.Contains(got, []byte(firstEvent)):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("reading a stream: %w", cause(err))
		case len(got) > maxText:
			return false, ErrForeign
		}
	}
}

// Upload sends a body of a size. It returns nil if the server has received it as a whole.
func (c *Caller) Upload(ctx context.Context, size int64) error {
	req, _, err := c.request(ctx, http.MethodPost, bodyPath, io.LimitReader(zeros{}, size))
	if err != nil {
		return err
	}
	req.ContentLength = size
	req.Header.Set("Expect", "100-continue")
	text, _, err := c.text(req)
	if err != nil {
		return err
	}
	var received struct {
		Size int64 `json:"size"`
	}
	if json.Unmarshal(text, &received) != nil || received.Size != size {
		return ErrForeign
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// request returns a request with a credential.
func (c *Caller) request(ctx context.Context, method, path string, body io.Reader) (_ *http.Request, nonce string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, "", fmt.Errorf("making the request: %w", err)
	}
	text, nonce := credential(c.key, path, time.Now())
	req.Header.Set("Authorization", scheme+" "+text)
	return req, nonce, nil
}

const (
	maxText   = 64 << 10 // of headers and of bodies, in bytes
	maxQuoted = 500      // of an error or a redirect, in bytes
)

// text sends a request, and returns the text and the header of an answer with status 200.
func (c *Caller) text(req *http.Request) ([]byte, http.Header, error) {
	res, err := c.http.Do(req)
	if err != nil {
		return nil, nil, cause(err)
	}
	defer res.Body.Close()
	text, err := readText(res)
	return text, res.Header, err
}

// readText returns the text of an answer with status 200. Otherwise, it returns a [StatusError].
func readText(res *http.Response) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxText))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", cause(err))
	}
	if res.StatusCode == http.StatusOK {
		return text, nil
	}
	failed := &StatusError{Status: res.StatusCode, Text: termtext.OneLine(string(text), 200)}
	if where, err := res.Location(); err == nil && res.StatusCode/100 == 3 {
		failed.Location = termtext.OneLine(where.Redacted(), maxQuoted)
	}
	return nil, failed
}

// cause returns the cause of an error without the method and the URL.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &brief{err}
}

// brief is an error whose text can contain what the other side has sent.
type brief struct{ err error }

func (e *brief) Error() string { return termtext.OneLine(e.err.Error(), maxQuoted) }

func (e *brief) Unwrap() error { return e.err }
