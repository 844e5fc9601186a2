package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

const stopPatience = 15 * time.Second

type bench struct {
	rounds  int
	quick   bool
	dir     string // directory for everything except programs
	bin     string // the product's programs
	min     string // the baselines' programs
	stubs   string // holds stamp under the name pulumi
	example string // directory of the example restful-infrastructure
	current string // measurement
	report  figures.Report
}

func newBench(ctx context.Context, rounds int, quick bool) (*bench, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("measuring CPU time and memory requires /proc, which %s does not have; run the benchmarks on Linux", runtime.GOOS)
	}
	// The path must be short, because an engine creates sockets under it.
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the run: %w", err)
	}
	b := &bench{
		rounds: rounds, quick: quick, dir: dir,
		bin: filepath.Join(dir, "bin"), min: filepath.Join(dir, "min"), stubs: filepath.Join(dir, "stubs"),
		report: figures.Report{Rounds: rounds, Quick: quick, Started: time.Now(), Machine: machine()},
	}
	b.say("%s", b.report.Machine)
	if err := b.build(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) build(ctx context.Context) error {
	b.say("building the product and the yardsticks")
	if err := lab.BuildProduct(ctx, b.bin, io.Discard); err != nil {
		return err
	}
	root, err := lab.Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.stubs, 0o755); err != nil {
		return fmt.Errorf("building the yardsticks: %w", err)
	}
	b.example = filepath.Join(root, "examples", "restful-infrastructure")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.min+string(filepath.Separator), "./internal/dev/bench/...", "./examples/restful-infrastructure")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the yardsticks: %w\n%s", err, out)
	}
	if err := os.Symlink(b.stamp(), filepath.Join(b.stubs, "pulumi")); err != nil {
		return fmt.Errorf("building the yardsticks: %w", err)
	}
	return nil
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// stamp returns the path of the program that jobs run.
func (b *bench) stamp() string { return filepath.Join(b.min, "stamp") }

func (b *bench) newDir() (string, error) {
	dir, err := os.MkdirTemp(b.dir, "w")
	if err != nil {
		return "", fmt.Errorf("creating a directory for a measurement: %w", err)
	}
	return dir, nil
}

// pick returns the load for a full run, or for a quick one.
func pick[T any](b *bench, full, quick T) T {
	if b.quick {
		return quick
	}
	return full
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(b.report.Started).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) add(figure, unit string, product, yardstick []float64, g figures.Goal) {
	b.report.Rows = append(b.report.Rows, figures.Row{Measurement: b.current, Figure: figure, Unit: unit, Product: product, Yardstick: yardstick, Goal: g})
}

// skip adds a row for a figure that could not be measured.
func (b *bench) skip(figure, why string) {
	b.report.Rows = append(b.report.Rows, figures.Row{Measurement: b.current, Figure: figure, Unmeasured: why})
}

func machine() string {
	model, kernel := "", ""
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.Trim(name, "\t :\n")
				break
			}
		}
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(release))
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d x %s, Linux %s, %s %s/%s, load %s", runtime.NumCPU(), model, kernel,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "))
}

// until calls ask at every interval until ask returns true or an error, or patience has passed.
func until(ctx context.Context, interval, patience time.Duration, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("timed out waiting for %s after %s", what, patience))
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		ok, err := ask()
		if ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func alone(ctx context.Context, pid int) error {
	return until(ctx, 5*time.Millisecond, time.Minute, "the last job's exit", func() (bool, error) {
		return len(figures.Tree(pid)) == 1, nil
	})
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func megabytes(n int64) float64            { return float64(n) / 1e6 }
