package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

const (
	burstBytes    = 100 // per line, newline included
	burstPatience = 5 * time.Minute
	// burstSecrets is the number of secrets that the agent masks while the product's job prints.
	burstSecrets = 20
)

// burst runs a job that prints at full speed. The first load has secrets to mask, and a server
// address that is not local, so that the agent compresses the log. The second load has neither, and
// the agent's own log contains no copy of the output.
func (b *bench) burst(ctx context.Context) error {
	lines := pick(b, 1_000_000, 500_000)
	y, err := b.startYardstick(ctx, true)
	if err != nil {
		return err
	}
	defer y.close()
	// The small load of a quick run mostly measures a job's fixed cost, so its gate is wider.
	for _, load := range []struct {
		name       string
		secrets    int
		full       bool // the log is compressed, and copied to the agent's own log
		speed, cpu figures.Goal
	}{
		{"masked and compressed", burstSecrets, true, figures.RatioAtLeast(0.25, false), figures.RatioAtMost(pick(b, 5.0, 8), true)},
		{"plain", 0, false, figures.RatioAtLeast(0.6, false), figures.RatioAtMost(2, !b.quick)},
	} {
		product, floor, err := b.burstBoth(ctx, y, lines, load.secrets, load.full)
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("%d lines of %d bytes, %s", lines, burstBytes, load.name), "MB/s", product.speed, floor.speed, load.speed)
		b.add("CPU of agent, runner and children", "s/GB", product.cpu, floor.cpu, load.cpu)
		b.add("peak RSS of agent, runner and children", "MB", product.peak, floor.peak, figures.AtMost(128, true))
		b.add("CPU of the server", "s/GB", product.serverCPU, floor.serverCPU, figures.Goal{})
		b.add("last line printed to finished", "ms", product.late, floor.late, figures.Goal{})
		b.add("lines lost, doubled or out of order", "lines", product.wrong, floor.wrong, figures.AtMost(0, true))
	}
	return nil
}

func (b *bench) burstBoth(ctx context.Context, y *yardstick, lines, secrets int, full bool) (product, floor burstFigures, err error) {
	p, err := b.startProduct(ctx, "")
	if err != nil {
		return product, floor, err
	}
	defer p.close()
	for i := range secrets {
		p.variables[fmt.Sprintf("SECRET_%d", i)] = map[string]string{"secret": strings.Repeat(fmt.Sprintf("%02d-hidden-", i), 3)}
	}
	url, settings := p.server.URL, map[string]string{"log_job_output": "false"}
	if full {
		settings = nil
		url = strings.Replace(url, "127.0.0.1", "0.0.0.0", 1)
	}
	if err := p.startAgent(ctx, url, settings); err != nil {
		return product, floor, err
	}
	for round := range b.rounds {
		for _, side := range []struct {
			site    site
			figures *burstFigures
		}{{p, &product}, {y, &floor}} {
			if err := b.measureBurst(ctx, side.site, lines, side.figures); err != nil {
				return product, floor, err
			}
		}
		b.say("  round %d: %.0f and %.0f MB/s, %.1f and %.1f CPU s/GB, %.0f and %.0f MB peak", round+1,
			last(product.speed), last(floor.speed), last(product.cpu), last(floor.cpu), last(product.peak), last(floor.peak))
	}
	return product, floor, nil
}

type burstFigures struct{ speed, cpu, serverCPU, peak, late, wrong []float64 }

func (b *bench) measureBurst(ctx context.Context, s site, lines int, f *burstFigures) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "stamp")
	agentBefore, err := figures.CPU(s.agentPID())
	if err != nil {
		return err
	}
	serverBefore, err := figures.CPU(s.serverPID())
	if err != nil {
		return err
	}
	sampler := figures.SamplePeak(s.agentPID(), figures.EveryProcess)
	job, t, err := runJob(ctx, s, fmt.Sprintf("%s %s %d %d", b.stamp(), file, lines, burstBytes), file, 10*time.Millisecond, burstPatience)
	if aloneErr := alone(ctx, s.agentPID()); err == nil {
		err = aloneErr
	}
	peak := sampler.End()
	if err != nil {
		return err
	}
	agentAfter, err := figures.CPU(s.agentPID())
	if err != nil {
		return err
	}
	serverAfter, err := figures.CPU(s.serverPID())
	if err != nil {
		return err
	}
	wrong, err := countLines(ctx, s, job, lines)
	if err != nil {
		return err
	}
	bytes := float64(lines) * burstBytes
	f.speed = append(f.speed, bytes/1e6/t.finished.Sub(t.first.began).Seconds())
	f.cpu = append(f.cpu, (agentAfter-agentBefore).Seconds()/(bytes/1e9))
	f.serverCPU = append(f.serverCPU, (serverAfter-serverBefore).Seconds()/(bytes/1e9))
	f.peak = append(f.peak, megabytes(peak))
	f.late = append(f.late, milliseconds(t.finished.Sub(t.last.ended)))
	f.wrong = append(f.wrong, float64(wrong))
	return nil
}

func last(samples []float64) float64 { return samples[len(samples)-1] }
