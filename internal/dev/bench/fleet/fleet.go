// Package fleet measures servers that have many agents. The agents and their jobs are goroutines
// that make the calls of an agent and a runner, so that the figures are the servers'.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"workflowagent/internal/retry"
)

// each calls do for the numbers from 0 to n in parallel, and returns the errors.
func each(n, workers int, do func(i int) error) error {
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// crew are agents that poll until they are dismissed.
type crew struct {
	stop context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// gather starts n agents within a time, each of which passes its jobs to work.
func (p *product) gather(ctx context.Context, n int, within time.Duration, work func(ctx context.Context, j *job) error) *crew {
	ctx, cancel := context.WithCancel(ctx)
	c := &crew{stop: cancel}
	for agent := range n {
		c.done.Go(func() {
			if within > 0 && retry.Sleep(ctx, rand.N(within)) != nil {
				return // dismissed
			}
			for ctx.Err() == nil {
				j, err := p.poll(ctx, agent)
				if err == nil && j != nil {
					err = work(ctx, j)
				}
				if err != nil && ctx.Err() == nil {
					c.mu.Lock()
					c.errs = append(c.errs, err)
					c.mu.Unlock()
					return
				}
			}
		})
	}
	return c
}

// dismiss stops the agents and returns the errors of those that had failed.
func (c *crew) dismiss() error {
	c.stop()
	c.done.Wait()
	return errors.Join(c.errs...)
}

// failed returns the agents' errors so far.
func (c *crew) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// collect receives n values, or returns an error if that takes too long or an agent fails.
func collect[T any](ctx context.Context, c *crew, from <-chan T, n int) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	check := time.NewTicker(time.Second)
	defer check.Stop()
	values := make([]T, 0, n)
	for len(values) < n {
		select {
		case v := <-from:
			values = append(values, v)
		case <-check.C:
			if err := c.failed(); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("only %d of %d jobs have finished: %w", len(values), n, context.Cause(ctx))
		}
	}
	return values, nil
}
