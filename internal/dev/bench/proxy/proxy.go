// Package proxy places the bench between the clients and the servers that it measures.
package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Proxy passes requests to servers.
type Proxy struct {
	URL string

	server    *http.Server
	transport http.RoundTripper
	served    sync.WaitGroup
}

// Start starts a proxy on a free port. It calls target for each request, to choose a server; the
// request waits until target returns.
func Start(target func(*http.Request) *url.URL) (*Proxy, error) {
	return StartWith(&http.Transport{MaxIdleConnsPerHost: 64}, target)
}

// StartWith is like [Start], with a transport for the requests to the servers.
func StartWith(transport http.RoundTripper, target func(*http.Request) *url.URL) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // Listen does not block
	if err != nil {
		return nil, fmt.Errorf("listening for the proxy of a server: %w", err)
	}
	p := &Proxy{URL: "http://" + listener.Addr().String(), transport: transport}
	p.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target(r.In)) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport:    p.transport,
	}}
	p.served.Go(func() { _ = p.server.Serve(listener) })
	return p, nil
}

// Close stops the proxy.
func (p *Proxy) Close() {
	_ = p.server.Close()
	p.served.Wait()
	if t, ok := p.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Alternate returns a target for [Start] that passes consecutive requests for the same stack to
// different servers.
func Alternate(servers []*url.URL) func(*http.Request) *url.URL {
	const stackDepth = 6 // /api/stacks/ORGANIZATION/PROJECT/STACK
	var mu sync.Mutex
	turns := map[string]int{}
	return func(r *http.Request) *url.URL {
		parts := strings.Split(r.URL.Path, "/")
		stack := strings.Join(parts[:min(len(parts), stackDepth)], "/")
		mu.Lock()
		defer mu.Unlock()
		turns[stack]++
		return servers[turns[stack]%len(servers)]
	}
}
