package fleet

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/retry"
)

type agentFigures struct{ rss, cpu, wake []float64 }

// Agents measures a server with many agents that have no job, and the time until one of them gets
// one.
func (b *Bench) Agents(ctx context.Context) error {
	n, wakes := pick(b, 5000, 200), pick(b, 100, 10)
	p, err := b.startPair(ctx, false, wakes)
	if err != nil {
		return err
	}
	defer p.close()
	var product, bare agentFigures
	for _, side := range []struct {
		site    site
		figures *agentFigures
	}{{p.product, &product}, {p.bare, &bare}} {
		if err := b.agents(ctx, side.site, n, wakes, side.figures); err != nil {
			return err
		}
	}
	// With few agents and little time, these two figures are a server's fixed cost.
	b.Add(fmt.Sprintf("RSS with %d idle agents", n), "MB", product.rss, bare.rss, pick(b, figures.RatioAtMost(2, false), figures.Goal{}))
	b.Add("CPU per minute with them", "s", product.cpu, bare.cpu, pick(b, figures.RatioAtMost(3, false), figures.Goal{}))
	b.Add("enqueue to claimed by one of them", "ms", product.wake, bare.wake, figures.RatioAtMost(3, false))
	return nil
}

func (b *Bench) agents(ctx context.Context, s site, n, wakes int, f *agentFigures) error {
	claimed := make(chan time.Time, wakes)
	// Agents that began together would also repeat their polls together.
	agents := gather(ctx, s, n, pick(b, hold, time.Second), func(ctx context.Context, j job) error {
		claimed <- time.Now()
		if err := j.start(ctx); err != nil {
			return err
		}
		return j.finish(ctx)
	})
	err := b.watch(ctx, s, agents, wakes, claimed, f)
	if failed := agents.dismiss(); failed != nil {
		err = failed
	}
	return err
}

func (b *Bench) watch(ctx context.Context, s site, agents *crew, wakes int, claimed <-chan time.Time, f *agentFigures) error {
	// All agents have begun to poll, and the garbage of that has been collected.
	if err := retry.Sleep(ctx, pick(b, 130*time.Second, 2*time.Second)); err != nil {
		return err
	}
	before, err := figures.FineCPU(s.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := retry.Sleep(ctx, pick(b, 100*time.Second, 2*time.Second)); err != nil {
		return err
	}
	after, err := figures.FineCPU(s.pid())
	if err != nil {
		return err
	}
	f.cpu = append(f.cpu, (after-before).Seconds()/time.Since(began).Minutes())
	rss, err := figures.Memory(s.pid(), "VmRSS")
	if err != nil {
		return err
	}
	f.rss = append(f.rss, float64(rss)/1e6)
	for i := range wakes {
		sent := time.Now()
		if err := s.enqueue(ctx, i); err != nil {
			return err
		}
		got, err := collect(ctx, agents, claimed, 1)
		if err != nil {
			return err
		}
		f.wake = append(f.wake, milliseconds(got[0].Sub(sent)))
	}
	return nil
}
