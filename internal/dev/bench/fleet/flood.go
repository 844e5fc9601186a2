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
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

// between is the pause between two heartbeats of a job. Real jobs pause for 10 s.
const between = time.Second

// Flood measures the heartbeats of running jobs while clients without valid credentials flood the server.
func Flood(ctx context.Context, run *figures.Run) error {
	err := flooded(ctx, run, "SQLite", site.Options{})
	if reason, ok := postgres.Available(); !ok {
		run.Skip("floods with PostgreSQL", reason)
		return err
	}
	return errors.Join(err, flooded(ctx, run, "PostgreSQL", site.Options{Postgres: true}))
}

func flooded(ctx context.Context, run *figures.Run, name string, o site.Options) error {
	jobs, period := figures.Pick(run, 50, 5), figures.Pick(run, 30*time.Second, 3*time.Second)
	p, err := start(ctx, run, o, jobs)
	if err != nil {
		return err
	}
	defer p.Close()
	running := make(chan *job, jobs)
	agents := p.gather(ctx, jobs, 0, func(ctx context.Context, j *job) error {
		err := j.start(ctx)
		running <- j
		<-ctx.Done() // the agent has no second job
		return err
	})
	err = each(jobs, 8, func(i int) error {
		_, err := p.enqueue(ctx, i)
		return err
	})
	var all []*job
	if err == nil {
		all, err = collect(ctx, agents, running, jobs)
	}
	var calm, during []float64
	if err == nil {
		calm, err = beats(ctx, all, period)
	}
	if err == nil {
		var f flood
		f, err = whileFlooded(ctx, p.URL, func() (err error) {
			during, err = beats(ctx, all, period)
			return err
		})
		run.Say("%d wrong tokens, %d giant bodies, %d documents that were not read and %d bodies that did not arrive in %s", f.Guessed, f.Sent, f.Unread, f.Begun, period)
	}
	if err := errors.Join(err, agents.dismiss()); err != nil {
		return err
	}
	run.Compare(fmt.Sprintf("heartbeats of %d running jobs during a flood, p95, and without it, %s", jobs, name), "ms",
		[]float64{figures.Quantile(during, 0.95)}, []float64{figures.Quantile(calm, 0.95)}, figures.AtMost(250, !run.Quick))
	run.Add("the slowest of them", "ms", []float64{figures.Quantile(during, 1)}, figures.Goal{})
	return nil
}

// beats sends heartbeats of jobs for a period, and returns how long each took. All must succeed.
func beats(ctx context.Context, jobs []*job, period time.Duration) (took []float64, err error) {
	var mu sync.Mutex
	end := time.Now().Add(period)
	err = each(len(jobs), len(jobs), func(i int) error {
		for time.Now().Before(end) {
			sent := time.Now()
			if _, err := jobs[i].next().Heartbeat(ctx, protocol.PhaseRunning); err != nil {
				return fmt.Errorf("a heartbeat: %w", err)
			}
			mu.Lock()
			took = append(took, figures.Milliseconds(time.Since(sent)))
			mu.Unlock()
			if err := retry.Sleep(ctx, retry.Spread(between)); err != nil {
				return err
			}
		}
		return nil
	})
	return took, err
}
