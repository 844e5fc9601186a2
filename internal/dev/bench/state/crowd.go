package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab/postgres"
)

// Crowd runs many CLIs at the same time, first with a server and then with two servers that share a
// PostgreSQL database, and compares them with as many engines alone.
func Crowd(ctx context.Context, run *figures.Run) error {
	clients, n := figures.Pick(run, 50, 4), figures.Pick(run, 100, 25)
	all, err := newCLIs(ctx, run, n)
	if err != nil {
		return err
	}
	var engines []*cli
	for range clients {
		files, err := all.forFiles()
		if err != nil {
			return err
		}
		engines = append(engines, files.with(engineAlone()))
	}
	rounds := min(run.Rounds, 2)
	var engine []float64
	for round := range rounds {
		took, err := together(ctx, engines, fmt.Sprintf("engine%d-", round))
		if err != nil {
			return err
		}
		engine = append(engine, took)
	}
	err = crowd(ctx, run, all, "SQLite", clients, n, engine, site.Options{})
	const shared = "PostgreSQL with two servers"
	if reason, ok := postgres.Available(); !ok {
		run.Skip(shared, reason)
		return err
	}
	return errors.Join(err, crowd(ctx, run, all, shared, clients, n, engine, site.Options{Postgres: true, Servers: 2}))
}

func crowd(ctx context.Context, run *figures.Run, all *clis, name string, clients, n int, engine []float64, o site.Options) error {
	s, err := site.Start(ctx, run, o)
	if err != nil {
		return err
	}
	defer s.Close()
	var servers []*cli
	for range clients {
		c, err := all.forSite(s)
		if err != nil {
			return err
		}
		servers = append(servers, c.with(fast()))
	}
	var wall, cpu []float64
	missing := 0.0
	for round := range engine {
		prefix := fmt.Sprintf("servers%d-%d-", max(o.Servers, 1), round)
		var took float64
		_, used, err := s.Timed(ctx, func() (err error) {
			took, err = together(ctx, servers, prefix)
			return err
		})
		if err != nil {
			return err
		}
		wall, cpu = append(wall, took), append(cpu, used)
		for i := range clients {
			_, stashes, err := export(ctx, s, fmt.Sprint(prefix, i))
			if err != nil {
				return err
			}
			missing += math.Abs(float64(n - stashes))
		}
	}
	_, peak, err := s.Memory()
	if err != nil {
		return err
	}
	run.Compare(fmt.Sprintf("%d concurrent ups of %d, %s; engines without checkpoints", clients, n, name), "s", wall, engine, figures.RatioAtMost(1.5, false))
	run.Add("CPU of the servers", "s", cpu, figures.Goal{})
	run.Add("peak RSS of a server", "MB", []float64{peak}, figures.AtMost(150, true))
	run.Add("resources missing in a stored state", "resources", []float64{missing}, figures.AtMost(0, true))
	return nil
}

// together updates one new stack with each CLI concurrently, and returns the seconds until all have
// finished.
func together(ctx context.Context, clients []*cli, prefix string) (float64, error) {
	for i, c := range clients {
		if err := c.init(ctx, fmt.Sprint(prefix, i)); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() { _, errs[i] = c.up(ctx, fmt.Sprint(prefix, i), false) })
	}
	all.Wait()
	return time.Since(began).Seconds(), errors.Join(errs...)
}
