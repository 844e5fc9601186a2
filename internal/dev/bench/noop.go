package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/retry"
)

const (
	// jobPause separates two jobs, so that both sides have cleaned up before the next job starts.
	jobPause    = 50 * time.Millisecond
	jobPatience = time.Minute
	jobLines    = 10
)

type jobFigures struct {
	enqueue, start, end, between, whole []float64 // milliseconds
	cpu                                 []float64 // milliseconds per job of the agent and its descendants
	missing                             []float64 // lines missing from the log when the job finished
}

// noop runs small jobs one at a time, alternating between the product and the baseline.
func (b *bench) noop(ctx context.Context) error {
	p, err := b.startProduct(ctx, "")
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.startAgent(ctx, p.server.URL, nil); err != nil {
		return err
	}
	y, err := b.startYardstick(ctx, true)
	if err != nil {
		return err
	}
	defer y.close()

	// Warm-up runs are not counted.
	if err := b.alternate(ctx, 2, p, y, &jobFigures{}, &jobFigures{}); err != nil {
		return err
	}
	var product, floor jobFigures
	for round := range b.rounds {
		if err := b.alternate(ctx, pick(b, 20, 8), p, y, &product, &floor); err != nil {
			return err
		}
		b.say("  round %d: queued to running %.1f and %.1f ms, exit to finished %.1f and %.1f ms (medians so far)", round+1,
			figures.Median(product.start), figures.Median(floor.start), figures.Median(product.end), figures.Median(floor.end))
	}
	b.add("enqueue call", "ms", product.enqueue, floor.enqueue, figures.Goal{})
	b.add("queued to process running", "ms", product.start, floor.start, figures.RatioAtMost(2.5, false))
	b.add("process exit to finished, log complete", "ms", product.end, floor.end, figures.RatioAtMost(4, false))
	b.add("between pre-run command and pulumi", "ms", product.between, nil, figures.Goal{})
	b.add("whole job", "ms", product.whole, floor.whole, figures.Goal{})
	b.add("CPU of the agent side per job", "ms", product.cpu, floor.cpu, figures.Goal{})
	b.add("log lines missing at finished", "lines", product.missing, floor.missing, figures.AtMost(0, true))
	return nil
}

func (b *bench) alternate(ctx context.Context, n int, p *product, y *yardstick, product, floor *jobFigures) error {
	sides := []struct {
		site    site
		figures *jobFigures
	}{{p, product}, {y, floor}}
	var cpuBefore [2]time.Duration
	for i, side := range sides {
		var err error
		if cpuBefore[i], err = figures.CPU(side.site.agentPID()); err != nil {
			return err
		}
	}
	for range n {
		for _, side := range sides {
			if err := b.measureJob(ctx, side.site, side.figures); err != nil {
				return err
			}
		}
	}
	for i, side := range sides {
		after, err := figures.CPU(side.site.agentPID())
		if err != nil {
			return err
		}
		side.figures.cpu = append(side.figures.cpu, milliseconds(after-cpuBefore[i])/float64(n))
	}
	return nil
}

func (b *bench) measureJob(ctx context.Context, s site, f *jobFigures) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "stamp")
	job, t, err := runJob(ctx, s, fmt.Sprintf("%s %s %d", b.stamp(), file, jobLines), file, time.Millisecond, jobPatience)
	if err != nil {
		return err
	}
	missing, err := countLines(ctx, s, job, jobLines)
	if err != nil {
		return err
	}
	f.add(t, missing)
	if err := alone(ctx, s.agentPID()); err != nil {
		return err
	}
	return retry.Sleep(ctx, jobPause)
}

func (f *jobFigures) add(t jobTimes, missing int) {
	f.enqueue = append(f.enqueue, milliseconds(t.queued.Sub(t.sent)))
	f.start = append(f.start, milliseconds(t.first.began.Sub(t.queued)))
	f.between = append(f.between, milliseconds(t.last.began.Sub(t.first.ended)))
	f.end = append(f.end, milliseconds(t.finished.Sub(t.last.ended)))
	f.whole = append(f.whole, milliseconds(t.finished.Sub(t.sent)))
	f.missing = append(f.missing, float64(missing))
}
