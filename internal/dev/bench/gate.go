package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"workflowagent/internal/retry"
)

// gate is a proxy that counts requests and can delay them.
type gate struct {
	url      string
	proxy    *httputil.ReverseProxy
	server   *http.Server
	served   sync.WaitGroup
	requests atomic.Int64
	delay    atomic.Int64 // nanoseconds before each request
}

func newGate(target string) (*gate, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("starting the proxy of a server: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // Listen does not block
	if err != nil {
		return nil, fmt.Errorf("listening for the proxy of a server: %w", err)
	}
	g := &gate{url: "http://" + listener.Addr().String()}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
	}
	g.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(g.pass)}
	g.served.Go(func() { _ = g.server.Serve(listener) })
	return g, nil
}

func (g *gate) pass(w http.ResponseWriter, r *http.Request) {
	g.requests.Add(1)
	if delay := time.Duration(g.delay.Load()); delay > 0 && retry.Sleep(r.Context(), delay) != nil {
		return
	}
	g.proxy.ServeHTTP(w, r)
}

func (g *gate) close() {
	_ = g.server.Close()
	g.served.Wait()
	g.proxy.Transport.(*http.Transport).CloseIdleConnections()
}

type gatedPair struct {
	product   *product
	yardstick *yardstick
	toProduct *gate
	toFloor   *gate
}

// startGated starts the product and the baseline, each with a gate between its agent and its
// server. The caller must close the pair, even after an error.
func (b *bench) startGated(ctx context.Context) (g gatedPair, err error) {
	if g.product, err = b.startProduct(ctx); err != nil {
		return g, err
	}
	if g.toProduct, err = newGate(g.product.server.URL); err != nil {
		return g, err
	}
	if err := g.product.startAgent(ctx, g.toProduct.url, nil); err != nil {
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
