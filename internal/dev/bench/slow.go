package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/retry"
)

// stampBytes is the size of the timestamp that the product stores with each line.
const stampBytes = 28

// slowRequest is the duration of each request while the server is slow.
const slowRequest = 500 * time.Millisecond

// slow runs a job that prints faster than a slow server accepts the log, and measures the memory of
// the programs that handle the log.
func (b *bench) slow(ctx context.Context) error {
	g, err := b.startGated(ctx)
	defer g.close()
	if err != nil {
		return err
	}
	// With timestamps, the log of a full run is 1 GB long, just below the server's limit.
	lines := pick(b, 8_000_000, 800_000)
	var product, floor slowFigures
	if err := b.measureSlow(ctx, g.product, g.toProduct, lines, &product); err != nil {
		return err
	}
	if err := b.measureSlow(ctx, g.yardstick, g.toFloor, lines, &floor); err != nil {
		return err
	}
	size := lines * (burstBytes + stampBytes) / 1_000_000
	b.say("  %d MB: %.1f to %.1f and %.1f to %.1f MB", size, last(product.idle), last(product.peak), last(floor.idle), last(floor.peak))
	b.add("RSS of agent and runner during a silent job", "MB", product.idle, floor.idle, figures.Goal{})
	b.add(fmt.Sprintf("their peak RSS with %d MB of log, %s per request", size, slowRequest), "MB", product.peak, floor.peak, figures.Goal{})
	b.add("peak to idle RSS", "x", product.growth, floor.growth, figures.AtMost(1.5, true))
	b.add("lines lost, doubled or out of order", "lines", product.wrong, floor.wrong, figures.AtMost(0, true))
	return nil
}

type slowFigures struct{ idle, peak, growth, wrong []float64 }

// logPath reports whether a process handles the log.
func logPath(pid int) bool {
	program, err := os.Readlink(figures.ProcFile(pid, "exe"))
	if err != nil {
		return false // exited
	}
	switch filepath.Base(program) {
	case "customer-managed-workflow-agent", "workflow-runner", "minagent":
		return true
	}
	return false
}

// measureSlow runs a job that first prints nothing, to measure the idle memory. The server becomes
// slow when the job begins to print.
func (b *bench) measureSlow(ctx context.Context, s site, g *gate, lines int, f *slowFigures) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	silent, speak := filepath.Join(dir, "silent"), filepath.Join(dir, "speak")
	command := fmt.Sprintf("mkfifo %[2]s; >%[1]s; read x <%[2]s; %[3]s - %[4]d %[5]d", silent, speak, b.stamp(), lines, burstBytes)
	job, err := s.enqueue(ctx, command, "-")
	if err != nil {
		return err
	}
	if err := appears(ctx, silent); err != nil {
		return err
	}
	if err := retry.Sleep(ctx, pick(b, 5*time.Second, time.Second)); err != nil {
		return err
	}
	idle := figures.Sum(s.agentPID(), "VmRSS", logPath)
	sampler := figures.SamplePeak(s.agentPID(), logPath)
	g.delay.Store(int64(slowRequest))
	fast := time.AfterFunc(pick(b, 20*time.Second, 4*time.Second), func() { g.delay.Store(0) })
	defer fast.Stop()
	if err = os.WriteFile(speak, []byte("\n"), 0o600); err == nil {
		err = until(ctx, 50*time.Millisecond, burstPatience, "the job's exit", func() (bool, error) { return s.finished(ctx, job) })
	}
	peak := sampler.End()
	if err != nil {
		return err
	}
	wrong, err := countLines(ctx, s, job, lines)
	if err != nil {
		return err
	}
	f.idle = append(f.idle, megabytes(idle))
	f.peak = append(f.peak, megabytes(peak))
	f.growth = append(f.growth, float64(peak)/float64(idle))
	f.wrong = append(f.wrong, float64(wrong))
	return nil
}

func appears(ctx context.Context, file string) error {
	return until(ctx, 5*time.Millisecond, jobPatience, "the job's start", func() (bool, error) {
		_, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}
