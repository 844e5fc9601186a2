package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// killed kills the agent under a running job and measures how long the server is
// wrong about it. The yardstick would lose the job.
func (b *bench) killed(ctx context.Context) error {
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.startAgent(ctx, p.server.URL, "process", nil); err != nil {
		return err
	}
	var restarted, alone, both, wrong []float64
	for range pick(b, 3, 1) * b.rounds {
		for _, death := range []struct {
			restart, runner bool
			times           *[]float64
		}{
			{restart: true, times: &restarted},
			{times: &alone},
			{restart: true, runner: true, times: &both},
		} {
			took, bad, err := b.killOnce(ctx, p, death.restart, death.runner)
			if err != nil {
				return err
			}
			*death.times = append(*death.times, milliseconds(took))
			wrong = append(wrong, float64(bad))
		}
	}
	b.say("  true after %.0f ms restarted, %.0f ms alone, %.0f ms with the runner killed too", median(restarted), median(alone), median(both))
	truth := goal{atMost, 65_000, false} // the lease and 5 s
	b.add("agent killed and restarted: job's exit to succeeded", "ms", restarted, nil, truth)
	b.add("agent killed, never restarted: job's exit to succeeded", "ms", alone, nil, truth)
	b.add("agent and runner killed, agent restarted: kill to failed", "ms", both, nil, truth)
	b.add("wrong statuses, lines lost or doubled", "lines", wrong, nil, goal{atMost, 0, true})
	return nil
}

// killOnce kills the agent of one job, and its runner if told so. It returns how
// long the server took to tell the truth: from the end of the job's last process,
// or from the kill of its runner.
func (b *bench) killOnce(ctx context.Context, p *product, restart, runner bool) (took time.Duration, wrong int, err error) {
	queued, err := b.runUntilSilent(ctx, p, []string{p.stack})
	if err != nil {
		return 0, 0, err
	}
	job := queued[0]
	victims := []int{p.agentPID()}
	for _, pid := range tree(p.agentPID()) {
		if program, err := os.Readlink(procFile(pid, "exe")); runner && err == nil && filepath.Base(program) == "workflow-runner" {
			victims = append(victims, pid)
		}
	}
	if runner && len(victims) < 2 {
		return 0, 0, fmt.Errorf("the agent has %d runners instead of one", len(victims)-1)
	}
	began := time.Now()
	for _, pid := range victims {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return 0, 0, fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	<-p.agent.Process.Done()
	if restart {
		if err := p.relaunchAgent(ctx); err != nil {
			return 0, 0, err
		}
	}
	want := "failed"
	if !runner {
		want = "succeeded"
		if err := job.proceed(); err != nil {
			return 0, 0, err
		}
	}
	ends, wrong, err := awaitAll(ctx, p, queued, want)
	if err != nil {
		return 0, 0, err
	}
	if !runner {
		exit, err := readTimes(p.last(job.file))
		if err != nil {
			return 0, 0, err
		}
		began = exit.ended
	}
	if !restart {
		if err := p.relaunchAgent(ctx); err != nil { // for the next job
			return 0, 0, err
		}
	}
	return ends[0].Sub(began), wrong, nil
}
