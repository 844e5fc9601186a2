// Command bench measures the product beside its yardsticks: a minimal agent and
// a bare server (minagent, minserver), which do the same work without anything
// that makes it safe. Both run in interleaved rounds of one process on one
// machine, so that the ratio of two figures means something even where other
// work makes each of them noisy.
//
// Counts, losses, memory and CPU time are goals that decide the exit code;
// wall-clock ratios are only reported.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// limit bounds a whole run.
const limit = 40 * time.Minute

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

// measurement is one of the things that are measured.
type measurement struct {
	name, what string
	run        func(*bench, context.Context) error
}

func measurements() []measurement {
	return []measurement{
		{"size", "binary sizes", (*bench).sizes},
		{"noop", "one small job at a time, process executor", (*bench).noop},
		{"docker", "one small job at a time, docker executor", (*bench).docker},
		{"slots", "small jobs, ten at a time", (*bench).slots},
		{"burst", "a job that prints as fast as it can", (*bench).burst},
		{"lag", "lines of a job that prints slowly", (*bench).lag},
		{"slow", "much log for a slow server", (*bench).slow},
		{"outage", "jobs that end while the server is away", (*bench).outage},
		{"killed", "the agent killed under a running job", (*bench).killed},
		{"claims", "claims of a prefilled queue", (*bench).claims},
		{"start", "start of the agent to its first poll", (*bench).starts},
		{"idle", "the agent at rest", (*bench).idle},
		{"pulumi", "pulumi up against the server and against a directory", (*bench).pulumi},
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "interleaved rounds of each measurement")
	only := flags.String("only", "", "comma-separated measurements to run (default: all)")
	quick := flags.Bool("quick", false, "smaller loads and shorter waits, for a gate in CI")
	jsonFile := flags.String("json", "", "file for the figures as JSON")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *rounds < 1 {
		return errors.New("-rounds must be at least 1")
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
	for _, m := range chosen {
		b.say("%s: %s", m.name, m.what)
		b.current = m.name
		if err := m.run(b, ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("measuring %s: %w", m.name, err)
		}
	}
	b.report.finished = time.Now()
	b.report.print(os.Stdout)
	if *jsonFile != "" {
		if err := b.report.writeJSON(*jsonFile); err != nil {
			return err
		}
	}
	return b.report.missed()
}

// choose returns the measurements of a comma-separated list, "" being all.
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
			return nil, fmt.Errorf("there is no measurement %q, only %s", name, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(all, func(m measurement) bool { return !slices.Contains(wanted, m.name) }), nil
}
