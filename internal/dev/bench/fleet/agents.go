package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/retry"
)

// Agents measures a server with many agents that have no job, and the time until one of them gets
// one.
func Agents(ctx context.Context, run *figures.Run) error {
	n, wakes := figures.Pick(run, 5000, 200), figures.Pick(run, 100, 10)
	p, err := start(ctx, run, site.Options{}, wakes)
	if err != nil {
		return err
	}
	defer p.Close()
	claimed := make(chan time.Time, wakes)
	// Agents that began together would also repeat their polls together.
	agents := p.gather(ctx, n, figures.Pick(run, hold, time.Second), func(ctx context.Context, j *job) error {
		claimed <- time.Now()
		return errors.Join(j.start(ctx), j.finish(ctx))
	})
	rss, cpu, err := p.rest(ctx, run)
	var wake []float64
	for i := range wakes {
		if err != nil {
			break
		}
		sent := time.Now()
		if _, err = p.enqueue(ctx, i); err != nil {
			break
		}
		var got []time.Time
		if got, err = collect(ctx, agents, claimed, 1); err == nil {
			wake = append(wake, figures.Milliseconds(got[0].Sub(sent)))
		}
	}
	if err := errors.Join(err, agents.dismiss()); err != nil {
		return err
	}
	run.Add(fmt.Sprintf("RSS of the server with %d idle agents", n), "MB", []float64{rss}, figures.AtMost(500, true))
	run.Add("its CPU per minute", "s", []float64{cpu}, figures.AtMost(10, !run.Quick))
	run.Add("enqueue to claimed by one of them", "ms", wake, figures.AtMost(50, false))
	return nil
}

// rest returns the server's memory in MB, and its CPU seconds per minute.
func (p *product) rest(ctx context.Context, run *figures.Run) (rss, cpu float64, err error) {
	// All agents have begun to poll, and the garbage of that has been collected.
	if err := retry.Sleep(ctx, figures.Pick(run, 130*time.Second, 2*time.Second)); err != nil {
		return 0, 0, err
	}
	period := figures.Pick(run, 100*time.Second, 2*time.Second)
	used, err := figures.Spent(p.CPU, func() error { return retry.Sleep(ctx, period) })
	if err != nil {
		return 0, 0, err
	}
	rss, _, err = p.Memory()
	return rss, used.Seconds() / period.Minutes(), err
}
