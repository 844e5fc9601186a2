package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab/postgres"
)

// Queue measures how many short jobs of one organization servers queue, assign and finish: one server
// with SQLite, and one, two and four with PostgreSQL.
func Queue(ctx context.Context, run *figures.Run) error {
	err := queue(ctx, run, site.Options{})
	if reason, ok := postgres.Available(); !ok {
		run.Skip("jobs with PostgreSQL", reason)
		return err
	}
	for _, servers := range figures.Pick(run, []int{1, 2, 4}, nil) {
		err = errors.Join(err, queue(ctx, run, site.Options{Postgres: true, Servers: servers}))
	}
	return err
}

// queueFigures have one sample per round.
type queueFigures struct{ rate, cpu, database, missing, statements, claims, repeated, deadlocks []float64 }

func queue(ctx context.Context, run *figures.Run, o site.Options) error {
	n, agents := figures.Pick(run, 2000, 100), figures.Pick(run, 64, 8)
	p, err := start(ctx, run, o, n/4)
	if err != nil {
		return err
	}
	defer p.Close()
	name, rate, cpu := "SQLite", 100.0, 15.0
	if o.Postgres {
		name, rate = fmt.Sprintf("PostgreSQL, %d servers", o.Servers), 60
	}
	if o.Servers > 1 {
		cpu = 18
	}
	var f queueFigures
	for range run.Rounds {
		if err := p.throughput(ctx, n, agents, &f); err != nil {
			return err
		}
		run.Say("  %s: %.0f jobs/s, %.1f ms of CPU per job", name, last(f.rate), last(f.cpu))
	}
	run.Add(fmt.Sprintf("%d jobs, %s", n, name), "jobs/s", f.rate, figures.AtLeast(rate, false))
	run.Add("CPU of servers and database per job", "ms", f.cpu, figures.AtMost(cpu, !run.Quick))
	run.Add("jobs run twice", "jobs", f.missing, figures.AtMost(0, true))
	if !o.Postgres {
		return nil
	}
	run.Add("of it, the database", "ms", f.database, figures.Goal{})
	run.Add("statements per job", "statements", f.statements, figures.Goal{})
	if figures.Median(f.claims) > 0 {
		// One attempt finds the job, and at most one finds nothing.
		run.Add("attempts to claim per job", "attempts", f.claims, figures.AtMost(2, false))
	} else {
		run.Skip("attempts to claim per job", "no statement looks like the query for claimable jobs")
	}
	run.Add("transactions repeated because of another", "transactions", f.repeated, figures.AtMost(0, true))
	run.Add("deadlocks", "deadlocks", f.deadlocks, figures.AtMost(0, true))
	return nil
}

// throughput enqueues jobs while agents run them.
func (p *product) throughput(ctx context.Context, n, agents int, f *queueFigures) error {
	finished := make(chan struct{}, 2*n)
	c := p.gather(ctx, agents, 0, func(ctx context.Context, j *job) error {
		if err := errors.Join(j.start(ctx), j.finish(ctx)); err != nil {
			return err
		}
		finished <- struct{}{}
		return nil
	})
	before, cpu, err := p.work(ctx)
	if err != nil {
		return errors.Join(err, c.dismiss())
	}
	began := time.Now()
	if err = each(n, 16, func(i int) error { _, err := p.enqueue(ctx, i); return err }); err == nil {
		_, err = collect(ctx, c, finished, n)
	}
	took := time.Since(began)
	if err := errors.Join(err, c.dismiss()); err != nil {
		return err
	}
	after, used, err := p.work(ctx)
	jobs := float64(n)
	work := after.Used(before)
	f.rate = append(f.rate, jobs/took.Seconds())
	f.cpu = append(f.cpu, figures.Milliseconds(used-cpu+work.CPU)/jobs)
	f.database = append(f.database, figures.Milliseconds(work.CPU)/jobs)
	f.missing = append(f.missing, float64(len(finished))) // more than n were run
	f.statements = append(f.statements, work.Statements/jobs)
	f.claims = append(f.claims, work.Claims/jobs)
	f.repeated = append(f.repeated, work.Repeated)
	f.deadlocks = append(f.deadlocks, work.Deadlocks)
	return err
}

// work returns what the database has done, and the CPU time of the servers.
func (p *product) work(ctx context.Context) (work site.Work, cpu time.Duration, err error) {
	if p.Database != nil {
		if work, err = p.Database.Work(ctx); err != nil {
			return work, 0, err
		}
	}
	cpu, err = p.CPU()
	return work, cpu, err
}

func last(samples []float64) float64 { return samples[len(samples)-1] }
