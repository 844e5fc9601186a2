package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

// Crowd runs many CLIs at the same time, first with the server and then with the stub.
func (b *Bench) Crowd(ctx context.Context) error {
	clients, n := pick(b, 50, 4), pick(b, 100, 25)
	u, err := b.newComparison(ctx, n)
	if err != nil {
		return err
	}
	defer u.close()
	c, err := b.newCLIs(ctx, n)
	if err != nil {
		return err
	}
	var server, stub []*cli
	for range clients {
		one, err := c.forProduct(u.product)
		if err != nil {
			return err
		}
		other, err := c.forStub(u.stub)
		if err != nil {
			return err
		}
		server, stub = append(server, one), append(stub, other)
	}
	var wall, floor, used []float64
	missing := 0.0
	for round := range min(b.Rounds, 2) {
		prefix := fmt.Sprintf("crowd%d-", round)
		for i := range clients {
			if err := u.product.newStack(ctx, fmt.Sprint(prefix, i)); err != nil {
				return err
			}
		}
		before, err := u.product.rested(ctx)
		if err != nil {
			return err
		}
		seconds, err := together(ctx, server, prefix)
		if err != nil {
			return err
		}
		after, err := u.product.rested(ctx)
		if err != nil {
			return err
		}
		wall, used = append(wall, seconds), append(used, after-before)
		if seconds, err = together(ctx, stub, prefix); err != nil {
			return err
		}
		floor = append(floor, seconds)
		for i := range clients {
			state, err := u.product.export(ctx, fmt.Sprint(prefix, i))
			if err != nil {
				return err
			}
			missing += math.Abs(float64(n - state.stashes))
		}
		b.Say("  round %d: server %.1f s, stub %.1f s, server CPU %.2f s", round+1, last(wall), last(floor), last(used))
	}
	peak, err := u.product.peak()
	if err != nil {
		return err
	}
	b.Add(fmt.Sprintf("%d concurrent ups of %d; stub", clients, n), "s", wall, floor, figures.RatioAtMost(1.3, false))
	b.Add("CPU of the server", "s", used, nil, figures.Goal{})
	b.Add("peak RSS of the server", "MB", []float64{peak}, nil, figures.Goal{})
	b.Add("resources missing in a stored state", "resources", []float64{missing}, nil, figures.AtMost(0, true))
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
