package main

import (
	"context"
	"errors"
	"fmt"
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

// gate passes requests on to a server. It counts them, can make each of them slow,
// and can be shut: then nobody listens at its address.
type gate struct {
	url, addr string
	proxy     *httputil.ReverseProxy
	server    *http.Server
	served    sync.WaitGroup
	requests  atomic.Int64
	delay     atomic.Int64   // nanoseconds before each request
	polled    chan time.Time // the first poll
}

func newGate(target string) (*gate, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("putting a gate before a server: %w", err)
	}
	g := &gate{addr: "127.0.0.1:0", polled: make(chan time.Time, 1)}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
	}
	if err := g.open(); err != nil {
		return nil, err
	}
	g.url = "http://" + g.addr
	return g, nil
}

// open listens, at the same address each time.
func (g *gate) open() error {
	listener, err := net.Listen("tcp", g.addr) //nolint:noctx // it does not wait for anyone
	if err != nil {
		return fmt.Errorf("opening the gate before a server: %w", err)
	}
	g.addr = listener.Addr().String()
	g.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(g.pass)}
	server := g.server
	g.served.Go(func() { _ = server.Serve(listener) })
	return nil
}

func (g *gate) pass(w http.ResponseWriter, r *http.Request) {
	g.requests.Add(1)
	if strings.HasSuffix(r.URL.Path, "/poll") {
		select {
		case g.polled <- time.Now():
		default:
		}
	}
	if delay := time.Duration(g.delay.Load()); delay > 0 && retry.Sleep(r.Context(), delay) != nil {
		return
	}
	g.proxy.ServeHTTP(w, r)
}

// shut cuts all connections and takes no more.
func (g *gate) shut() {
	_ = g.server.Close()
	g.served.Wait()
}

func (g *gate) close() {
	g.shut()
	g.proxy.Transport.(*http.Transport).CloseIdleConnections()
}

// firstPoll waits for it.
func (g *gate) firstPoll(ctx context.Context, since time.Time) (float64, error) {
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case at := <-g.polled:
		return milliseconds(at.Sub(since)), nil
	case <-timer.C:
		return 0, errors.New("the agent did not poll within 30s")
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// gatedPair is product and yardstick, each with its agent behind a gate.
type gatedPair struct {
	product   *product
	yardstick *yardstick
	toProduct *gate
	toFloor   *gate
}

// startGated starts such a pair. It is to be closed after an error too.
func (b *bench) startGated(ctx context.Context) (g gatedPair, err error) {
	if g.product, err = b.startProduct(ctx); err != nil {
		return g, err
	}
	if g.toProduct, err = newGate(g.product.server.URL); err != nil {
		return g, err
	}
	if err := g.product.startAgent(ctx, g.toProduct.url, "process", nil); err != nil {
		return g, err
	}
	if g.yardstick, err = b.startYardstick(ctx, false); err != nil {
		return g, err
	}
	if g.toFloor, err = newGate(g.yardstick.url); err != nil {
		return g, err
	}
	g.yardstick.agent, err = b.startMinAgent(ctx, g.toFloor.url, g.yardstick.dir, 1)
	return g, err
}

func (g gatedPair) close() {
	if g.toFloor != nil {
		g.toFloor.close()
	}
	if g.yardstick != nil {
		g.yardstick.close()
	}
	if g.toProduct != nil {
		g.toProduct.close()
	}
	if g.product != nil {
		g.product.close()
	}
}
