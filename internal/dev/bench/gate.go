package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"workflowagent/internal/dev/bench/proxy"
	"workflowagent/internal/retry"
)

// gate is a proxy that counts requests and can delay them.
type gate struct {
	*proxy.Proxy
	requests atomic.Int64
	delay    atomic.Int64 // nanoseconds before each request
}

func newGate(target string) (*gate, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("starting the proxy of a server: %w", err)
	}
	g := &gate{}
	p, err := proxy.Start(func(r *http.Request) *url.URL {
		g.requests.Add(1)
		if delay := time.Duration(g.delay.Load()); delay > 0 {
			_ = retry.Sleep(r.Context(), delay) // a canceled request fails without the server's answer
		}
		return to
	})
	if err != nil {
		return nil, err
	}
	g.Proxy = p
	return g, nil
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
	if g.product, err = b.startProduct(ctx, ""); err != nil {
		return g, err
	}
	if g.toProduct, err = newGate(g.product.server.URL); err != nil {
		return g, err
	}
	if err := g.product.startAgent(ctx, g.toProduct.URL, nil); err != nil {
		return g, err
	}
	if g.yardstick, err = b.startYardstick(ctx, false); err != nil {
		return g, err
	}
	if g.toFloor, err = newGate(g.yardstick.url); err != nil {
		return g, err
	}
	g.yardstick.agent, err = b.startMinAgent(ctx, g.toFloor.URL, g.yardstick.dir, 1)
	return g, err
}

func (g gatedPair) close() {
	if g.toFloor != nil {
		g.toFloor.Close()
	}
	if g.yardstick != nil {
		g.yardstick.close()
	}
	if g.toProduct != nil {
		g.toProduct.Close()
	}
	if g.product != nil {
		g.product.close()
	}
}
