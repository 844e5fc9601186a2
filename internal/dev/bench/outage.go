package main

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/retry"
)

// outage has jobs end while the server cannot be reached, and measures how long
// after its return it knows that. The yardstick would lose the jobs.
func (b *bench) outage(ctx context.Context) error {
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	g, err := newGate(p.server.URL)
	if err != nil {
		return err
	}
	defer g.close()
	if err := p.startAgent(ctx, g.url, "process", map[string]string{"max_concurrent_jobs": fmt.Sprint(slotCount)}); err != nil {
		return err
	}
	// One outage is met by each job in another state of its waiting.
	jobs, away := pick(b, 10, 3), pick(b, 15*time.Second, 3*time.Second)
	stacks, err := p.newStacks(ctx, jobs)
	if err != nil {
		return err
	}
	var late, wrong []float64
	for range b.rounds {
		queued, err := b.runUntilSilent(ctx, p, stacks)
		if err != nil {
			return err
		}
		g.shut()
		shut := time.Now()
		for _, job := range queued {
			if err := job.proceed(); err != nil {
				return err
			}
			if err := appears(ctx, job.site.last(job.file)); err != nil {
				return err
			}
		}
		if err := retry.Sleep(ctx, time.Until(shut.Add(away))); err != nil {
			return err
		}
		returned := time.Now()
		if err := g.open(); err != nil {
			return err
		}
		took, bad, err := awaitAll(ctx, p, queued, "succeeded")
		if err != nil {
			return err
		}
		for _, end := range took {
			late = append(late, milliseconds(end.Sub(returned)))
		}
		wrong = append(wrong, float64(bad))
	}
	b.say("  finished %.0f ms after the return", median(late))
	b.add(fmt.Sprintf("server back after %s to finished", away), "ms", late, nil, goal{atMost, 2000, false})
	b.add("wrong statuses, lines lost or doubled", "lines", wrong, nil, goal{atMost, 0, true})
	return nil
}
