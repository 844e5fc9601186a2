package jobs

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/retry"
)

const (
	// jobPause separates two jobs, so that the agent has cleaned up before the next job starts.
	jobPause    = 50 * time.Millisecond
	jobPatience = time.Minute
	jobLines    = 10
)

// shortFigures are samples in milliseconds, and numbers of lines that were missing when the job finished.
type shortFigures struct{ start, end, missing []float64 }

// Short runs small jobs one at a time.
func Short(ctx context.Context, run *figures.Run) error {
	p, err := start(ctx, run, nil)
	if err != nil {
		return err
	}
	defer p.close()
	for range 2 { // warm-up
		if err := p.short(ctx, &shortFigures{}); err != nil {
			return err
		}
	}
	var f shortFigures
	n := run.Rounds * figures.Pick(run, 20, 8)
	used, err := figures.Spent(func() (time.Duration, error) { return figures.CPU(p.agentPID()) }, func() (err error) {
		for i := 0; i < n && err == nil; i++ {
			err = p.short(ctx, &f)
		}
		return err
	})
	if err != nil {
		return err
	}
	run.Add("queued to process running", "ms", f.start, figures.AtMost(60, false))
	run.Add("process exit to finished, log complete", "ms", f.end, figures.AtMost(25, false))
	run.Add("CPU of agent, runner and children per job", "ms", []float64{figures.Milliseconds(used) / float64(n)}, figures.AtMost(100, true))
	run.Add("log lines missing at finished", "lines", f.missing, figures.AtMost(0, true))
	return nil
}

// short runs one job.
func (p *product) short(ctx context.Context, f *shortFigures) error {
	dir, err := p.run.NewDir()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "stamp")
	job, t, err := p.runJob(ctx, fmt.Sprintf("%s %s %d", p.run.Stamp, file, jobLines), file)
	if err != nil {
		return err
	}
	missing, err := countLines(ctx, p.pages(job), jobLines)
	if err != nil {
		return err
	}
	f.start = append(f.start, figures.Milliseconds(t.first.began.Sub(t.queued)))
	f.end = append(f.end, figures.Milliseconds(t.finished.Sub(t.last.ended)))
	f.missing = append(f.missing, float64(missing))
	if err := p.alone(ctx); err != nil {
		return err
	}
	return retry.Sleep(ctx, jobPause)
}
