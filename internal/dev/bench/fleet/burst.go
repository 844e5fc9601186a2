package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab/postgres"
)

// offered is the number of jobs per second of the second load.
const offered = 30

// Burst measures how long jobs take that start together, and jobs at a rate that a server sustains.
func Burst(ctx context.Context, run *figures.Run) error {
	err := burst(ctx, run, "SQLite", site.Options{})
	if reason, ok := postgres.Available(); !ok {
		run.Skip("bursts with PostgreSQL", reason)
		return err
	}
	return errors.Join(err, burst(ctx, run, "PostgreSQL", site.Options{Postgres: true}))
}

func burst(ctx context.Context, run *figures.Run, name string, o site.Options) error {
	concurrent, steady := figures.Pick(run, 150, 20), figures.Pick(run, 600, 30)
	p, err := start(ctx, run, o, max(concurrent, steady/4))
	if err != nil {
		return err
	}
	defer p.Close()
	var together, spread []float64
	for range run.Rounds {
		took, err := p.latencies(ctx, concurrent, concurrent, 0)
		if err != nil {
			return err
		}
		together = append(together, took...)
		if took, err = p.latencies(ctx, steady, concurrent, time.Second/offered); err != nil {
			return err
		}
		spread = append(spread, took...)
	}
	p95 := func(samples []float64) []float64 { return []float64{figures.Quantile(samples, 0.95)} }
	run.Add(fmt.Sprintf("%d jobs that start together, enqueue to finished, p95, %s", concurrent, name), "ms", p95(together), figures.AtMost(2500, false))
	run.Add(fmt.Sprintf("%d jobs/s offered, enqueue to finished, p95, %s", offered, name), "ms", p95(spread), figures.AtMost(300, false))
	return nil
}

// latencies enqueues jobs at an interval, or all at once if it is 0, and returns how long each took. Each
// prints 2 KB.
func (p *product) latencies(ctx context.Context, n, agents int, interval time.Duration) ([]float64, error) {
	var mu sync.Mutex
	ends := map[string]time.Time{}
	finished := make(chan struct{}, n)
	c := p.gather(ctx, agents, 0, func(ctx context.Context, j *job) error {
		if err := errors.Join(j.start(ctx), j.write(ctx, printed(2000)), j.finish(ctx)); err != nil {
			return err
		}
		mu.Lock()
		ends[j.deployment] = time.Now()
		mu.Unlock()
		finished <- struct{}{}
		return nil
	})
	sent, ids := make([]time.Time, n), make([]string, n)
	began := time.Now()
	err := each(n, n, func(i int) (err error) {
		select {
		case <-time.After(time.Until(began.Add(time.Duration(i) * interval))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		sent[i] = time.Now()
		ids[i], err = p.enqueue(ctx, i)
		return err
	})
	if err == nil {
		_, err = collect(ctx, c, finished, n)
	}
	if err := errors.Join(err, c.dismiss()); err != nil {
		return nil, err
	}
	took := make([]float64, n)
	for i, id := range ids {
		took[i] = figures.Milliseconds(ends[id].Sub(sent[i]))
	}
	return took, nil
}
