package pods

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Gate holds the requests of jobs until it is opened.
type Gate struct {
	URL string
	// Full is closed when all jobs have arrived.
	Full <-chan struct{}

	opened chan struct{}
	server *http.Server
	served sync.WaitGroup
}

// NewGate serves a closed gate for n jobs on an address of this machine.
func NewGate(host string, n int) (*Gate, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0")) //nolint:noctx // Listen does not block
	if err != nil {
		return nil, fmt.Errorf("listening for jobs: %w", err)
	}
	full := make(chan struct{})
	g := &Gate{URL: "http://" + listener.Addr().String(), Full: full, opened: make(chan struct{})}
	var mu sync.Mutex
	arrived := 0
	g.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if arrived++; arrived == n {
			close(full)
		}
		mu.Unlock()
		select {
		case <-g.opened:
		case <-r.Context().Done():
		}
	})}
	g.served.Go(func() { _ = g.server.Serve(listener) })
	return g, nil
}

// Open lets the jobs pass.
func (g *Gate) Open() { close(g.opened) }

// Close ends the gate and its requests.
func (g *Gate) Close() {
	_ = g.server.Close()
	g.served.Wait()
}
