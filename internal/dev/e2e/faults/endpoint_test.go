package faults

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// endpoint is the address of a proxy, which a row can cut off and restore.
type endpoint struct {
	addr    string
	handler http.Handler

	mu     sync.Mutex
	server *http.Server // nil while the proxy is cut off
}

// openEndpoint serves handler on a free port of host. The caller must cut it off in the end.
func openEndpoint(t *testing.T, host string, handler http.Handler) *endpoint {
	t.Helper()
	e := &endpoint{addr: net.JoinHostPort(host, "0"), handler: handler}
	e.restore(t)
	return e
}

// url returns the address in the form that clients use.
func (e *endpoint) url() string { return "http://" + e.addr }

// cut makes the proxy unreachable: it closes all connections and accepts none.
func (e *endpoint) cut() {
	e.mu.Lock()
	server := e.server
	e.server = nil
	e.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// restore makes the proxy reachable again, at the same address.
func (e *endpoint) restore(t *testing.T) {
	t.Helper()
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", e.addr))(t)
	server := &http.Server{Handler: e.handler, ReadHeaderTimeout: time.Minute}
	e.mu.Lock()
	e.addr, e.server = l.Addr().String(), server
	e.mu.Unlock()
	go func() { _ = server.Serve(l) }() // ends with cut
}
