// Command bench measures what users of the product notice: sizes, memory, CPU time, how long jobs and
// updates take, and how many of them one server sustains. Goals are absolute, or ratios to what a user
// would run instead: the engine alone, the CLI's file backend, gzip.
//
// Counts, losses, memory and CPU time are goals that decide the exit code; elapsed times are only
// reported. To compare two versions on one machine, run this program on the programs of both, with -bin.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/environments"
	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/fleet"
	"workflowagent/internal/dev/bench/jobs"
	"workflowagent/internal/dev/bench/state"
	"workflowagent/internal/dev/lab"
)

// A measurement that takes longer fails, and the others continue.
const (
	limit            = 150 * time.Minute
	measurementLimit = 20 * time.Minute
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
	quick      bool // part of a quick run unless it names its measurements
	run        func(context.Context, *figures.Run) error
}

func measurements() []measurement {
	return []measurement{
		{"size", "the programs' files", true, jobs.Sizes},
		{"idle", "the idle agent", true, jobs.Idle},
		{"short", "one small job at a time, process executor", false, jobs.Short},
		{"lag", "lines of a job that prints slowly", false, jobs.Lag},
		{"warm", "deployments that change nothing, and pulumi up in a warm checkout", false, jobs.Warm},
		{"containers", "the same in containers", false, jobs.Containers},
		{"many", "many stacks in turn on one agent, with and without workspaces", false, jobs.Many},
		{"large", "pulumi up of many resources in jobs, and kill -9", false, jobs.Large},
		{"slow", "a large log sent to a slow server", true, jobs.Slow},
		{"queue", "many short jobs of one organization", false, fleet.Queue},
		{"burst", "jobs that start together, and a constant rate of jobs", false, fleet.Burst},
		{"agents", "a server with many idle agents", false, fleet.Agents},
		{"flood", "running jobs while strangers flood the server", false, fleet.Flood},
		{"pages", "pages of the console of a large server", false, fleet.Pages},
		{"up", "pulumi up of new resources with the CLI's defaults", false, state.Up},
		{"operations", "pulumi up, preview, refresh and destroy of stacks of two sizes", false, state.Operations},
		{"stored", "what a small update leaves on disk", false, state.Stored},
		{"transfer", "export and import of large states", false, state.Transfer},
		{"backup", "backups of a large server while clients write", true, state.Backup},
		{"environments", "opening an environment with many imports", false, environments.Open},
		{"crowd", "many CLIs at the same time", false, state.Crowd},
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == fleet.StrangersCommand {
		return fleet.Strangers(ctx, args[1], os.Stdout)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 0, "rounds of each measurement (default 3, in a quick run 1)")
	only := flags.String("only", "", "comma-separated measurements to run (default: all)")
	quick := flags.Bool("quick", false, "small loads; without -only, just sizes, memory and losses, as in CI")
	bin := flags.String("bin", "", "directory of the programs to measure (default: they are built from this tree)")
	var postgres []string
	flags.Func("postgres", "a setting of PostgreSQL, such as commit_delay=5000; can be repeated", func(s string) error {
		postgres = append(postgres, s)
		return nil
	})
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
	chosen, err := choose(*only, *quick)
	if err != nil {
		return err
	}
	r := &figures.Run{
		Rounds: *rounds, Quick: *quick, Bin: *bin, PostgresSettings: postgres,
		Report: figures.Report{Rounds: *rounds, Quick: *quick, Started: time.Now(), Machine: figures.Machine()},
	}
	r.Say("%s", r.Report.Machine)
	if err := prepare(ctx, r); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.Dir) }()
	failed := measure(ctx, r, chosen)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.Report.Finished = time.Now()
	fmt.Println()
	r.Report.Print(os.Stdout)
	return errors.Join(failed, r.Report.Missed())
}

// prepare builds the programs.
func prepare(ctx context.Context, r *figures.Run) (err error) {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("measuring CPU time and memory requires /proc, which %s does not have; run the benchmarks on Linux", runtime.GOOS)
	}
	if r.Dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return fmt.Errorf("creating a directory for the run: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(r.Dir)
		}
	}()
	r.Stubs = filepath.Join(r.Dir, "stubs")
	r.Stamp = filepath.Join(r.Stubs, "stamp")
	if err := os.Mkdir(r.Stubs, 0o755); err != nil {
		return fmt.Errorf("building the program of jobs: %w", err)
	}
	if r.Bin == "" {
		r.Say("building the product")
		r.Bin = filepath.Join(r.Dir, "bin")
		if err := lab.BuildProduct(ctx, r.Bin, io.Discard); err != nil {
			return err
		}
	}
	root, err := lab.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", r.Stamp, "./internal/dev/bench/stamp")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program of jobs: %w\n%s", err, out)
	}
	return os.Symlink(r.Stamp, filepath.Join(r.Stubs, "pulumi"))
}

// measure runs the measurements in order, and continues after a failed one.
func measure(ctx context.Context, r *figures.Run, chosen []measurement) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
	defer cancel()
	var errs []error
	for _, m := range chosen {
		errs = append(errs, one(ctx, r, m))
	}
	return errors.Join(errs...)
}

// one runs a measurement. If it fails, the report says so.
func one(ctx context.Context, r *figures.Run, m measurement) error {
	ctx, cancel := context.WithTimeoutCause(ctx, measurementLimit, fmt.Errorf("it took longer than %s", measurementLimit))
	defer cancel()
	r.Begin(m.name, m.what)
	err := ctx.Err()
	if err == nil {
		err = m.run(ctx, r)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	err = fmt.Errorf("measuring %s: %w", m.name, err)
	r.Say("%v", err)
	r.Skip(m.what, "the measurement failed")
	return err
}

// choose returns the measurements named in a comma-separated list. For "", it returns all, or those of a
// quick run.
func choose(list string, quick bool) ([]measurement, error) {
	all := measurements()
	if list == "" {
		return slices.DeleteFunc(all, func(m measurement) bool { return quick && !m.quick }), nil
	}
	var names []string
	for _, m := range all {
		names = append(names, m.name)
	}
	var chosen []measurement
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("unknown measurement %q: must be one of %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
