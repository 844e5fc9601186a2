package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/retry"
)

func (b *bench) sizes(context.Context) error {
	size := func(dir, name string) ([]float64, error) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading the size of a program: %w", err)
		}
		return []float64{megabytes(info.Size())}, nil
	}
	for _, program := range []struct {
		name, yardstick string
		goal            figures.Goal
	}{
		{"customer-managed-workflow-agent", "minagent", figures.AtMost(28, true)},
		{"workflow-runner", "", figures.AtMost(10, true)},
		{"workflow-server", "minserver", figures.Goal{}},
	} {
		product, err := size(b.bin, program.name)
		if err != nil {
			return err
		}
		var yardstick []float64
		if program.yardstick != "" {
			if yardstick, err = size(b.min, program.yardstick); err != nil {
				return err
			}
		}
		b.add(program.name, "MB", product, yardstick, program.goal)
	}
	return nil
}

type restFigures struct{ rss, anon, cpu, requests []float64 }

// idle measures both agents concurrently while they have no jobs.
func (b *bench) idle(ctx context.Context) error {
	g, err := b.startGated(ctx)
	defer g.close()
	if err != nil {
		return err
	}
	// Go collects the garbage of an idle program's start within two minutes; only then does the
	// memory use match an idle agent's. A held poll lasts 25 s, so a period must be several times
	// longer to count polls.
	settle, period := pick(b, 130*time.Second, 3*time.Second), pick(b, 75*time.Second, 50*time.Second)
	b.say("  waiting %s", settle+period)
	if err := retry.Sleep(ctx, settle); err != nil {
		return err
	}
	product, floor := &restFigures{}, &restFigures{}
	if err := watchRest(ctx, period, []*restFigures{product, floor}, []int{g.product.agentPID(), g.yardstick.agentPID()}, []*gate{g.toProduct, g.toFloor}); err != nil {
		return err
	}
	b.add("RSS", "MB", product.rss, floor.rss, figures.AtMost(30, true))
	b.add("RSS, anonymous part", "MB", product.anon, floor.anon, figures.Goal{})
	b.add("CPU per minute", "ms", product.cpu, floor.cpu, figures.AtMost(60, true))
	b.add("requests per minute", "requests", product.requests, floor.requests, figures.AtMost(4, true))
	return nil
}

func watchRest(ctx context.Context, period time.Duration, sides []*restFigures, pids []int, gates []*gate) error {
	cpuBefore, requestsBefore := make([]time.Duration, len(pids)), make([]int64, len(pids))
	for i, pid := range pids {
		var err error
		if cpuBefore[i], err = figures.FineCPU(pid); err != nil {
			return err
		}
		requestsBefore[i] = gates[i].requests.Load()
	}
	began := time.Now()
	if err := retry.Sleep(ctx, period); err != nil {
		return err
	}
	minutes := time.Since(began).Minutes()
	for i, pid := range pids {
		used, err := figures.FineCPU(pid)
		if err != nil {
			return err
		}
		rss, err := figures.Memory(pid, "VmRSS")
		if err != nil {
			return err
		}
		anon, err := figures.Memory(pid, "RssAnon")
		if err != nil {
			return err
		}
		f := sides[i]
		f.cpu = append(f.cpu, milliseconds(used-cpuBefore[i])/minutes)
		f.requests = append(f.requests, float64(gates[i].requests.Load()-requestsBefore[i])/minutes)
		f.rss = append(f.rss, megabytes(rss))
		f.anon = append(f.anon, megabytes(anon))
	}
	return nil
}
