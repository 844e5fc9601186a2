package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

// Crowd runs many CLIs at the same time, first with a server and then with two servers that share a
// PostgreSQL database.
func (b *Bench) Crowd(ctx context.Context) error {
	err := b.crowd(ctx, "SQLite", b.startProduct, b.startStub)
	const shared = "PostgreSQL with two replicas"
	if reason, ok := lab.PostgresAvailable(); !ok {
		b.Say("  no PostgreSQL: %s", reason)
		b.Skip(shared, "no PostgreSQL")
		return err
	}
	return errors.Join(err, b.crowd(ctx, shared, b.startReplicas, b.startDistantStub))
}

type crowd struct {
	b          *Bench
	clients, n int // n is the number of resources of each client
	product    *product
	stub       *stub
	server     []*cli
	toStub     []*cli

	wall, floor, used []float64
	missing           float64
}

func (b *Bench) crowd(ctx context.Context, name string, startProduct func(context.Context) (*product, error), startStub func(context.Context) (*stub, error)) (err error) {
	c := crowd{b: b, clients: pick(b, 50, 4), n: pick(b, 100, 25)}
	if c.product, err = startProduct(ctx); err != nil {
		return err
	}
	defer c.product.close()
	if c.stub, err = startStub(ctx); err != nil {
		return err
	}
	defer c.stub.close()
	if err := c.gather(ctx); err != nil {
		return err
	}
	for round := range min(b.Rounds, 2) {
		if err := c.round(ctx, fmt.Sprintf("crowd%d-", round)); err != nil {
			return err
		}
		b.Say("  round %d, %s: server %.1f s, stub %.1f s, server CPU %.2f s", round+1, name, last(c.wall), last(c.floor), last(c.used))
	}
	peak, err := c.product.peak()
	if err != nil {
		return err
	}
	b.Add(fmt.Sprintf("%d concurrent ups of %d, %s; stub", c.clients, c.n, name), "s", c.wall, c.floor, figures.RatioAtMost(1.3, false))
	b.Add("CPU of the server", "s", c.used, nil, figures.Goal{})
	b.Add("peak RSS of the server", "MB", []float64{peak}, nil, figures.Goal{})
	b.Add("resources missing in a stored state", "resources", []float64{c.missing}, nil, figures.AtMost(0, true))
	return nil
}

// gather creates the CLIs.
func (c *crowd) gather(ctx context.Context) error {
	all, err := c.b.newCLIs(ctx, c.n)
	if err != nil {
		return err
	}
	for range c.clients {
		one, err := all.forProduct(c.product)
		if err != nil {
			return err
		}
		other, err := all.forStub(c.stub)
		if err != nil {
			return err
		}
		c.server, c.toStub = append(c.server, one), append(c.toStub, other)
	}
	return nil
}

func (c *crowd) round(ctx context.Context, prefix string) error {
	for i := range c.clients {
		if err := c.product.newStack(ctx, fmt.Sprint(prefix, i)); err != nil {
			return err
		}
	}
	before, err := c.product.rested(ctx)
	if err != nil {
		return err
	}
	seconds, err := together(ctx, c.server, prefix)
	if err != nil {
		return err
	}
	after, err := c.product.rested(ctx)
	if err != nil {
		return err
	}
	c.wall, c.used = append(c.wall, seconds), append(c.used, after-before)
	if seconds, err = together(ctx, c.toStub, prefix); err != nil {
		return err
	}
	c.floor = append(c.floor, seconds)
	for i := range c.clients {
		state, err := c.product.export(ctx, fmt.Sprint(prefix, i))
		if err != nil {
			return err
		}
		c.missing += math.Abs(float64(c.n - state.stashes))
	}
	return nil
}

// together updates one stack with each CLI concurrently, and returns the seconds until all have
// finished.
func together(ctx context.Context, clients []*cli, prefix string) (float64, error) {
	began := time.Now()
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			_, errs[i] = c.with(fast()).on(ctx, fmt.Sprint(prefix, i), "up", "--yes", "--skip-preview")
		})
	}
	all.Wait()
	return time.Since(began).Seconds(), errors.Join(errs...)
}
