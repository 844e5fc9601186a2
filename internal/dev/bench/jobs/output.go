package jobs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

const (
	lineBytes      = 100 // newline included
	outputPatience = 5 * time.Minute
	// secrets is the number of secrets that the agent masks.
	secrets = 20
)

type outputFigures struct{ speed, cpu, peak, late, wrong []float64 }

// Output runs a job that prints at full speed. The first load has secrets to mask, and a server
// address that is not local, so that the agent compresses the log. The second load has neither, and
// the agent's own log contains no copy of the output.
func Output(ctx context.Context, run *figures.Run) error {
	for _, load := range []struct {
		name       string
		full       bool
		speed, cpu float64 // goals
	}{{"masked and compressed", true, 40, 20}, {"plain", false, 70, 10}} {
		lines := figures.Pick(run, 1_000_000, 500_000)
		f, err := output(ctx, run, lines, load.full)
		if err != nil {
			return err
		}
		// The small load of a quick run mostly measures a job's fixed cost, so its gate is wider.
		run.Add(fmt.Sprintf("%d lines of %d bytes, %s", lines, lineBytes, load.name), "MB/s", f.speed, figures.AtLeast(load.speed, false))
		run.Add("CPU of agent, runner and children", "s/GB", f.cpu, figures.AtMost(figures.Pick(run, 1.0, 2)*load.cpu, true))
		run.Add("peak RSS of agent, runner and children", "MB", f.peak, figures.AtMost(128, true))
		run.Add("last line printed to finished", "ms", f.late, figures.AtMost(1000, false))
		run.Add("lines lost, doubled or out of order", "lines", f.wrong, figures.AtMost(0, true))
	}
	return nil
}

func output(ctx context.Context, run *figures.Run, lines int, full bool) (f outputFigures, err error) {
	o := options{settings: map[string]string{"log_job_output": "false"}}
	if full {
		o = options{url: func(url string) (string, error) { return strings.Replace(url, "127.0.0.1", "0.0.0.0", 1), nil }}
	}
	p, err := start(ctx, run, o)
	if err != nil {
		return f, err
	}
	defer p.close()
	for i := range secrets {
		if full {
			p.variables[fmt.Sprintf("SECRET_%d", i)] = map[string]string{"secret": strings.Repeat(fmt.Sprintf("%02d-hidden-", i), 3)}
		}
	}
	for range run.Rounds {
		if err := p.output(ctx, lines, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (p *product) output(ctx context.Context, n int, f *outputFigures) error {
	dir, err := p.run.NewDir()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "stamp")
	before, err := figures.CPU(p.agentPID())
	if err != nil {
		return err
	}
	sampler := figures.SamplePeak(p.agentPID(), figures.EveryProcess)
	job, t, err := p.runJob(ctx, fmt.Sprintf("%s %s %d %d", p.run.Stamp, file, n, lineBytes), file, 10*time.Millisecond, outputPatience)
	if err == nil {
		err = p.alone(ctx)
	}
	peak := sampler.End()
	if err != nil {
		return err
	}
	after, err := figures.CPU(p.agentPID())
	if err != nil {
		return err
	}
	wrong, err := countLines(ctx, p.pages(job), n)
	if err != nil {
		return err
	}
	bytes := float64(n) * lineBytes
	f.speed = append(f.speed, bytes/1e6/t.finished.Sub(t.first.began).Seconds())
	f.cpu = append(f.cpu, (after-before).Seconds()/(bytes/1e9))
	f.peak = append(f.peak, figures.Megabytes(peak))
	f.late = append(f.late, figures.Milliseconds(t.finished.Sub(t.last.ended)))
	f.wrong = append(f.wrong, float64(wrong))
	return nil
}
