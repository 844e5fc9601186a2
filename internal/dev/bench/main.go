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

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/state"
)

const limit = 90 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
	defer cancel()
	err := run(ctx, os.Args[1:])
	cancel()
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
		{"up", "pulumi up of new resources", onStates((*state.Bench).Up)},
		{"operations", "pulumi up, preview, refresh and destroy of stacks of two sizes", onStates((*state.Bench).Operations)},
		{"stored", "what a small update leaves on disk", onStates((*state.Bench).Stored)},
		{"transfer", "export and import of large states", onStates((*state.Bench).Transfer)},
		{"crowd", "many CLIs at the same time", onStates((*state.Bench).Crowd)},
		{"lists", "pages of long lists", onStates((*state.Bench).Lists)},
	}
}

// onStates returns a measurement that runs on the state backend.
func onStates(run func(*state.Bench, context.Context) error) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error {
		return run(&state.Bench{
			Dir: b.dir, Server: filepath.Join(b.bin, "workflow-server"), Stub: filepath.Join(b.min, "minbackend"),
			Rounds: b.rounds, Quick: b.quick, Say: b.say, Add: b.add,
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
	if err := b.measure(ctx, chosen); err != nil {
		return err
	}
	b.report.Finished = time.Now()
	fmt.Println()
	b.report.Print(os.Stdout)
	if *page != "" {
		if err := b.report.WritePage(*page); err != nil {
			return err
		}
	}
	return b.report.Missed()
}

// measure runs the measurements in order. A quick run measures the idle agent concurrently, because
// that measurement only waits.
func (b *bench) measure(ctx context.Context, chosen []measurement) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var besides sync.WaitGroup
	defer besides.Wait()
	defer fail(nil)
	var others []*bench
	for _, m := range chosen {
		if m.name != "idle" || !b.quick {
			continue
		}
		other := *b
		other.report = figures.Report{Started: b.report.Started}
		others = append(others, &other)
		besides.Go(func() {
			if err := other.one(ctx, m); err != nil {
				fail(err)
			}
		})
	}
	for _, m := range chosen {
		if m.name == "idle" && b.quick {
			continue
		}
		if err := b.one(ctx, m); err != nil {
			return err
		}
	}
	besides.Wait()
	for _, other := range others {
		b.report.Rows = append(b.report.Rows, other.report.Rows...)
	}
	return context.Cause(ctx)
}

func (b *bench) one(ctx context.Context, m measurement) error {
	b.say("%s: %s", m.name, m.what)
	b.current = m.name
	if err := m.run(b, ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("measuring %s: %w", m.name, err)
	}
	return nil
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
