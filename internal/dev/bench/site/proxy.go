package site

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"workflowagent/internal/retry"
)

// Proxy passes requests to servers. It counts the requests and can delay them.
type Proxy struct {
	URL      string
	Requests atomic.Int64
	Delay    atomic.Int64 // nanoseconds before each request

	accepted  func(path string, body io.Reader) // see [Options]; or nil
	server    *http.Server
	transport *http.Transport
	served    sync.WaitGroup
}

// StartProxy starts a proxy of one server.
func StartProxy(target string) (*Proxy, error) {
	return start(func(*http.Request) string { return target }, nil)
}

// startFront starts a proxy that passes consecutive requests for the same stack to different servers.
func startFront(servers []string, accepted func(path string, body io.Reader)) (*Proxy, error) {
	const stackDepth = 6 // /api/stacks/ORGANIZATION/PROJECT/STACK
	var mu sync.Mutex
	turns := map[string]int{}
	return start(func(r *http.Request) string {
		parts := strings.Split(r.URL.Path, "/")
		stack := strings.Join(parts[:min(len(parts), stackDepth)], "/")
		mu.Lock()
		defer mu.Unlock()
		turns[stack]++
		return servers[turns[stack]%len(servers)]
	}, accepted)
}

// start starts a proxy on a free port, which calls target for each request. Addresses of servers have no path.
func start(target func(*http.Request) string, accepted func(path string, body io.Reader)) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // Listen does not block
	if err != nil {
		return nil, fmt.Errorf("listening for the proxy of a server: %w", err)
	}
	p := &Proxy{URL: "http://" + listener.Addr().String(), accepted: accepted, transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	p.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			p.Requests.Add(1)
			if delay := time.Duration(p.Delay.Load()); delay > 0 {
				_ = retry.Sleep(r.In.Context(), delay) // a canceled request fails without the server's answer
			}
			r.SetURL(&url.URL{Scheme: "http", Host: strings.TrimPrefix(target(r.In), "http://")})
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport:    p,
	}}
	p.served.Go(func() { _ = p.server.Serve(listener) })
	return p, nil
}

// RoundTrip passes a request to its server.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.accepted == nil || r.Body == nil {
		return p.transport.RoundTrip(r)
	}
	var body bytes.Buffer
	out := r.Clone(r.Context())
	out.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, &body), r.Body}
	resp, err := p.transport.RoundTrip(out)
	if err == nil && resp.StatusCode/100 == 2 {
		p.accepted(r.URL.Path, &body)
	}
	return resp, err
}

// Close stops the proxy.
func (p *Proxy) Close() {
	_ = p.server.Close()
	p.served.Wait()
	p.transport.CloseIdleConnections()
}
