package pods

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Gate holds the requests of jobs until it is opened. A held request shows that its job runs.
type Gate struct {
	URL string

	wanted  int64
	arrived atomic.Int64
	opened  chan struct{}
	server  *http.Server
	served  sync.WaitGroup
}

// NewGate serves a closed gate for n jobs on an address of this machine. The caller must close it.
func NewGate(host string, n int) (*Gate, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0")) //nolint:noctx // Listen does not block
	if err != nil {
		return nil, fmt.Errorf("listening for jobs: %w", err)
	}
	g := &Gate{URL: "http://" + listener.Addr().String(), wanted: int64(n), opened: make(chan struct{})}
	g.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.arrived.Add(1)
		select {
		case <-g.opened:
		case <-r.Context().Done():
		}
	})}
	g.served.Go(func() { _ = g.server.Serve(listener) })
	return g, nil
}

// Arrived returns the number of jobs that have arrived.
func (g *Gate) Arrived() int64 { return g.arrived.Load() }

// Full reports whether all jobs have arrived.
func (g *Gate) Full() bool { return g.Arrived() == g.wanted }

// Open lets the jobs pass.
func (g *Gate) Open() { close(g.opened) }

// Close ends the gate and its requests.
func (g *Gate) Close() {
	_ = g.server.Close()
	g.served.Wait()
}
