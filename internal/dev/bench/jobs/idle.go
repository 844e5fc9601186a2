package jobs

import (
	"context"
	"fmt"
	"os"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/retry"
)

// Sizes measures the programs' files.
func Sizes(_ context.Context, run *figures.Run) error {
	for _, program := range []struct {
		name  string
		limit float64
	}{{"customer-managed-workflow-agent", 28}, {"workflow-runner", 10.5}, {"workflow-server", 56}, {"workflow-esc", 18}} {
		info, err := os.Stat(run.Program(program.name))
		if err != nil {
			return fmt.Errorf("reading the size of a program: %w", err)
		}
		run.Add(program.name, "MB", []float64{figures.Megabytes(info.Size())}, figures.AtMost(program.limit, true))
	}
	return nil
}

// Idle measures an agent without jobs. A quick run measures only its memory.
func Idle(ctx context.Context, run *figures.Run) error {
	p, gate, err := startGated(ctx, run)
	if err != nil {
		return err
	}
	defer gate.Close()
	defer p.close()
	// Go collects the garbage of an idle program's start within two minutes; only then does the
	// memory use match an idle agent's. A held poll lasts 25 s, so the period must be several times
	// longer to count polls.
	settle, period := figures.Pick(run, 130*time.Second, 5*time.Second), figures.Pick(run, 75*time.Second, 0)
	run.Say("  waiting %s", settle+period)
	if err := retry.Sleep(ctx, settle); err != nil {
		return err
	}
	began, requests := time.Now(), gate.Requests.Load()
	used, err := figures.Spent(func() (time.Duration, error) { return figures.FineCPU(p.agentPID()) }, func() error { return retry.Sleep(ctx, period) })
	if err != nil {
		return err
	}
	minutes := time.Since(began).Minutes()
	size, err := figures.Memory(p.agentPID())
	if err != nil {
		return err
	}
	run.Add("RSS", "MB", []float64{figures.Megabytes(size.Now)}, figures.AtMost(30, true))
	if run.Quick {
		return nil
	}
	run.Add("CPU per minute", "ms", []float64{figures.Milliseconds(used) / minutes}, figures.AtMost(60, true))
	run.Add("requests per minute", "requests", []float64{float64(gate.Requests.Load()-requests) / minutes}, figures.AtMost(4, true))
	return nil
}
