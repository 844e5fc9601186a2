package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/pods"
)

// crowdPatience is the time limit for the start, and for the end, of many jobs in pods.
const crowdPatience = 6 * time.Minute

// manyPods runs many jobs in pods at the same time. The containers, the node and the cluster are
// real. The baseline is a client that creates pods with the same containers, without the product.
func (b *bench) manyPods(ctx context.Context) error {
	n := pick(b, 200, 4)
	return b.inPods(ctx, n+1, func(place *pods.Place, p *product) error {
		var stacks []string
		for i := range n {
			stack, err := p.newStack(ctx, fmt.Sprintf("job%d", i))
			if err != nil {
				return err
			}
			stacks = append(stacks, stack)
		}
		before := place.Calls()
		product, err := b.startCrowd(ctx, place, p, n, func(ctx context.Context, i int, command string) (string, error) {
			return p.enqueueAt(ctx, stacks[i], command, "-")
		})
		if err != nil {
			return err
		}
		end, err := b.endCrowd(ctx, place, p, product)
		if err != nil {
			return err
		}
		peak, err := figures.Memory(p.agentPID(), "VmHWM")
		if err != nil {
			return err
		}
		calls := float64(place.Calls()-before) / float64(n+1)
		b.say("  peak RSS of the agent %.1f MB, %.1f calls per job", megabytes(peak), calls)

		same := barePods{place.Bare(true)}
		bare, err := b.startCrowd(ctx, place, same, n, func(ctx context.Context, _ int, command string) (string, error) {
			return same.Create(ctx, command)
		})
		if err != nil {
			return err
		}
		bare.gate.Close() // the pods end with the cluster
		b.add(fmt.Sprintf("%d jobs queued until all run; pods with the same containers", n), "s", product.start, bare.start, figures.Goal{})
		b.add("line at 10/s written to visible meanwhile, p95; log of a pod", "ms", product.lag.high, bare.lag.high, figures.Goal{})
		b.add("lines not seen once and in order", "lines", product.lag.wrong, bare.lag.wrong, figures.AtMost(0, true))
		b.add("end of the jobs until all pods are gone", "s", []float64{end}, nil, figures.Goal{})
		b.add("peak RSS of the agent", "MB", []float64{megabytes(peak)}, nil, figures.AtMost(128, true))
		b.add("calls of the cluster's API per job", "calls", []float64{calls}, nil, figures.AtMost(24, true))
		return nil
	})
}

// crowd are jobs that wait at a gate.
type crowd struct {
	gate  *pods.Gate
	jobs  []string
	start []float64 // seconds until all of them ran, in one sample
	lag   lagFigures
}

// startCrowd starts n jobs that wait until all of them run. Then it measures the lag of another job's
// lines. The caller must close the gate.
func (b *bench) startCrowd(
	ctx context.Context, place *pods.Place, s jobs, n int,
	start func(ctx context.Context, i int, command string) (job string, err error),
) (c crowd, err error) {
	if c.gate, err = pods.NewGate(place.Host, n); err != nil {
		return c, err
	}
	defer func() {
		if err != nil {
			c.gate.Close()
		}
	}()
	began := time.Now()
	c.jobs = make([]string, n)
	if err := each(ctx, n, func(ctx context.Context, i int) (err error) {
		c.jobs[i], err = start(ctx, i, "exec wget -q -O /dev/null "+c.gate.URL)
		return err
	}); err != nil {
		return c, err
	}
	err = until(ctx, podInterval, crowdPatience, "the start of all pods", func() (bool, error) { return c.gate.Full(), nil })
	if err != nil {
		return c, fmt.Errorf("%w; %d of %d run", err, c.gate.Arrived(), n)
	}
	c.start = []float64{time.Since(began).Seconds()}
	b.say("  %d jobs run after %.1f s", n, c.start[0])
	if err := measureLag(ctx, s, pods.Stamp, 10, pick(b, 100, 20), &c.lag); err != nil {
		return c, err
	}
	b.say("  lag of a line meanwhile, p95: %.0f ms", last(c.lag.high))
	return c, nil
}

// endCrowd lets the jobs end. It returns the seconds until their pods are gone.
func (b *bench) endCrowd(ctx context.Context, place *pods.Place, s jobs, c crowd) (seconds float64, err error) {
	defer c.gate.Close()
	began := time.Now()
	c.gate.Open()
	if err := each(ctx, len(c.jobs), func(ctx context.Context, i int) error {
		return until(ctx, 20*podInterval, crowdPatience, "the job's exit", func() (bool, error) { return s.finished(ctx, c.jobs[i]) })
	}); err != nil {
		return 0, err
	}
	if err := podsGone(ctx, place, crowdPatience); err != nil {
		return 0, err
	}
	seconds = time.Since(began).Seconds()
	b.say("  the pods are gone %.1f s after the end of their jobs", seconds)
	return seconds, nil
}

// each calls do for the numbers below n, a few at a time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(8)
	for i := range n {
		all.Go(func() error { return do(ctx, i) })
	}
	return all.Wait()
}
