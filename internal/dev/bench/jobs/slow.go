package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/retry"
)

const (
	lineBytes   = 100 // newline included
	logPatience = 5 * time.Minute
	// stampBytes is the size of the timestamp that the product stores with each line.
	stampBytes = 28
	// slowRequest is the duration of each request while the server is slow.
	slowRequest = 500 * time.Millisecond
)

// startGated starts a product with a proxy between its agent and its server. The caller must close both.
func startGated(ctx context.Context, run *figures.Run) (p *product, gate *site.Proxy, err error) {
	p, err = start(ctx, run, func(url string) (string, error) {
		var err error
		if gate, err = site.StartProxy(url); err != nil {
			return "", err
		}
		return gate.URL, nil
	})
	if err != nil && gate != nil {
		gate.Close()
	}
	return p, gate, err
}

// Slow runs a job that prints faster than a slow server accepts the log, and measures the memory of
// the programs that handle the log.
func Slow(ctx context.Context, run *figures.Run) error {
	p, gate, err := startGated(ctx, run)
	if err != nil {
		return err
	}
	defer gate.Close()
	defer p.close()
	// With timestamps, the log of a full run is 1 GB long, just below the server's limit.
	n := figures.Pick(run, 8_000_000, 800_000)
	idle, peak, wrong, err := p.slow(ctx, gate, n)
	if err != nil {
		return err
	}
	run.Add("RSS of agent and runner during a silent job", "MB", []float64{figures.Megabytes(idle)}, figures.Goal{})
	run.Add(fmt.Sprintf("their peak RSS with %d MB of log, %s per request", n*(lineBytes+stampBytes)/1_000_000, slowRequest), "MB",
		[]float64{figures.Megabytes(peak)}, figures.Goal{})
	run.Add("peak to idle RSS", "x", []float64{float64(peak) / float64(idle)}, figures.AtMost(1.5, true))
	run.Add("lines lost, doubled or out of order", "lines", []float64{float64(wrong)}, figures.AtMost(0, true))
	return nil
}

// handlesLog reports whether a process handles the log.
func handlesLog(pid int) bool {
	name := filepath.Base(figures.Program(pid))
	return name == "customer-managed-workflow-agent" || name == "workflow-runner"
}

// slow runs a job that first prints nothing, to measure the idle memory. The server becomes slow when
// the job begins to print.
func (p *product) slow(ctx context.Context, gate *site.Proxy, n int) (idle, peak int64, wrong int, err error) {
	dir, err := p.run.NewDir()
	if err != nil {
		return 0, 0, 0, err
	}
	silent, speak := filepath.Join(dir, "silent"), filepath.Join(dir, "speak")
	command := fmt.Sprintf("mkfifo %[2]s; >%[1]s; read x <%[2]s; %[3]s - %[4]d %[5]d", silent, speak, p.run.Stamp, n, lineBytes)
	job, err := p.enqueue(ctx, command, "-")
	if err != nil {
		return 0, 0, 0, err
	}
	err = until(ctx, 5*time.Millisecond, jobPatience, "the job's start", func() (bool, error) {
		_, err := os.Stat(silent)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return 0, 0, 0, err
	}
	if err := retry.Sleep(ctx, figures.Pick(p.run, 5*time.Second, time.Second)); err != nil {
		return 0, 0, 0, err
	}
	idle = figures.Sum(p.agentPID(), handlesLog).Now
	sampler := figures.SamplePeak(p.agentPID(), handlesLog)
	gate.Delay.Store(int64(slowRequest))
	fast := time.AfterFunc(figures.Pick(p.run, 20*time.Second, 4*time.Second), func() { gate.Delay.Store(0) })
	defer fast.Stop()
	if err = os.WriteFile(speak, []byte("\n"), 0o600); err == nil {
		err = until(ctx, 50*time.Millisecond, logPatience, "the job's exit", func() (bool, error) { return p.finished(ctx, job) })
	}
	peak = sampler.End()
	if err != nil {
		return 0, 0, 0, err
	}
	wrong, err = countLines(ctx, p.pages(job), n)
	return idle, peak, wrong, err
}
