// Command bench compares the product with its baselines: a minimal agent and a bare server
// (minagent, minserver), which do the same work without any safety. Rounds of the product and of
// the baselines are interleaved in one run on one machine. The ratio of two figures is therefore
// meaningful even if other load on the machine makes each figure noisy.
//
// Counts, losses, memory and CPU time are goals that decide the exit code; wall-clock ratios
// are only reported.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/fleet"
	"workflowagent/internal/dev/bench/state"
)

const (
	limit            = time.Hour
	measurementLimit = 15 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make bench:", err)
		os.Exit(1)
	}
}

type measurement struct {
	name, what string
	run        func(*bench, context.Context) error
}

func measurements() []measurement {
	return []measurement{
		{"size", "binary sizes", (*bench).sizes},
		{"noop", "one small job at a time, process executor", (*bench).noop},
		{"burst", "a job that prints as fast as it can", (*bench).burst},
		{"lag", "lines of a job that prints slowly", (*bench).lag},
		{"slow", "a large log sent to a slow server", (*bench).slow},
		{"idle", "the idle agent", (*bench).idle},
		{"pods", "jobs in pods of a real Kubernetes with one node", (*bench).pods},
		{"manypods", "200 jobs in its pods at the same time", (*bench).manyPods},
		{"up", "pulumi up of new resources", onStates((*state.Bench).Up)},
		{"operations", "pulumi up, preview, refresh and destroy of stacks of two sizes", onStates((*state.Bench).Operations)},
		{"stored", "what a small update leaves on disk", onStates((*state.Bench).Stored)},
		{"transfer", "export and import of large states", onStates((*state.Bench).Transfer)},
		{"secrets", "secrets in bulk", onStates((*state.Bench).Secrets)},
		{"crowd", "many CLIs at the same time", onStates((*state.Bench).Crowd)},
		{"lists", "pages of long lists", onStates((*state.Bench).Lists)},
		{"agents", "a server with many idle agents", onFleet((*fleet.Bench).Agents)},
		{"jobs", "a server with many short jobs", onFleet((*fleet.Bench).Jobs)},
		{"logs", "a server with many logs", onFleet((*fleet.Bench).Logs)},
		{"pages", "pages of the console of a large server", onFleet((*fleet.Bench).Pages)},
		{"watchers", "a long log that many open pages show", onFleet((*fleet.Bench).Watchers)},
		{"forges", "polls of repositories, and webhooks", onFleet((*fleet.Bench).Forges)},
		{"sites", "many stacks created at once", onFleet((*fleet.Bench).Sites)},
	}
}

// onFleet returns a measurement of a server with agents that are not processes.
func onFleet(run func(*fleet.Bench, context.Context) error) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error {
		return run(&fleet.Bench{
			Dir: b.dir, Server: filepath.Join(b.bin, "workflow-server"), Bare: filepath.Join(b.min, "minserver"),
			Service: filepath.Join(b.min, "restful-infrastructure"), Example: b.example,
			Rounds: b.rounds, Quick: b.quick, Say: b.say, Add: b.add, Skip: b.skip,
		}, ctx)
	}
}

// onStates returns a measurement that runs on the state backend.
func onStates(run func(*state.Bench, context.Context) error) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error {
		return run(&state.Bench{
			Dir: b.dir, Server: filepath.Join(b.bin, "workflow-server"), Stub: filepath.Join(b.min, "minbackend"),
			Rounds: b.rounds, Quick: b.quick, Say: b.say, Add: b.add, Skip: b.skip,
		}, ctx)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 0, "interleaved rounds of each measurement (default 3, in a quick run 1)")
	only := flags.String("only", "", "comma-separated measurements to run (default: all)")
	quick := flags.Bool("quick", false, "smaller loads and shorter waits, for a gate in CI")
	page := flags.String("page", "", "page in which to replace the figures with those of this run, such as docs/performance.md")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	switch {
	case *rounds < 0:
		return errors.New("-rounds must be at least 1")
	case *rounds == 0 && *quick:
		*rounds = 1
	case *rounds == 0:
		*rounds = 3
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, *rounds, *quick)
	if err != nil {
		return err
	}
	defer b.close()
	failed := b.measure(ctx, chosen)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.report.Finished = time.Now()
	fmt.Println()
	b.report.Print(os.Stdout)
	if *page != "" {
		if err := b.report.WritePage(*page); err != nil {
			return err
		}
	}
	return errors.Join(failed, b.report.Missed())
}

// measure runs the measurements in order, and continues after a failed one. A quick run measures the
// idle agent concurrently, because that measurement only waits.
func (b *bench) measure(ctx context.Context, chosen []measurement) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
	defer cancel()
	idle := *b
	var idleErr error
	var besides sync.WaitGroup
	var errs []error
	for _, m := range chosen {
		if m.name == "idle" && b.quick {
			besides.Go(func() { idleErr = idle.one(ctx, m) })
		}
	}
	for _, m := range chosen {
		if m.name != "idle" || !b.quick {
			errs = append(errs, b.one(ctx, m))
		}
	}
	besides.Wait()
	b.report.Rows = append(b.report.Rows, idle.report.Rows...)
	return errors.Join(append(errs, idleErr)...)
}

// one runs a measurement. If it fails, the report says so.
func (b *bench) one(ctx context.Context, m measurement) error {
	ctx, cancel := context.WithTimeoutCause(ctx, measurementLimit, fmt.Errorf("it took longer than %s", measurementLimit))
	defer cancel()
	b.say("%s: %s", m.name, m.what)
	b.current = m.name
	err := ctx.Err()
	if err == nil {
		err = m.run(b, ctx)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	err = fmt.Errorf("measuring %s: %w", m.name, err)
	b.say("%v", err)
	b.skip(m.what, "the measurement failed")
	return err
}

// choose returns the measurements named in a comma-separated list, or all for "".
func choose(list string) ([]measurement, error) {
	all := measurements()
	if list == "" {
		return all, nil
	}
	var names []string
	for _, m := range all {
		names = append(names, m.name)
	}
	wanted := strings.Split(list, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("unknown measurement %q: must be one of %s", name, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(all, func(m measurement) bool { return !slices.Contains(wanted, m.name) }), nil
}
