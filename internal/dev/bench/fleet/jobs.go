package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

// Jobs measures how many jobs a server queues, assigns and finishes, and how long each of many
// concurrent jobs takes.
func (b *Bench) Jobs(ctx context.Context) error {
	err := b.jobs(ctx, false)
	if reason, ok := lab.PostgresAvailable(); !ok {
		b.Say("  no PostgreSQL: %s", reason)
		b.Skip("jobs with PostgreSQL", "no PostgreSQL")
		return err
	}
	return errors.Join(err, b.jobs(ctx, true))
}

type jobFigures struct{ rate, cpu, missing, took []float64 }

func (b *Bench) jobs(ctx context.Context, postgres bool) error {
	n, agents, concurrent := pick(b, 2000, 40), pick(b, 64, 8), pick(b, 150, 20)
	p, err := b.startPair(ctx, postgres, max(n/4, concurrent))
	if err != nil {
		return err
	}
	defer p.close()
	var product, bare jobFigures
	for round := range b.Rounds {
		for _, side := range []struct {
			site    site
			figures *jobFigures
		}{{p.product, &product}, {p.bare, &bare}} {
			if err := throughput(ctx, side.site, n, agents, side.figures); err != nil {
				return err
			}
			if err := together(ctx, side.site, concurrent, side.figures); err != nil {
				return err
			}
		}
		b.Say("  round %d, %s: %.0f and %.0f jobs/s", round+1, p.name, product.rate[round], bare.rate[round])
	}
	b.Add(fmt.Sprintf("%d jobs enqueued, claimed and finished by %d agents, %s", n, agents, p.name), "jobs/s", product.rate, bare.rate, figures.RatioAtLeast(0.5, false))
	b.Add("CPU of the server", "ms per job", product.cpu, bare.cpu, figures.Goal{})
	b.Add("jobs lost or run twice", "jobs", product.missing, bare.missing, figures.AtMost(0, true))
	p95 := func(samples []float64) []float64 { return []float64{figures.Quantile(samples, 0.95)} }
	b.Add(fmt.Sprintf("%d concurrent jobs, enqueue to finished, p95, %s", concurrent, p.name), "ms", p95(product.took), p95(bare.took), figures.Goal{})
	return nil
}

// throughput enqueues jobs while agents run them.
func throughput(ctx context.Context, s site, n, agents int, f *jobFigures) error {
	finished := make(chan time.Time, 2*n)
	c := gather(ctx, s, agents, 0, func(ctx context.Context, j job) error {
		if err := errors.Join(j.start(ctx), j.finish(ctx)); err != nil {
			return err
		}
		finished <- time.Now()
		return nil
	})
	before, err := figures.FineCPU(s.pid())
	if err != nil {
		return errors.Join(err, c.dismiss())
	}
	began := time.Now()
	if err = each(n, 16, func(i int) error { return s.enqueue(ctx, i) }); err == nil {
		_, err = collect(ctx, c, finished, n)
	}
	took := time.Since(began)
	if err := errors.Join(err, c.dismiss()); err != nil {
		return err
	}
	after, err := figures.FineCPU(s.pid())
	f.rate = append(f.rate, float64(n)/took.Seconds())
	f.cpu = append(f.cpu, milliseconds(after-before)/float64(n))
	f.missing = append(f.missing, float64(len(finished))) // more than n were run
	return err
}

// together enqueues one job per agent at the same time. Each prints 2 KB.
func together(ctx context.Context, s site, n int, f *jobFigures) error {
	finished := make(chan time.Time, n)
	c := gather(ctx, s, n, 0, func(ctx context.Context, j job) error {
		if err := errors.Join(j.start(ctx), j.write(ctx, printed(2000)), j.finish(ctx)); err != nil {
			return err
		}
		finished <- time.Now()
		return nil
	})
	began := time.Now()
	err := each(n, n, func(i int) error { return s.enqueue(ctx, i) })
	var ends []time.Time
	if err == nil {
		ends, err = collect(ctx, c, finished, n)
	}
	for _, end := range ends {
		f.took = append(f.took, milliseconds(end.Sub(began)))
	}
	return errors.Join(err, c.dismiss())
}
