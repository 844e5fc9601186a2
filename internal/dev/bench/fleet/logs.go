package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

const lineLength = 100 // bytes, newline included

// printed returns at most n bytes of lines.
func printed(n int) []byte {
	line := append(bytes.Repeat([]byte("x"), lineLength-1), '\n')
	return bytes.Repeat(line, n/lineLength)
}

type logFigures struct{ speed, cpu, readSpeed, missing []float64 }

// Logs measures how fast a server takes and returns the logs of several jobs, and the CPU time for
// many jobs that print slowly.
func (b *Bench) Logs(ctx context.Context) error {
	slow := pick(b, 1000, 40)
	p, err := b.startPair(ctx, false, slow)
	if err != nil {
		return err
	}
	defer p.close()
	const fast, chunk = 8, 256 << 10
	chunks, seconds := pick(b, 256, 16), pick(b, 60, 3)
	for _, load := range []struct {
		name     string
		agents   int
		size     int // of a write
		writes   int
		interval time.Duration
		speed    figures.Goal
	}{
		{fmt.Sprintf("%d jobs at full speed", fast), fast, chunk, chunks, 0, figures.RatioAtLeast(0.5, false)},
		{fmt.Sprintf("%d jobs with 2 KB/s", slow), slow, 2000, seconds, time.Second, figures.Goal{}},
	} {
		var product, bare logFigures
		for range b.Rounds {
			for _, side := range []struct {
				site    site
				figures *logFigures
			}{{p.product, &product}, {p.bare, &bare}} {
				if err := ingest(ctx, side.site, load.agents, printed(load.size), load.writes, load.interval, side.figures); err != nil {
					return err
				}
			}
		}
		b.Add("log of "+load.name, "MB/s", product.speed, bare.speed, load.speed)
		b.Add("CPU of the server", "s/GB", product.cpu, bare.cpu, figures.RatioAtMost(2, false))
		b.Add("the same logs read back, one after the other", "MB/s", product.readSpeed, bare.readSpeed, figures.Goal{})
		b.Add("bytes lost or doubled", "bytes", product.missing, bare.missing, figures.AtMost(0, true))
	}
	return nil
}

// ingest runs one job per agent. Each writes text at an interval, or without a pause if it is 0.
func ingest(ctx context.Context, s site, agents int, text []byte, writes int, interval time.Duration, f *logFigures) error {
	finished := make(chan job, agents)
	begin := make(chan struct{})
	ready := make(chan struct{}, agents)
	c := gather(ctx, s, agents, 0, func(ctx context.Context, j job) error {
		if err := j.start(ctx); err != nil {
			return err
		}
		ready <- struct{}{}
		select {
		case <-begin:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := write(ctx, j, text, writes, interval); err != nil {
			return err
		}
		if err := j.finish(ctx); err != nil {
			return err
		}
		finished <- j
		return nil
	})
	err := each(agents, min(agents, 32), func(i int) error { return s.enqueue(ctx, i) })
	if err == nil {
		_, err = collect(ctx, c, ready, agents)
	}
	before, cpuErr := figures.FineCPU(s.pid())
	if err := errors.Join(err, cpuErr); err != nil {
		return errors.Join(err, c.dismiss())
	}
	began := time.Now()
	close(begin)
	jobs, err := collect(ctx, c, finished, agents)
	took := time.Since(began)
	if err := errors.Join(err, c.dismiss()); err != nil {
		return err
	}
	after, err := figures.FineCPU(s.pid())
	if err != nil {
		return err
	}
	size := int64(len(text)) * int64(writes)
	total := float64(size) * float64(agents)
	f.speed = append(f.speed, total/1e6/took.Seconds())
	f.cpu = append(f.cpu, (after-before).Seconds()/(total/1e9))
	began = time.Now()
	missing := int64(0)
	for _, j := range jobs {
		n, err := j.read(ctx)
		if err != nil {
			return err
		}
		missing += max(size-n, n-size)
	}
	f.readSpeed = append(f.readSpeed, total/1e6/time.Since(began).Seconds())
	f.missing = append(f.missing, float64(missing))
	return nil
}

func write(ctx context.Context, j job, text []byte, writes int, interval time.Duration) error {
	var tick <-chan time.Time
	if interval > 0 {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for range writes {
		if tick != nil {
			select {
			case <-tick:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := j.write(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
